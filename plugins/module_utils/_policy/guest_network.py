# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses that a fleet definition gives its instances, and the network configuration that tells a guest of them."""

from __future__ import annotations

import ipaddress

from . import names
from .cloud_config import dump
from .errors import InvalidInput

FAMILIES = {"ipv4": 4, "ipv6": 6}
_EVERYWHERE = {4: "0.0.0.0/0", 6: "::/0"}


def interface_names(networks):
    """What the guest calls its interfaces. The kernel would choose them by the machine's slots, and dante has to know them beforehand."""
    return tuple(f"eth{index}" for index in range(len(networks)))


def network_config(uid, networks, addresses, dns=None, family="ipv4"):
    """cloud-init's network-config, version 2, as text.

    networks: entries of the definition.  addresses: for each of them the instance's own address, or None for one from a DHCP server.
    dns: {servers, search}, either may be missing.  family: ipv6 asks DHCP servers for such an address too.
    """
    ethernets = {}
    for index, (name, network, address) in enumerate(zip(interface_names(networks), networks, addresses)):
        entry = {"match": {"macaddress": names.mac_address(uid, index)}, "set-name": name}
        if address is None:
            # Clones share a machine id, and servers would take them for one client by it; the MAC address tells them apart and stays.
            entry.update({"dhcp4": True, "dhcp-identifier": "mac"})
            if family == "ipv6":
                entry["dhcp6"] = True
            if dns and dns.get("servers"):
                entry["dhcp4-overrides"] = {"use-dns": False}
        else:
            subnet = ipaddress.ip_network(network["subnet"])
            entry.update({"dhcp4": False, "dhcp6": False, "addresses": [f"{address}/{subnet.prefixlen}"]})
            if network.get("gateway"):
                entry["routes"] = [{"to": _EVERYWHERE[subnet.version], "via": _canonical(network["gateway"])}]
        if index == 0 and dns:
            entry["nameservers"] = {key: list(dns[of]) for key, of in (("addresses", "servers"), ("search", "search")) if dns.get(of)}
        ethernets[name] = entry
    return dump({"version": 2, "ethernets": ethernets})


def primary(addresses, family):
    """The first address of a family among an instance's own, or None."""
    return next((one for one in addresses if one and ipaddress.ip_address(one).version == FAMILIES[family]), None)


def _canonical(text):
    return str(ipaddress.ip_address(text))


# -- what a definition gives

def assign(networks, items, counted):
    """{instance name: [its address on each network, or None]} of a definition without problems.

    items: the instances, expanded.  counted: whether they come from a count and take the addresses from each network's `first` on.
    """
    given = {}
    for number, item in enumerate(items):
        own = iter(own_addresses(item))
        given[item["name"]] = [
            None if "subnet" not in network
            else str(ipaddress.ip_address(network["first"]) + number) if counted else _canonical(next(own))
            for network in networks]
    return given


def own_addresses(item):
    own = item.get("address", [])
    return [own] if isinstance(own, str) else own


def problems(networks, items, counted, path):
    """(place, value, cause) of everything that is wrong with the addresses; path: the definition's own, such as "kvm2_fleet"."""
    found, static = [], []
    for index, network in enumerate(networks):
        at = f"{path}.networks[{index}]"
        if "subnet" not in network:
            found += [(f"{at}.{key}", network[key], "it needs the subnet that it is in. Add subnet.") for key in ("gateway", "first") if key in network]
            continue
        try:
            static.append((at, network, parse_subnet(network["subnet"], f"{at}.subnet")))
        except InvalidInput as error:
            found.append((f"{at}.subnet", network["subnet"], f"{error.cause}. {error.hint}"))
    for at, network, subnet in static:
        if "gateway" in network:
            wrong = _wrong(f"{at}.gateway", network["gateway"], subnet, None, is_gateway=True)
            if wrong:
                found += wrong
                continue
        if counted:
            found += _counted(at, network, subnet, len(items))
        elif "first" in network:
            found.append((f"{at}.first", network["first"], "it counts for instances that come from a count only. Give each instance its address."))
    if not found and len(static) == len([one for one in networks if "subnet" in one]):
        found += _listed(items, static, counted, path)
    return found


def _counted(at, network, subnet, count):
    if "first" not in network:
        return [(at, network["subnet"], "the instances come from a count and there is no first address for them. Add first.")]
    found = _wrong(f"{at}.first", network["first"], subnet, network.get("gateway"))
    if found or not count:
        return found
    first = ipaddress.ip_address(network["first"])
    if int(first) + count - 1 > _last(subnet):
        return [(f"{at}.first", network["first"], f"instance number {_last(subnet) - int(first) + 2} of {count} would be outside of {subnet}")]
    gateway = ipaddress.ip_address(network["gateway"]) if "gateway" in network else None
    if gateway is not None and gateway.version == first.version and first <= gateway < first + count:
        return [(f"{at}.first", network["first"], f"instance number {int(gateway) - int(first) + 1} would have the gateway's address, {gateway}")]
    return []


def _listed(items, static, counted, path):
    found, owners = [], {}
    for index, item in enumerate([] if counted else items):
        own, at = own_addresses(item), f"{path}.instances[{index}].address"
        if len(own) != len(static):
            wanted = f"the instance needs an address in each network that has a subnet, in their order: {', '.join(str(one[2]) for one in static)}"
            found.append((at, item.get("address"), wanted if static else "no network of the fleet has a subnet. Add subnet to one"))
            continue
        for text, (_at, network, subnet) in zip(own, static):
            wrong = _wrong(at, text, subnet, network.get("gateway"))
            found += wrong
            if not wrong:
                other = owners.setdefault(_canonical(text), item["name"])
                if other != item["name"]:
                    found.append((at, text, f"instance {other} has this address too; each needs its own"))
    return found


def parse_subnet(text, path):
    """The network of addresses as ipaddress reads it; it must have room for a few."""
    network = parse_network(text, path)
    if network.max_prefixlen - network.prefixlen < 2:
        raise InvalidInput(path, "it has no room for instances", "Write for example 192.168.122.0/24 or 2001:db8::/64.")
    return network


def parse_network(text, path):
    """A network that an operator wrote, as ipaddress reads it. Raises InvalidInput."""
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        hint = "Write for example 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32."
        raise InvalidInput(path, "it is neither an address nor a network", hint) from None
    if network.network_address != ipaddress.ip_interface(text).ip:
        hint = f"Write {network} for the whole network, or the address alone."
        raise InvalidInput(path, "it has bits set that the length of its prefix leaves out", hint)
    return network


def _last(subnet):
    """The last address that a guest can have, as a number: IPv4 keeps the highest for broadcasts."""
    return int(subnet.broadcast_address) - (1 if subnet.version == 4 else 0)


def _wrong(at, text, subnet, gateway, is_gateway=False):
    try:
        # With a zone it would count on one machine only.
        address = ipaddress.ip_address(text if "%" not in text else "")
    except ValueError:
        return [(at, text, "it is not an address. Write one such as 192.168.122.50")]
    if is_gateway and address.version == subnet.version == 6 and address.is_link_local:
        return []
    if address not in subnet:
        return [(at, text, f"it is outside of {subnet}")]
    if address == subnet.network_address or int(address) > _last(subnet):
        return [(at, text, f"it is not an address for a host of {subnet}")]
    if gateway is not None and address == ipaddress.ip_address(gateway):
        return [(at, text, "it is the gateway's")]
    return []
