# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stateful hypervisor in memory that behaves as libvirt was measured to, quirks included."""

from __future__ import annotations

from urllib.parse import urlsplit
from xml.sax.saxutils import escape

from ansible_collections.egress.kvm2.plugins.module_utils._host.hypervisor import Hypervisor
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error
from ansible_collections.egress.kvm2.plugins.module_utils._policy.host_state import Limits
from ansible_collections.egress.kvm2.plugins.module_utils._policy.model import HostFacts, Network

from .calls import Recorder, recorded
from .guests import Guests
from .machine import Machine
from .storage import Storage


class FakeHypervisor(Recorder, Storage, Guests, Hypervisor):
    """One connection to a Machine. Without one it makes its own, with a pool `default` and a network `default`."""

    def __init__(self, machine=None, uri="qemu+ssh://root@hv1/system"):
        super().__init__()
        if machine is None:
            machine = Machine()
            machine.add_pool()
            machine.add_network()
        self.machine = machine
        self.uri = uri
        self.closed = False

    def close(self):
        self.closed = True

    def overlap(self, jobs, at_once, check_stop):
        """One after the other, the last one first where several may go on at the same time: nothing may depend on the order."""
        outcome = [None] * len(jobs)
        for number in range(len(jobs)) if at_once == 1 else reversed(range(len(jobs))):
            check_stop()
            try:
                jobs[number]()
            except Kvm2Error as error:
                outcome[number] = error
        return outcome

    def is_local(self):
        return not urlsplit(self.uri).hostname

    @recorded
    def host(self):
        machine = self.machine
        return HostFacts("hv1", machine.arch, machine.cpus, machine.memory, 11003000, 10000013, self._capabilities())

    def _capabilities(self):
        machine = self.machine
        names = "".join(
            f"<machine canonical='{escape(full)}' maxCpus='255'>{escape(alias)}</machine><machine maxCpus='255'>{escape(full)}</machine>"
            for alias, full in machine.machines.items())
        domains = "".join(f"<domain type='{kind}'/>" for kind in machine.virt_types)
        return (
            f"<capabilities><host><cpu><arch>{machine.arch}</arch></cpu><secmodel><model>dac</model><doi>0</doi>"
            f"<baselabel type='kvm'>+64055:+64055</baselabel><baselabel type='qemu'>+64055:+64055</baselabel></secmodel></host><guest><os_type>hvm</os_type>"
            f"<arch name='{machine.arch}'><wordsize>64</wordsize><emulator>/usr/bin/qemu-system-{machine.arch}</emulator>"
            f"{names}{domains}</arch></guest></capabilities>")

    @recorded
    def daemon_limits(self):
        return Limits("libvirtd", "virt-admin", "/etc/libvirt/libvirtd.conf", 5000, 1, 20, 0) if self.is_local() else None

    @recorded
    def domain_capabilities(self, virt_type, arch=None, machine=None):
        known = self.machine
        machine = known.machines.get(machine or "pc", machine)
        if virt_type not in known.virt_types or (arch or known.arch) != known.arch or machine not in known.machines.values():
            return None
        firmwares = "".join(f"<value>{name}</value>" for name in known.firmwares)
        modes = "".join(
            f"<mode name='{mode}' supported='{'yes' if mode in known.cpu_modes else 'no'}'/>"
            for mode in ("host-passthrough", "maximum", "host-model", "custom"))
        return (
            f"<domainCapabilities><path>/usr/bin/qemu-system-{known.arch}</path><domain>{virt_type}</domain><machine>{machine}</machine>"
            f"<arch>{known.arch}</arch><vcpu max='255'/><os supported='yes'><enum name='firmware'>{firmwares}</enum>"
            f"<loader supported='{'yes' if known.firmwares else 'no'}'/></os><cpu>{modes}</cpu></domainCapabilities>")

    @recorded
    def networks(self):
        return tuple(
            Network(network.name, network.uuid, network.active, network.bridge, True) for network in self.machine.networks.values())
