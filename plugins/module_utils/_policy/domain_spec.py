# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a domain of ours should be: the values that domain_xml renders and domain_read compares."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional, Tuple

from .errors import InvalidInput
from .names import CONSOLE_LOGS, is_mac_address

# Begins the alias of a device that an operator gave as XML.
EXTRA_PREFIX = "ua-kvm2-"

KINDS = ("network", "bridge")
CPU_MODES = ("host-passthrough", "host-model", "maximum")
FIRMWARES = ("bios", "efi")
VIRT_TYPES = ("kvm", "qemu")
# What the protocols lean on: a guest that powers off stays off, whatever stopped it.
EVENTS = (("on_poweroff", "destroy"), ("on_reboot", "restart"))
CRASH_ACTIONS = ("destroy", "restart", "preserve", "coredump-destroy", "coredump-restart")
# Devices that every instance has, beside its disks and interfaces.
STANDARD_DEVICES = ("guest_agent", "serial_console", "rng")
X86 = ("x86_64", "i686")

MIB = 1024 ** 2
# What an XML document can hold.
_UNPRINTABLE = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


@dataclass(frozen=True)
class Interface:
    """kind: "network" (source is a libvirt network) or "bridge" (source is a bridge of the host). mac in lower case. mtu in bytes.

    nwfilter: name of a libvirt network filter.  nwfilter_parameters: its (name, value), sorted.
    """

    kind: str
    source: str
    mac: str
    model: str = "virtio"
    vlan: Optional[int] = None
    mtu: Optional[int] = None
    nwfilter: Optional[str] = None
    nwfilter_parameters: Tuple[Tuple[str, str], ...] = ()

    def __str__(self):
        text = f"{self.kind} {self.source}, {self.model}"
        for what, value in (("vlan", self.vlan), ("mtu", self.mtu), ("nwfilter", self.nwfilter)):
            text += f", {what} {value}" if value is not None else ""
        return text + "".join(f", {name}={value}" for name, value in self.nwfilter_parameters)


@dataclass(frozen=True)
class DomainSpec:
    """memory in bytes, rounded up to whole MiB.

    cpu_mode: one of CPU_MODES, None for libvirt's default. machine: "q35", "pc" or an exact type. overlay_chain: (path, format) of the
    files below the overlay, the base last; empty where it is not known. machine, emulator, title, overlay_path and seed_path of None are
    left as they are in a domain that is there, and to libvirt in a new one. former_macs: of interfaces that were asked for once.

    console_log: is the serial console logged to console_log_path()?  on_crash, watchdog, cpu_shares, cpu_quota (percent of one processor of the host for
    each of the guest's), cpu_pin (processors of the host, as libvirt writes them) and io_tuning ((limit, number a second), …) are managed
    while they are asked for, as vlan, mtu and nwfilter of an interface are; former_options: those that were asked for once.  xml_extra: devices as XML.
    """

    name: str
    uuid: str
    memory: int
    vcpus: int
    overlay_path: Optional[str]
    overlay_chain: Tuple[Tuple[str, str], ...]
    seed_path: Optional[str]
    interfaces: Tuple[Interface, ...] = ()
    cpu_mode: Optional[str] = None
    machine: Optional[str] = None
    arch: str = "x86_64"
    firmware: str = "bios"
    virt_type: str = "kvm"
    emulator: Optional[str] = None
    title: Optional[str] = None
    former_macs: Tuple[str, ...] = ()
    console_log: bool = False
    on_crash: Optional[str] = None
    watchdog: Optional[str] = None
    cpu_shares: Optional[int] = None
    cpu_quota: Optional[int] = None
    cpu_pin: Optional[str] = None
    io_tuning: Tuple[Tuple[str, int], ...] = ()
    xml_extra: Tuple[str, ...] = ()
    former_options: Tuple[str, ...] = ()

    @property
    def memory_kib(self):
        return -(-self.memory // MIB) * 1024

    @property
    def overlay_serial(self):
        # A guest sees the first 20 characters of a serial.
        return f"kvm2-{self.uuid.replace('-', '')[:15]}"

    @property
    def seed_serial(self):
        return f"kvm2-seed-{self.uuid.replace('-', '')[:10]}"


def console_log_path(name, uuid):
    """The file of a domain's console. The UUID keeps it apart from that of a domain of the same name with another one. By default the UUID follows
    from fleet and name: where the file could not be removed, an instance that is made anew writes on below the former one's lines."""
    # Not *.log: that is logrotate's, which would leave pieces behind.
    return f"{CONSOLE_LOGS}/kvm2-{name}-{uuid}.console"


def effective_cpu_mode(asked, virt_type):
    """The CPU mode of a guest of that virt_type: emulation has no processor to pass through, and its fullest one is the nearest to it."""
    if asked is None:
        return "host-model" if virt_type == "kvm" else None
    return "maximum" if asked == "host-passthrough" and virt_type == "qemu" else asked


def has_panic_device(spec):
    """What tells of a guest's crash is only wanted where something follows from it."""
    return spec.on_crash not in (None, "destroy") and spec.arch in X86


def check(spec):
    """Raise InvalidInput where a value of the specification cannot be rendered."""
    obj = f"specification of domain {spec.name}"
    if spec.memory < MIB or spec.vcpus < 1:
        raise InvalidInput(obj, f"memory {spec.memory} and vcpus {spec.vcpus} are too small", "Give at least 1MiB and 1.")
    for field, allowed in (("cpu_mode", (None, *CPU_MODES)), ("firmware", FIRMWARES), ("virt_type", VIRT_TYPES), ("on_crash", (None, *CRASH_ACTIONS))):
        if getattr(spec, field) not in allowed:
            raise InvalidInput(
                obj, f"{field} {getattr(spec, field)!r} is not known", "Use one of " + ", ".join(filter(None, allowed)) + ".")
    macs = [interface.mac for interface in spec.interfaces]
    for interface in spec.interfaces:
        if interface.kind not in KINDS or not interface.source:
            raise InvalidInput(obj, f"interface {interface.mac} names no network or bridge", "Give exactly one of network and bridge.")
        if not is_mac_address(interface.mac) or macs.count(interface.mac) > 1:
            raise InvalidInput(
                obj, f"the MAC address {interface.mac} is malformed, multicast or used twice", "Leave mac out to have it derived.")
    texts = [spec.name, spec.machine, spec.arch, spec.emulator, spec.title, spec.overlay_path, spec.seed_path]
    texts += [text for link in spec.overlay_chain for text in link]
    texts += [text for one in spec.interfaces for text in (one.source, one.model, one.nwfilter, *(part for pair in one.nwfilter_parameters for part in pair))]
    for text in texts:
        if text is not None and _UNPRINTABLE.search(text):
            raise InvalidInput(obj, f"{text!r} holds a character that XML cannot carry", "Remove that character.")
