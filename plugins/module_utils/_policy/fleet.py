# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet definition: what its schema cannot say is checked here, defaults are filled in and instances are written out.

Every problem is a line "<path in the definition>: <what is wrong and what is allowed>", as schema_text.py makes them too.
"""

from __future__ import annotations

import ipaddress

from . import access, domain_options, guest_network, names, placement
from .engines import ENGINES
from .errors import InvalidInput
from .schema_text import VARIABLE, shown
from .units import SMALLEST_MEMORY, parse_size

_SIZING = {"memory": "512MiB", "vcpus": 1, "disk": "4GiB"}
_NETWORKS = ({"network": "default"},)
_ENGINE = "tinyproxy"
_PREFIX = "proxy"
# What an entry of networks says of the interface itself.
_INTERFACE = ("network", "bridge", "model", "vlan", "mtu", "nwfilter", "nwfilter_parameters")
_NO_UID = "00000000-0000-0000-0000-000000000000"
_NO_DEVICES = dict.fromkeys(("console_log", "on_crash", "watchdog", "cpu_tuning", "io_tuning", "xml_extra"))


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
        if item.get("uid") and names.parse_uid(item["uid"]) == _NO_UID:
            found.append(f"{path}.uid: {shown(item['uid'])}: it stands for no UUID at all. Leave it out to have it derived from the names")
        if item.get("hypervisor") is not None and item["hypervisor"] not in hypervisors:
            found.append(f"{path}.hypervisor: {item['hypervisor']!r} is not among the fleet's hypervisors, {', '.join(hypervisors)}")
    checks += [(f"{path}.allow[{index}]", guest_network.parse_network, text)
               for path, proxy in _proxies(definition, listed) for index, text in enumerate(proxy.get("allow", []))]
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
    found += _access_problems(definition, listed)
    found += _domain_problems(definition, listed)
    found += [
        f"{place}: {'' if value is None else f'{shown(value)}: '}{cause}" for place, value, cause in guest_network.problems(
            definition.get("networks", _NETWORKS), expanded, not isinstance(definition["instances"], list), VARIABLE)]
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


def _proxies(definition, listed):
    """(path, mapping) of every place that says something of a proxy."""
    places = [(f"{VARIABLE}.proxy", definition.get("proxy", {}))]
    return places + [(f"{VARIABLE}.instances[{index}].proxy", item["proxy"]) for index, item in enumerate(listed) if "proxy" in item]


def _domain_problems(definition, listed):
    """What is wrong with devices and limits. Devices as XML are looked at where they are used: it takes a library that only hypervisors need."""
    found = []
    for index, network in enumerate(definition.get("networks", _NETWORKS)):
        try:
            domain_options.network_values(network, f"{VARIABLE}.networks[{index}]")
        except InvalidInput as error:
            found.append(f"{error.object}: {error.cause}. {error.hint}")
    places = [(VARIABLE, {})] + [(f"{VARIABLE}.instances[{index}]", item.get("domain", {})) for index, item in enumerate(listed)]
    for place, own in places:
        devices = {key: value for key, value in {**definition.get("domain", {}), **own}.items() if key in ("cpu_tuning", "io_tuning")}
        try:
            domain_options.device_values({**_NO_DEVICES, **devices}, f"of {place}.domain", "")
        except InvalidInput as error:
            found.append(f"{place}.domain: {error.object.replace(f' of {place}.domain', '')}: {error.cause}. {error.hint}")
    return found


def _access_problems(definition, listed):
    """What is wrong with users, passwords, keys and name servers. No user, password or key is shown."""
    found = []
    for index, line in enumerate(definition.get("authorized_keys", [])):
        problem = access.key_problem(line)
        if problem:
            found.append(f"{VARIABLE}.authorized_keys[{index}]: {problem}")
    for index, text in enumerate(definition.get("dns", {}).get("servers", [])):
        try:
            ipaddress.ip_address(text)
        except ValueError:
            found.append(f"{VARIABLE}.dns.servers[{index}]: {shown(text)}: it is not an address. Write one such as 192.0.2.53")
    # Where no instance is listed, all of them have the fleet's own proxy, and it is judged though there may be none.
    for index, item in enumerate(listed or [{}]):
        own = item.get("proxy", {})
        merged = {**definition.get("proxy", {}), **own}
        place = {key: f"{VARIABLE}.instances[{index}].proxy" if key in own else f"{VARIABLE}.proxy" for key in ("user", "password", "engine")}
        found += _credential_problems(merged, place)
    return found


def _credential_problems(proxy, place):
    user, password, engine = proxy.get("user"), proxy.get("password"), proxy.get("engine", _ENGINE)
    if user is None and password is None:
        return []
    if user is None or password is None:
        there, missing = ("user", "password") if password is None else ("password", "user")
        return [f"{place[there]}: {there} is there without {missing}; give both or none"]
    found = [
        (f"{place['user']}.user", access.user_problem(engine, user)),
        (f"{place['password']}.password", access.password_problem(engine, user, password))]
    return [f"{path}: {problem}" for path, problem in found if problem]


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

    Returns name, image (key, url or src, checksum, format), pool, networks, proxy (engine, port, allow, user where there is one), dns,
    authorized_keys, hypervisors {name: weight}, instances (name, uid, memory, vcpus, disk, hypervisor, proxy, addresses: one for each
    network or None, domain: options of kvm2_domain), placement {hypervisor: [names]} and warnings [text]. Sizes stay as written. It holds no password.
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
    networks = [dict(item) for item in definition.get("networks", _NETWORKS)]
    addresses = guest_network.assign(networks, items, not isinstance(definition["instances"], list))
    fleet_proxy = definition.get("proxy", {})
    proxies = {item["name"]: _proxy(fleet_proxy, item.get("proxy", {})) for item in items}
    return {
        "name": definition["name"],
        "image": dict({"format": "qcow2"}, **definition["image"]),
        "pool": definition.get("pool", "default"),
        "networks": networks,
        "proxy": _proxy(fleet_proxy, {}),
        "dns": dict(definition.get("dns", {})),
        "authorized_keys": [line.strip() for line in definition.get("authorized_keys", [])],
        "hypervisors": weights,
        "instances": [
            {**sizing, **item.get("sizing", {}), "name": item["name"], "uid": uid_of(definition["name"], item),
             "hypervisor": where[item["name"]], "proxy": proxies[item["name"]], "addresses": addresses[item["name"]],
             "domain": {**definition.get("domain", {}), **item.get("domain", {})}}
            for item in items],
        "placement": placed,
        "warnings": _warnings(definition, networks, proxies),
    }


def _proxy(fleets, own):
    """A proxy with every default in its place and without its password."""
    merged = {**fleets, **own}
    engine = merged.get("engine", _ENGINE)
    proxy = {"engine": engine, "port": merged.get("port", ENGINES[engine].port)}
    proxy["allow"] = [str(guest_network.parse_network(text, VARIABLE)) for text in merged.get("allow", [])]
    return dict(proxy, user=merged["user"]) if "user" in merged else proxy


def passwords(definition):
    """{instance name: the password of its proxy, or None} of a definition without problems."""
    fleets = definition.get("proxy", {})
    return {item["name"]: {**fleets, **item.get("proxy", {})}.get("password") for item in expand(definition["instances"])}


def _warnings(definition, networks, proxies):
    found = []
    closed = [name for name, proxy in proxies.items() if not proxy["allow"]]
    if closed:
        who = f"the proxies of fleet {definition['name']}"
        if len(closed) < len(proxies):
            who = f"{', '.join(closed)} of fleet {definition['name']}"
        fix = "List the addresses or networks of the clients, such as 192.0.2.0/24."
        found.append(f"{VARIABLE}.proxy.allow is empty, so {who} serve nobody. {fix}")
    if proxies and all("subnet" in network for network in networks) and not definition.get("dns", {}).get("servers"):
        found.append(
            f"{VARIABLE}.dns.servers is missing and no DHCP server tells the guests of one, so the proxies of fleet {definition['name']} look "
            "up no names. List name servers.")
    return found


def share(fleet, hypervisor, overlays=()):
    """What one hypervisor gets of a normalised fleet, in the form that the modules take.

    overlays: the entries that kvm2_overlay returned; their volume names go into the domains.
    Returns names [text], overlays [{name, uid, capacity}], domains [{name, uid, memory, vcpus, overlay, networks, options of their own}], interfaces
    [{network or bridge, model and so on}], declared (the families, "ipv4" or "ipv6", of which each instance has an address by the definition),
    networks and bridges [text], the sum of the guests' memory in bytes and the largest number of vcpus. A hypervisor that is not in the
    definition gets nothing.
    """
    mine = [item for item in fleet["instances"] if item["hypervisor"] == hypervisor]
    volumes = {one["name"]: one["overlay"] for one in overlays if one.get("overlay")}
    domains = [{**{key: item[key] for key in ("name", "uid", "memory", "vcpus")}, **item["domain"]} for item in mine]
    interfaces = [{key: one[key] for key in _INTERFACE if key in one} for one in fleet["networks"]]
    for domain, item in zip(domains, mine):
        if domain["name"] in volumes:
            domain["overlay"] = volumes[domain["name"]]
        own = [_filtered(one, address) for one, address in zip(interfaces, item["addresses"])]
        if own != interfaces:
            domain["networks"] = own
    return {
        "names": [item["name"] for item in mine],
        "overlays": [{"name": item["name"], "uid": item["uid"], "capacity": item["disk"]} for item in mine],
        "domains": domains,
        "interfaces": interfaces,
        "declared": [family for family in guest_network.FAMILIES if mine and all(guest_network.primary(one["addresses"], family) for one in mine)],
        "networks": sorted({one["network"] for one in fleet["networks"] if "network" in one}),
        "bridges": sorted({one["bridge"] for one in fleet["networks"] if "bridge" in one}),
        "memory": sum(parse_size(item["memory"], "memory") for item in mine),
        "vcpus": max([item["vcpus"] for item in mine], default=0),
    }


def _filtered(interface, address):
    """The interface of an instance that has an address of its own there: a filter against spoofing is told of it, where nothing else is said."""
    if "nwfilter" not in interface or address is None or ipaddress.ip_address(address).version != 4:
        return interface
    return dict(interface, nwfilter_parameters={"IP": address, **interface.get("nwfilter_parameters", {})})
