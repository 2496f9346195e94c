# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a fleet's proxies can be reached, and what people are shown of it."""

from __future__ import annotations

from . import fleet as definitions
from . import guest_network, names
from .engines import ENGINES

_COLUMNS = (
    ("INSTANCE", "name"), ("HYPERVISOR", "hypervisor"), ("ENGINE", "engine"), ("ADDRESS", "address"), ("PROXY", "url"), ("STATE", "state"))
# Nobody's password: what a proxy with a user has to refuse.
_WRONG = "kvm2-asks-with-a-wrong-password"
_WRONG_TOO = "kvm2-asks-with-another-wrong-one"


def proxy_url(address, port, scheme="http"):
    host = f"[{address}]" if ":" in address else address
    return f"{scheme}://{host}:{port}"


def endpoints(fleet, hypervisor, instances, checks=(), family="ipv4"):
    """One entry for each instance of a hypervisor.

    fleet: a normalised fleet.  instances: what kvm2_domain returned.  checks: what kvm2_proxy_check returned, may be empty.
    family: of the address that an instance is reached by.
    """
    seen = {check["name"]: check for check in checks}
    declared = {one["name"]: one for one in fleet["instances"]}
    return [_endpoint(fleet["name"], hypervisor, declared[one["name"]], one, seen.get(one["name"], {}), family) for one in instances]


def _endpoint(fleet, hypervisor, declared, one, check, family):
    address, proxy = _address(declared, one, family), declared["proxy"]
    scheme = ENGINES[proxy["engine"]].scheme
    # A guest that has its address from its definition and no agent is not seen before it has been asked.
    state = "running" if check.get("ok") and one["state"] == "provisioning" else one["state"]
    return {
        "name": one["name"],
        "fleet": fleet,
        "hypervisor": hypervisor,
        "address": address,
        "port": proxy["port"],
        "scheme": scheme,
        "engine": proxy["engine"],
        "url": proxy_url(address, proxy["port"], scheme) if address else None,
        "state": state,
        "egress_address": check.get("egress_address"),
    }


def _address(declared, one, family):
    """A guest that is only predicted has no address yet, and one that was made from another seed has not got the one that is declared by now."""
    if names.is_predicted(one.get("seed") or ""):
        return None
    own, found = guest_network.primary(declared["addresses"], family), one.get("primary_address")
    if any(difference["field"] == "seed" for difference in one.get("drift", ())):
        return found or own
    return own or found


def proxies(entries, definition=None):
    """The endpoints that can be asked, in the form that kvm2_proxy_check takes: those with an address.

    definition: the fleet's own, with its passwords. With it the proxies that serve nobody are left out, those with a user are asked with
    its password, and a second time with a wrong one, which they have to refuse.
    """
    asked = [{key: entry[key] for key in ("name", "address", "port", "scheme")} for entry in entries if entry["address"]]
    if definition is None:
        return asked
    declared = {one["name"]: one["proxy"] for one in definitions.normalise(definition)["instances"]}
    secret = definitions.passwords(definition)
    found = []
    for one in asked:
        proxy, password = declared[one["name"]], secret[one["name"]]
        if not proxy["allow"]:
            continue
        if password is None:
            found.append(one)
            continue
        wrong = _WRONG if password != _WRONG else _WRONG_TOO
        found.append(dict(one, user=proxy["user"], password=password))
        found.append(dict(one, name=f"{one['name']} with a wrong password", user=proxy["user"], password=wrong, expect="refused"))
    return found


def drift(instances):
    """Lines that say how instances, as kvm2_domain returned them, differ from what is declared and were left as they are."""
    return [f"{one['name']}: {_difference(difference)}" for one in instances for difference in one["drift"]]


def _difference(found):
    # Hashes tell people nothing beyond that they differ.
    values = f"is {_cell(found['have'])} where {_cell(found['want'])} is declared"
    if found["field"] == "seed":
        values = "is not what is declared"
    then = "its restart is needed" if found["needs"] == "restart" else f"on_change {found['needs']} is needed"
    return f"{found['field']} {values}; {then}"


def table(entries):
    """The endpoints as lines of equal columns, headed; "-" where something is not known."""
    rows = [[title for title, key in _COLUMNS]]
    rows += [[_cell(entry.get(key)) for title, key in _COLUMNS] for entry in entries]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def _cell(value):
    return "-" if value is None or value == "" else str(value)
