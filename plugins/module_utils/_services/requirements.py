# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What instances need of their hypervisor, looked at before anything is made; all that is missing is said at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Mapping, Optional, Tuple

from .._host import local
from .._policy.errors import PERMANENT, Kvm2Error
from .._policy.model import HostFacts, Network
from .._policy.xml import parse

PREFERRED_MACHINE = {"x86_64": "q35"}


@dataclass(frozen=True)
class HostSide:
    """facts, networks, and per virt_type its domain capabilities as XML (None where the host has no such type).

    other: domain capabilities of (virt_type, machine) pairs that instances ask for.  bridges: names, None where they cannot be seen.
    """

    facts: HostFacts
    networks: Tuple[Network, ...]
    types: Mapping[str, Optional[str]]
    other: Mapping[Tuple[str, str], Optional[str]]
    bridges: Optional[Tuple[str, ...]]

    @property
    def arch(self):
        return self.facts.arch

    @property
    def default_machine(self):
        return PREFERRED_MACHINE.get(self.arch) if self.capabilities(self.choose_virt_type("auto"), None) else None

    def choose_virt_type(self, asked):
        if asked != "auto":
            return asked
        return "kvm" if self.types.get("kvm") else "qemu"

    def capabilities(self, virt_type, machine):
        """Domain capabilities as XML for a machine (None: the preferred one), or None where the host cannot run it."""
        if machine is None:
            return self.types.get(virt_type)
        return self.other.get((virt_type, machine))


def host_side(hypervisor, all_wanted):
    """The HostSide that the given Wanted need to be judged."""
    facts = hypervisor.host()
    preferred = PREFERRED_MACHINE.get(facts.arch)
    asked = {wanted.virt_type for wanted in all_wanted}
    types: Dict[str, Optional[str]] = {}
    for virt_type in ("kvm", "qemu"):
        if virt_type in asked or "auto" in asked:
            types[virt_type] = hypervisor.domain_capabilities(virt_type, facts.arch, preferred)
    side = HostSide(facts, hypervisor.networks(), types, {}, local.bridges() if hypervisor.is_local() else None)
    other = {}
    for wanted in all_wanted:
        if wanted.machine is not None:
            virt_type = side.choose_virt_type(wanted.virt_type)
            other[virt_type, wanted.machine] = hypervisor.domain_capabilities(virt_type, facts.arch, wanted.machine)
    return HostSide(facts, side.networks, types, other, side.bridges)


def check(side, all_wanted, uri):
    """Raise one permanent error that lists everything that the Wanted need and the host does not have."""
    problems = dict.fromkeys(problem for wanted in all_wanted for problem in _problems(side, wanted))
    if problems:
        hints = dict.fromkeys(problems_hint for _text, problems_hint in problems)
        raise Kvm2Error(
            PERMANENT, "prepare", f"hypervisor {uri}", "; ".join(text for text, _hint in problems), " ".join(hints))


def _problems(side, wanted):
    virt_type = side.choose_virt_type(wanted.virt_type)
    if side.types.get(virt_type) is None:
        yield f"it cannot run guests of virt_type {virt_type}", (
            "See virsh domcapabilities --virttype kvm and /dev/kvm, or set virt_type to qemu." if virt_type == "kvm" else "Install QEMU there.")
        return
    found = side.capabilities(virt_type, wanted.machine)
    if found is None:
        yield f"it has no machine {wanted.machine} for {virt_type} on {side.arch}", "See qemu-system-x86_64 -machine help; leave machine out for the default."
    else:
        tree = parse(found)
        if wanted.firmware == "efi" and "efi" not in {value.text for value in tree.iterfind("os/enum[@name='firmware']/value")}:
            yield "it has no EFI firmware", "Install ovmf, or set firmware to bios."
        modes = {mode.get("name") for mode in tree.iterfind("cpu/mode") if mode.get("supported") == "yes"}
        if wanted.cpu_mode is not None and wanted.cpu_mode not in modes:
            yield f"it has no cpu_mode {wanted.cpu_mode} for {virt_type} (there are: {', '.join(sorted(modes - {'custom'})) or 'none'})", "Leave cpu_mode out."
    yield from _interface_problems(side, wanted)


def _interface_problems(side, wanted):
    networks = {network.name: network for network in side.networks}
    for interface in wanted.interfaces:
        if interface.kind == "network":
            network = networks.get(interface.source)
            if network is None:
                known = ", ".join(sorted(networks)) or "none"
                yield f"there is no network {interface.source} (there are: {known})", "Define it (virsh net-define), or name another one."
            elif not network.active:
                yield f"network {interface.source} is not active", f"Start it: virsh net-start {interface.source}."
        elif side.bridges is not None and interface.source not in side.bridges:
            yield f"there is no bridge {interface.source} (there are: {', '.join(side.bridges) or 'none'})", "Make the bridge, or name another one."
