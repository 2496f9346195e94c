# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a fleet's proxies can be reached, and what people are shown of it."""

from __future__ import annotations

_COLUMNS = (("INSTANCE", "name"), ("HYPERVISOR", "hypervisor"), ("ADDRESS", "address"), ("PROXY", "url"), ("STATE", "state"))


def proxy_url(address, port, scheme="http"):
    host = f"[{address}]" if ":" in address else address
    return f"{scheme}://{host}:{port}"


def endpoints(fleet, hypervisor, instances, checks=()):
    """One entry for each instance of a hypervisor.

    fleet: a normalised fleet.  instances: what kvm2_domain returned.  checks: what kvm2_proxy_check returned, may be empty.
    """
    seen = {check["name"]: check.get("egress_address") for check in checks}
    port = fleet["proxy"]["port"]
    return [{
        "name": one["name"],
        "fleet": fleet["name"],
        "hypervisor": hypervisor,
        "address": one.get("primary_address"),
        "port": port,
        "scheme": "http",
        "url": proxy_url(one["primary_address"], port) if one.get("primary_address") else None,
        "state": one["state"],
        "egress_address": seen.get(one["name"]),
    } for one in instances]


def proxies(entries):
    """The endpoints that can be asked, in the form that kvm2_proxy_check takes: those with an address."""
    return [{key: entry[key] for key in ("name", "address", "port", "scheme")} for entry in entries if entry["address"]]


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
