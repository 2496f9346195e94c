# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a domain of ours should be: the values that domain_xml renders and domain_read compares."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Optional, Tuple

from .errors import InvalidInput

KINDS = ("network", "bridge")
CPU_MODES = ("host-passthrough", "host-model", "maximum")
FIRMWARES = ("bios", "efi")
VIRT_TYPES = ("kvm", "qemu")
# What the protocols lean on: a guest that powers off stays off, whatever stopped it.
EVENTS = (("on_poweroff", "destroy"), ("on_reboot", "restart"), ("on_crash", "destroy"))
# Devices that every instance has, beside its disks and interfaces.
STANDARD_DEVICES = ("guest_agent", "serial_console", "rng")

MIB = 1024 ** 2
_MAC_RE = re.compile(r"[0-9a-f][02468ace](?::[0-9a-f]{2}){5}")
# What an XML document can hold.
_UNPRINTABLE = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


@dataclass(frozen=True)
class Interface:
    """kind: "network" (source is a libvirt network) or "bridge" (source is a bridge of the host). mac in lower case."""

    kind: str
    source: str
    mac: str
    model: str = "virtio"

    def __str__(self):
        return f"{self.kind} {self.source}, {self.model}"


@dataclass(frozen=True)
class DomainSpec:
    """memory in bytes, rounded up to whole MiB.

    cpu_mode: one of CPU_MODES, None for libvirt's default. machine: "q35", "pc" or an exact type. overlay_chain: (path, format) of the
    files below the overlay, the base last; empty where it is not known. machine, emulator, title, overlay_path and seed_path of None are
    left as they are in a domain that is there, and to libvirt in a new one. former_macs: of interfaces that were asked for once.
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


def fields(spec):
    """{field: value} of everything the specification asks for, flat, for comparison and for people. Sizes in bytes.

    A field that it leaves alone is not in it; an interface is the field "interface <mac>".
    """
    found = {
        "virt_type": spec.virt_type, "arch": spec.arch, "firmware": spec.firmware, "cpu_mode": spec.cpu_mode,
        "memory": spec.memory_kib * 1024, "vcpus": spec.vcpus}
    optional = {
        "machine": spec.machine, "emulator": spec.emulator, "title": spec.title, "overlay": spec.overlay_path,
        "overlay_chain": chain_text(spec.overlay_chain) if spec.overlay_path is not None and spec.overlay_chain else None,
        "seed": spec.seed_path}
    found.update({field: value for field, value in optional.items() if value is not None})
    found.update({f"interface {interface.mac}": str(interface) for interface in spec.interfaces})
    found.update(dict(EVENTS))
    found.update(dict.fromkeys(STANDARD_DEVICES, True))
    return found


def chain_text(chain):
    return " <- ".join(f"{path} ({volume_format or 'format not given'})" for path, volume_format in chain)


def generation(spec):
    """Hex sha256 of the managed specification: equal for equal specifications, whatever the order of the interfaces."""
    return hashlib.sha256(json.dumps(fields(spec), sort_keys=True).encode()).hexdigest()


def check(spec):
    """Raise InvalidInput where a value of the specification cannot be rendered."""
    obj = f"specification of domain {spec.name}"
    if spec.memory < MIB or spec.vcpus < 1:
        raise InvalidInput(obj, f"memory {spec.memory} and vcpus {spec.vcpus} are too small", "Give at least 1MiB and 1.")
    for field, allowed in (("cpu_mode", (None, *CPU_MODES)), ("firmware", FIRMWARES), ("virt_type", VIRT_TYPES)):
        if getattr(spec, field) not in allowed:
            raise InvalidInput(
                obj, f"{field} {getattr(spec, field)!r} is not known", "Use one of " + ", ".join(filter(None, allowed)) + ".")
    macs = [interface.mac for interface in spec.interfaces]
    for interface in spec.interfaces:
        if interface.kind not in KINDS or not interface.source:
            raise InvalidInput(obj, f"interface {interface.mac} names no network or bridge", "Give exactly one of network and bridge.")
        if not _MAC_RE.fullmatch(interface.mac) or macs.count(interface.mac) > 1:
            raise InvalidInput(
                obj, f"the MAC address {interface.mac} is malformed, multicast or used twice", "Leave mac out to have it derived.")
    texts = [spec.name, spec.machine, spec.arch, spec.emulator, spec.title, spec.overlay_path, spec.seed_path]
    texts += [text for link in spec.overlay_chain for text in link] + [text for one in spec.interfaces for text in (one.source, one.model)]
    for text in texts:
        if text is not None and _UNPRINTABLE.search(text):
            raise InvalidInput(obj, f"{text!r} holds a character that XML cannot carry", "Remove that character.")
