# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an operator wants of an instance: options checked and filled up, before anything is known of a hypervisor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional, Tuple

from . import domain_extra, meta_data, names, seed
from .domain_options import device_values, network_values
from .domain_xml import Interface
from .errors import InvalidInput
from .units import SMALLEST_MEMORY, parse_size

OPTIONS = (
    "memory", "vcpus", "cpu_mode", "machine", "firmware", "virt_type", "networks", "user_data", "network_config", "meta_data", "autostart",
    "console_log", "on_crash", "watchdog", "cpu_tuning", "io_tuning", "xml_extra")
_INTERFACE_MODELS = ("virtio", "e1000", "e1000e", "rtl8139", "virtio-transitional", "virtio-non-transitional")


@dataclass(frozen=True)
class Wanted:
    """memory in bytes; machine and cpu_mode None where the hypervisor's default is meant; virt_type auto, kvm or qemu.

    devices: further values of a domain_spec.DomainSpec, as domain_options.device_values() gives them.
    """

    memory: int
    vcpus: int
    cpu_mode: Optional[str]
    machine: Optional[str]
    firmware: str
    virt_type: str
    interfaces: Tuple[Interface, ...]
    autostart: bool
    user_data: str
    meta_data: str
    network_config: Optional[str]
    devices: Mapping[str, Any]

    @property
    def seed_hash(self):
        return seed.inputs_hash(self.user_data, self.meta_data, self.network_config)

    @property
    def macs(self):
        """Of the interfaces that are asked for as such; all_macs has those in xml_extra too."""
        return tuple(interface.mac for interface in self.interfaces)

    @property
    def all_macs(self):
        return (*self.macs, *domain_extra.macs(self.devices["xml_extra"]))


def merge(defaults, own):
    """Options of one instance: its own where given, else the module's."""
    return {name: own[name] if own.get(name) is not None else defaults.get(name) for name in OPTIONS}


def wanted(options, instance):
    """Wanted of merged options; instance has fleet, name, uid. Raises InvalidInput that names the instance and the option."""
    who = f"of instance {instance.name}"
    if options["memory"] is None:
        raise InvalidInput(f"memory {who}", "it is not given", "Give memory for all instances or for this one, such as 512MiB.")
    memory = parse_size(options["memory"], f"memory {who}")
    if memory < SMALLEST_MEMORY:
        raise InvalidInput(f"memory {who} {options['memory']!r}", "no guest boots in so little", "Give at least 16MiB.")
    if options["vcpus"] < 1:
        raise InvalidInput(f"vcpus {who} {options['vcpus']}", "a guest needs at least one", "Give 1 or more.")
    interfaces = _interfaces(options["networks"], instance, who)
    extra = options["meta_data"]
    metadata = meta_data.with_more(instance.uid, instance.name, extra, f"meta_data {who}") if extra else meta_data.default(instance.uid, instance.name)
    found = Wanted(
        memory=memory, vcpus=options["vcpus"], cpu_mode=options["cpu_mode"], machine=options["machine"], firmware=options["firmware"],
        virt_type=options["virt_type"], interfaces=interfaces, autostart=options["autostart"], user_data=options["user_data"] or "",
        meta_data=metadata,
        network_config=options["network_config"] if options["network_config"] else network_config(interfaces),
        devices=device_values(options, who, instance.uid))
    if len(set(found.all_macs)) != len(found.all_macs):
        raise InvalidInput(f"networks and xml_extra {who}", "two interfaces have the same MAC address", "Give each another one.")
    try:
        seed.inputs_hash(found.user_data, found.meta_data, found.network_config)
    except InvalidInput as error:
        raise InvalidInput(f"{error.object} {who}", error.cause, error.hint) from error
    return found


def _interfaces(networks, instance, who):
    if networks is None:
        raise InvalidInput(f"networks {who}", "they are not given", "Give networks for all instances or for this one, such as [{network: default}].")
    found = []
    for index, entry in enumerate(networks):
        obj = f"networks[{index}] {who}"
        kinds = [kind for kind in ("network", "bridge") if entry.get(kind)]
        if len(kinds) != 1:
            raise InvalidInput(obj, "it names " + ("both a network and a bridge" if kinds else "neither a network nor a bridge"), "Give exactly one.")
        mac = (entry.get("mac") or names.mac_address(instance.uid, index)).lower()
        if not names.is_mac_address(mac):
            raise InvalidInput(f"{obj} mac {entry['mac']!r}", "it is not the MAC address of an interface", "Leave mac out to have it derived.")
        model = entry.get("model") or "virtio"
        if model not in _INTERFACE_MODELS:
            raise InvalidInput(f"{obj} model {model!r}", "it is not known", "Use one of " + ", ".join(_INTERFACE_MODELS) + ".")
        found.append(Interface(kinds[0], entry[kinds[0]], mac, model, **network_values(entry, obj)))
    macs = [interface.mac for interface in found]
    if len(set(macs)) != len(macs):
        raise InvalidInput(f"networks {who}", "two interfaces have the same MAC address", "Give each another one, or leave mac out.")
    return tuple(found)


def network_config(interfaces):
    """cloud-init network configuration, version 2: each interface matched by its MAC, asking DHCP with the MAC as identifier."""
    lines = ["version: 2", "ethernets:" if interfaces else "ethernets: {}"]
    for index, interface in enumerate(interfaces):
        lines += [f"  net{index}:", f"    match: {{macaddress: '{interface.mac}'}}", "    dhcp4: true", "    dhcp-identifier: mac"]
    return "\n".join(lines) + "\n"


def check_distinct_macs(all_wanted):
    """all_wanted: {instance name: Wanted}. Two instances with one MAC would take each other's address."""
    owners = {}
    for name, one in all_wanted.items():
        for mac in one.all_macs:
            if owners.setdefault(mac, name) != name:
                raise InvalidInput(f"instances {owners[mac]} and {name}", f"both have the MAC address {mac}", "Give one of them another mac.")
