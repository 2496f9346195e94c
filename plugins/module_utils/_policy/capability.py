# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a hypervisor can run, told from its capabilities before anything is defined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import FrozenSet, Mapping, Optional, Tuple

from . import network_checks
from .checks import FAIL, OK, SKIPPED, WARN, Check
from .domain_spec import effective_cpu_mode
from .domain_tuning import canonical_cpus
from .units import format_size
from .xml import parse

PREFERRED_MACHINE = {"x86_64": "q35"}
_FIRMWARE_HINT = (
    "Install it: apt-get install ovmf (Debian, Ubuntu; for aarch64 qemu-efi-aarch64) or dnf install edk2-ovmf (Fedora, RHEL); or use firmware "
    "bios.")


@dataclass(frozen=True)
class Require:
    """What is asked for; None and empty ask for nothing. memory in bytes; virt_type is auto, kvm or qemu; vcpus is that of the largest
    guest, vcpus_total that of all. cpu_fallback: the nearest mode does where the one asked for cannot be. nwfilters: names. vlan_networks,
    vlan_bridges: those on which guests have a VLAN. cpu_pin: numbers of processors."""

    virt_type: Optional[str] = None
    machine: Optional[str] = None
    firmware: Optional[str] = None
    cpu_mode: Optional[str] = None
    arch: Optional[str] = None
    networks: Tuple[str, ...] = ()
    bridges: Tuple[str, ...] = ()
    memory: Optional[int] = None
    vcpus: Optional[int] = None
    vcpus_total: Optional[int] = None
    cpu_fallback: bool = False
    nwfilters: Tuple[str, ...] = ()
    vlan_networks: Tuple[str, ...] = ()
    vlan_bridges: Tuple[str, ...] = ()
    cpu_pin: FrozenSet[int] = frozenset()


@dataclass(frozen=True)
class DomainCapabilities:
    """What guests of one kind can have. vcpus None: not told."""

    firmwares: FrozenSet[str]
    cpu_modes: FrozenSet[str]
    vcpus: Optional[int]


def read_domain_capabilities(xml):
    """DomainCapabilities from libvirt's XML."""
    tree = parse(xml)
    top = tree.find("vcpu")
    return DomainCapabilities(
        frozenset(value.text for value in tree.iterfind("os/enum[@name='firmware']/value")),
        frozenset(mode.get("name") for mode in tree.iterfind("cpu/mode") if mode.get("supported") == "yes"),
        int(top.get("max")) if top is not None and top.get("max") else None)


def read_guests(xml):
    """{arch: (machines, virt types)} that a host's capabilities XML offers for full virtualisation, aliases of machines included."""
    found: Mapping = {}
    for guest in parse(xml).iterfind("guest"):
        if guest.findtext("os_type") != "hvm":
            continue
        for arch in guest.iterfind("arch"):
            machines = {text for machine in arch.iter("machine") for text in (machine.text, machine.get("canonical")) if text}
            found[arch.get("name")] = (frozenset(machines), frozenset(domain.get("type") for domain in arch.iterfind("domain")))
    return found


def default_machine(facts):
    """The machine type that a new guest gets where none is asked for; None leaves it to libvirt."""
    preferred = PREFERRED_MACHINE.get(facts.arch)
    return preferred if preferred in read_guests(facts.capabilities_xml).get(facts.arch, (frozenset(), None))[0] else None


def host_processors(facts):
    """The numbers of the host's processors; empty where libvirt does not list them."""
    return frozenset(int(cpu.get("id")) for cpu in parse(facts.capabilities_xml).iterfind("host/topology/cells/cell/cpus/cpu"))


def checks(facts, networks, bridges, domain_capabilities, require, nwfilters=None):
    """The Checks for a Require, all problems at once.

    facts: model.HostFacts.  networks: of model.Network.  bridges: {name: is it up}, None where they cannot be seen.  nwfilters: names, None
    where the daemon has none at all.
    domain_capabilities: (virt_type, arch, machine) → XML, or None where the host has no such guests.
    """
    return (
        *_guest_checks(facts, domain_capabilities, require), *network_checks.networks(networks, require.networks),
        *network_checks.bridges(bridges, require.bridges), *network_checks.vlans(facts.libvirt_version, networks, require.vlan_networks, require.vlan_bridges),
        *network_checks.nwfilters(nwfilters, require.nwfilters), *_memory_checks(facts, require.memory), *_pin_checks(facts, require.cpu_pin))


