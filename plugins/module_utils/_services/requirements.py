# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What instances need of their hypervisor, looked at before anything is made; all that is missing is said at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import FrozenSet, Optional, Tuple

from .._host import host_files
from .._policy import capability, network_checks
from .._policy.checks import FAIL, Check
from .._policy.domain_tuning import parse_cpus
from .._policy.errors import Kvm2Error, kind_of_several
from .._policy.model import HostFacts


@dataclass(frozen=True)
class HostSide:
    """virt_types: those that really work here.  default_machine: None where libvirt's own default is best.  checks: of everything asked.
    each: those of each Require, in order."""

    facts: HostFacts
    virt_types: FrozenSet[str]
    default_machine: Optional[str]
    checks: Tuple[Check, ...]
    each: Tuple[Tuple[Check, ...], ...]

    @property
    def arch(self):
        return self.facts.arch

    def choose_virt_type(self, asked):
        if asked != "auto":
            return asked
        return "kvm" if "kvm" in self.virt_types else "qemu"


def look(hypervisor, requires):
    """The HostSide of a hypervisor with its checks for each capability.Require, every check once."""
    facts, networks = hypervisor.host(), hypervisor.networks()
    bridges = host_files.bridges() if hypervisor.is_local() else None
    nwfilters = hypervisor.nwfilters() if any(require.nwfilters for require in requires) else None
    known = {}

    def capabilities(virt_type, arch, machine):
        asked = (virt_type, arch, machine)
        if asked not in known:
            # libvirt looks into QEMU for this, so it is asked once for all instances.
            known[asked] = hypervisor.domain_capabilities(*asked)
        return known[asked]

    each = [capability.checks(facts, networks, bridges, capabilities, require, nwfilters) for require in requires]
    if hypervisor.is_local():
        each = [
            (*found, *network_checks.vlans_kept_apart(networks, require.vlan_networks, require.vlan_bridges, host_files.vlan_filtering()))
            if require.vlan_networks or require.vlan_bridges else found for require, found in zip(requires, each)]
    machine = capability.default_machine(facts)
    wanted = {require.virt_type for require in requires}
    types = frozenset(
        virt_type for virt_type in ("kvm", "qemu")
        if (virt_type in wanted or "auto" in wanted) and capabilities(virt_type, facts.arch, machine) is not None)
    return HostSide(facts, types, machine, tuple(dict.fromkeys(check for found in each for check in found)), tuple(each))


def require_of(wanted):
    """What a Wanted instance needs by itself, as a capability.Require; what all of them need together is the pool check's."""
    def sources(kind, tagged=False):
        return tuple(dict.fromkeys(
            interface.source for interface in wanted.interfaces if interface.kind == kind and (interface.vlan or not tagged)))
    return capability.Require(
        virt_type=wanted.virt_type, machine=wanted.machine, firmware=wanted.firmware, cpu_mode=wanted.cpu_mode, cpu_fallback=True, vcpus=wanted.vcpus,
        memory=wanted.memory, networks=sources("network"), bridges=sources("bridge"),
        nwfilters=tuple(dict.fromkeys(interface.nwfilter for interface in wanted.interfaces if interface.nwfilter)),
        vlan_networks=sources("network", tagged=True), vlan_bridges=sources("bridge", tagged=True),
        cpu_pin=parse_cpus(wanted.devices["cpu_pin"] or "") or frozenset())


def refuse_failed(checks, act, obj):
    """Raise one error that lists all failed checks, if there are any."""
    error = error_of(checks, act, obj)
    if error is not None:
        raise error


def error_of(checks, act, obj):
    """One error that lists all failed checks; None where there are none."""
    failed = [check for check in checks if check.status == FAIL]
    if not failed:
        return None
    return Kvm2Error(
        kind_of_several(check.kind for check in failed), act, obj, " ".join(check.message for check in failed),
        " ".join(dict.fromkeys(check.hint for check in failed if check.hint)))


def fail_all(host):
    """Is there a failed check that all the Requires have?"""
    return any(check.status == FAIL and all(check in found for found in host.each) for check in host.checks)
