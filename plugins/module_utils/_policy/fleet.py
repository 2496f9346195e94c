# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet definition: what its schema cannot say is checked here, defaults are filled in and instances are written out.

Every problem is a line "<path in the definition>: <what is wrong and what is allowed>", as schema_text.py makes them too.
"""

from __future__ import annotations

import ipaddress

from . import names, placement
from .errors import InvalidInput
from .schema_text import VARIABLE, shown
from .units import SMALLEST_MEMORY, parse_size

_SIZING = {"memory": "512MiB", "vcpus": 1, "disk": "4GiB"}
_PROXY = {"engine": "tinyproxy", "port": 3128, "allow": []}
_PREFIX = "proxy"


# -- what the schema cannot say

def _memory(text, path):
    if parse_size(text, path) < SMALLEST_MEMORY:
        raise InvalidInput(path, "no guest boots in so little", f"Give at least {SMALLEST_MEMORY // 1024 ** 2}MiB.")


_SIZES = {"memory": _memory, "disk": parse_size}


def problems(definition):
    """What is wrong with a definition that its schema found no fault with, as a list of texts."""
    found = []
    sizing = definition.get("sizing", {})
    hypervisors = list(definition["hypervisors"])  # the names, of a list or of a mapping
    listed = definition["instances"] if isinstance(definition["instances"], list) else []
    checks = [(f"{VARIABLE}.sizing.{key}", _SIZES[key], sizing[key]) for key in ("memory", "disk") if key in sizing]
    for index, item in enumerate(listed):
        path = f"{VARIABLE}.instances[{index}]"
        checks += [(f"{path}.sizing.{key}", _SIZES[key], item["sizing"][key]) for key in ("memory", "disk") if key in item.get("sizing", {})]
        if item.get("hypervisor") is not None and item["hypervisor"] not in hypervisors:
            found.append(f"{path}.hypervisor: {item['hypervisor']!r} is not among the fleet's hypervisors, {', '.join(hypervisors)}")
    allow = definition.get("proxy", {}).get("allow", [])
    checks += [(f"{VARIABLE}.proxy.allow[{index}]", _network, text) for index, text in enumerate(allow)]
    checks.append((f"{VARIABLE}.name", names.check_label, definition["name"]))
    checks.append((f"{VARIABLE}.image.key", names.check_label, definition["image"]["key"]))
    expanded = expand(definition["instances"])
    checks += [(f"{VARIABLE}.instances", names.check_label, item["name"]) for item in expanded]
    for path, check, value in checks:
        try:
            check(value, path)
        except InvalidInput as error:
            found.append(f"{path}: {shown(value)}: {error.cause}. {error.hint}".rstrip())
    found += _twice(f"{VARIABLE}.hypervisors", "name", hypervisors)
    found += _twice(f"{VARIABLE}.instances", "name", [item["name"] for item in expanded])
    uids = {item["name"]: uid_of(definition["name"], item) for item in expanded}
    found += _twice(f"{VARIABLE}.instances", "uid", uids.values())
    return list(dict.fromkeys(found))


def _twice(path, what, values):
    seen, twice = set(), []
    for value in values:
        if value in seen and value not in twice:
            twice.append(value)
        seen.add(value)
    return [f"{path}: the {what} {value} is there more than once; each needs its own" for value in twice]


def _network(text, path):
    """The network that a client may be in, as ipaddress reads it."""
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        hint = "Write for example 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32."
        raise InvalidInput(path, "it is neither an address nor a network", hint) from None
    if network.network_address != ipaddress.ip_interface(text).ip:
        hint = f"Write {network} for the whole network, or the address alone."
        raise InvalidInput(path, "it has bits set that the length of its prefix leaves out", hint)
    return network


# -- the definition written out

def uid_of(fleet, item):
    return names.parse_uid(item["uid"]) if item.get("uid") else names.derive_uid(fleet, item["name"])


def expand(instances):
    """The instances as a list. A count makes prefix-01, prefix-02 and so on; the names of the first ones stay whatever the count is."""
    if isinstance(instances, list):
        return [dict(item) for item in instances]
    prefix = instances.get("prefix", _PREFIX)
    return [{"name": f"{prefix}-{number:02d}"} for number in range(1, instances["count"] + 1)]


def normalise(definition):
    """A definition without problems, with every default in its place.

    Returns name, image (key, url or src, checksum, format), pool, networks, proxy (engine, port, allow), hypervisors {name: weight},
    instances (name, uid, memory, vcpus, disk, hypervisor), placement {hypervisor: [names]} and warnings [text]. Sizes stay as written.
    """
    hypervisors = definition["hypervisors"]
    if isinstance(hypervisors, dict):
        weights = {str(name): int((settings or {}).get("weight", 1)) for name, settings in hypervisors.items()}
    else:
        weights = {str(name): 1 for name in hypervisors}
    sizing = dict(_SIZING, **definition.get("sizing", {}))
    items = expand(definition["instances"])
    placed = placement.place([(item["name"], item.get("hypervisor")) for item in items], weights)
    where = {name: hypervisor for hypervisor, share in placed.items() for name in share}
    proxy = dict(_PROXY, **definition.get("proxy", {}))
    proxy["allow"] = [str(_network(text, VARIABLE)) for text in proxy["allow"]]
    return {
        "name": definition["name"],
        "image": dict({"format": "qcow2"}, **definition["image"]),
        "pool": definition.get("pool", "default"),
        "networks": [dict(item) for item in definition.get("networks", [{"network": "default"}])],
        "proxy": proxy,
        "hypervisors": weights,
        "instances": [
            {**sizing, **item.get("sizing", {}), "name": item["name"], "uid": uid_of(definition["name"], item),
             "hypervisor": where[item["name"]]}
            for item in items],
        "placement": placed,
        "warnings": _warnings(definition["name"], proxy, items),
    }


def _warnings(name, proxy, items):
    if items and not proxy["allow"]:
        fix = "List the addresses or networks of the clients, such as 192.0.2.0/24."
        return [f"{VARIABLE}.proxy.allow is empty, so the proxies of fleet {name} serve nobody. {fix}"]
    return []


def share(fleet, hypervisor, overlays=()):
    """What one hypervisor gets of a normalised fleet, in the form that the modules take.

    overlays: the entries that kvm2_overlay returned; their volume names go into the domains.
    Returns names [text], overlays [{name, uid, capacity}], domains [{name, uid, memory, vcpus, overlay}], networks and bridges [text], the
    sum of the guests' memory in bytes and the largest number of vcpus. A hypervisor that is not in the definition gets nothing.
    """
    mine = [item for item in fleet["instances"] if item["hypervisor"] == hypervisor]
    volumes = {one["name"]: one["overlay"] for one in overlays if one.get("overlay")}
    domains = [{key: item[key] for key in ("name", "uid", "memory", "vcpus")} for item in mine]
    for domain in domains:
        if domain["name"] in volumes:
            domain["overlay"] = volumes[domain["name"]]
    return {
        "names": [item["name"] for item in mine],
        "overlays": [{"name": item["name"], "uid": item["uid"], "capacity": item["disk"]} for item in mine],
        "domains": domains,
        "networks": sorted({one["network"] for one in fleet["networks"] if "network" in one}),
        "bridges": sorted({one["bridge"] for one in fleet["networks"] if "bridge" in one}),
        "memory": sum(parse_size(item["memory"], "memory") for item in mine),
        "vcpus": max([item["vcpus"] for item in mine], default=0),
    }