def _guest_checks(facts, domain_capabilities, require):
    guests = read_guests(facts.capabilities_xml)
    arch = require.arch or facts.arch
    machines, _types = guests.get(arch, (frozenset(), frozenset()))
    wanted = (require.virt_type, require.machine, require.firmware, require.cpu_mode, require.vcpus, require.arch)
    if all(value is None for value in wanted):
        return
    if arch not in guests:
        known = ", ".join(sorted(guests)) or "none"
        yield Check(
            f"arch {arch}", FAIL, f"The host runs no guests of {arch} (there are: {known}).",
            f"Install the QEMU for it, such as qemu-system-{arch.replace('x86_64', 'x86')}, or name another arch.")
        yield from _skipped(require, f"there are no guests of {arch}")
        return
    if require.arch is not None:
        yield Check(f"arch {arch}", OK, f"The host runs guests of {arch}.")
    default = PREFERRED_MACHINE.get(arch) if PREFERRED_MACHINE.get(arch) in machines else None
    machine = require.machine or default
    if require.machine is not None and require.machine not in machines:
        yield Check(
            f"machine {require.machine}", FAIL, f"The host has no machine {require.machine} for {arch}.",
            f"Leave machine out, or see: virsh capabilities, or qemu-system-{arch} -machine help.")
        machine = default
    elif require.machine is not None:
        yield Check(f"machine {machine}", OK, f"The host has the machine {machine} for {arch}.")
    chosen, found, check = _virt_type(domain_capabilities, require.virt_type or "auto", arch, machine)
    if require.virt_type is not None or check.status == FAIL:
        yield check
    if found is None:
        yield from _skipped(require, f"there are no guests of virt_type {chosen}")
        return
    yield from _feature_checks(read_domain_capabilities(found), facts, chosen, require)


def _virt_type(domain_capabilities, asked, arch, machine):
    """(virt_type, its domain capabilities XML or None, Check)."""
    name = f"virt_type {asked}"
    for kind in ("kvm", "qemu") if asked == "auto" else (asked,):
        found = domain_capabilities(kind, arch, machine)
        if found is not None:
            if kind == "qemu" and asked == "auto":
                return kind, found, Check(
                    name, WARN, "The host has no working KVM: guests are emulated, which is slow.",
                    "Enable virtualisation and load the kvm module, or ask for virt_type qemu to say that this is meant.")
            return kind, found, Check(name, OK, f"Guests run with {kind}.")
    hint = "Check that /dev/kvm is there and that QEMU may open it, or use virt_type qemu." if asked == "kvm" else "Install QEMU."
    return asked, None, Check(name, FAIL, f"The host runs no guests of virt_type {asked} for {arch}.", hint)


def _skipped(require, why):
    for option in ("firmware", "cpu_mode", "vcpus"):
        value = getattr(require, option)
        if value is not None:
            yield Check(f"{option} {value}", SKIPPED, f"Not looked at, since {why}.")


def _feature_checks(found, facts, virt_type, require):
    if require.firmware is not None:
        name = f"firmware {require.firmware}"
        if require.firmware == "bios" or require.firmware in found.firmwares:
            yield Check(name, OK, f"Guests can start with {require.firmware}.")
        else:
            yield Check(
                name, FAIL, f"The host has no firmware for {require.firmware}.", _FIRMWARE_HINT)
    if require.cpu_mode is not None:
        mode = effective_cpu_mode(require.cpu_mode, virt_type) if require.cpu_fallback else require.cpu_mode
        name = f"cpu_mode {mode}"
        if mode in found.cpu_modes:
            yield Check(name, OK, f"Guests of virt_type {virt_type} can have cpu_mode {mode}.")
        else:
            known = ", ".join(sorted(found.cpu_modes - {"custom"})) or "none"
            yield Check(
                name, FAIL, f"Guests of virt_type {virt_type} cannot have cpu_mode {mode}.",
                f"Leave cpu_mode out, or use one of: {known}.")
    if require.vcpus is not None:
        name = f"vcpus {require.vcpus}"
        if found.vcpus is not None and require.vcpus > found.vcpus:
            yield Check(name, FAIL, f"A guest can have {found.vcpus} processors at most.", "Ask for fewer vcpus.")
        elif require.vcpus > facts.cpus:
            yield Check(
                name, WARN, f"The host has {facts.cpus} processors, fewer than a guest of {require.vcpus}.",
                "Guests with fewer vcpus run better.")
        else:
            yield Check(name, OK, f"The host has {facts.cpus} processors.")


def _memory_checks(facts, memory):
    if memory is None:
        return
    have = format_size(facts.memory)
    if memory > facts.memory:
        yield Check(
            "memory", FAIL, f"{format_size(memory)} are needed and the host has {have}.", "Use less memory, or another hypervisor.")
    else:
        yield Check("memory", OK, f"{format_size(memory)} are needed and the host has {have}.")


def _pin_checks(facts, wanted):
    there = host_processors(facts)
    if there and wanted - there:
        missing, present = (canonical_cpus(",".join(str(number) for number in numbers)) for numbers in (wanted - there, there))
        yield Check(
            "cpu_tuning.pin", FAIL, f"The host has no processor {missing} (there are: {present}).",
            "Pin to processors that are there: virsh capabilities.")
