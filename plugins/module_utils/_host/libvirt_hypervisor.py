# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Hypervisor over libvirt."""

from __future__ import annotations

from .._policy.model import HostFacts
from . import convert, filesystem
from .hypervisor import Hypervisor
from .libvirt_connection import libvirt
from .libvirt_guests import GuestCalls
from .libvirt_storage import StorageCalls
from .reopening import reads, writes


class LibvirtHypervisor(StorageCalls, GuestCalls, Hypervisor):
    """One connection to one libvirt daemon. run_command, as AnsibleModule has it, is needed where backing chains are to be followed.

    journal: journal.Journal that is told of every destructive step, from whichever module it comes. step() is called before each call to the
    daemon, and may raise to end the work there. Everything else is as Connection takes it.
    """

    def __init__(self, *connection, run_command=None, journal=None, step=None, **more):
        super().__init__(*connection, **more)
        if step is not None:
            self._step = step
        self._run_command = run_command
        self._journal = journal

    def _noted(self, done, what):
        if done and self._journal is not None:
            self._journal.note(f"{what} on {self.uri}", self.why)
        return done

    def _called(self, uuid):
        handle = self._domain(uuid) if self._journal is not None else None
        return f"domain {uuid}" if handle is None else f"domain {handle.name()} ({uuid})"

    @reads
    def refresh_pool(self, name):
        found = self.pool(name) if self.is_local() else None
        if found is not None and found.active and found.path:
            # The daemon would wait for dead storage for ever, and so would its other clients for the pool.
            filesystem.statistics(found.path)
        super().refresh_pool(name)

    @writes
    def delete_volume(self, pool, name):
        return self._noted(super().delete_volume(pool, name), f"deleted volume {name} in pool {pool}")

    @writes
    def destroy(self, uuid):
        called = self._called(uuid)
        return self._noted(super().destroy(uuid), f"destroyed {called}")

    @writes
    def drop_managed_save(self, uuid):
        called = self._called(uuid)
        return self._noted(super().drop_managed_save(uuid), f"dropped the managed save of {called}")

    @writes
    def undefine(self, uuid):
        called = self._called(uuid)
        return self._noted(super().undefine(uuid), f"undefined {called}")

    def backing_chain(self, path):
        if self._run_command is None or not self.is_local():
            return None
        from . import qemu_img
        return qemu_img.backing_chain(path)

    def dig_holes(self, path):
        if self._run_command is None or not self.is_local():
            return "its file is on another machine"
        from . import holes
        return holes.dig(self._run_command, path)

    @reads
    def host(self):
        obj = f"hypervisor {self.uri}"
        info = self._call("read", "read", obj, self._conn.getInfo)
        return HostFacts(
            hostname=self._call("read", "read", obj, self._conn.getHostname), arch=info[0], cpus=info[2], memory=info[1] * 1024 ** 2,
            libvirt_version=self._call("read", "read", obj, self._conn.getLibVersion),
            hypervisor_version=self._call("read", "read", obj, self._conn.getVersion),
            capabilities_xml=self._call("read", "read", obj, self._conn.getCapabilities))

    def daemon_limits(self):
        from . import daemon_limits
        return daemon_limits.limits(self._run_command) if self.is_local() else None

    @reads
    def domain_capabilities(self, virt_type, arch=None, machine=None):
        try:
            return self._conn.getDomainCapabilities(None, arch, machine, virt_type, 0)
        except libvirt.libvirtError as error:
            if not self._is_lost():
                return None
            raise self._error("read", "read", "domain capabilities", error) from error

    @reads
    def networks(self):
        handles = self._call("read", "list", f"networks of {self.uri}", self._conn.listAllNetworks, 0)
        return tuple(
            convert.network(self._ask(handle, handle.XMLDesc), bool(self._ask(handle, handle.isActive)), bool(self._ask(handle, handle.autostart)))
            for handle in handles)

    def _ask(self, network, question):
        return self._call("read", "read", f"network {network.name()}", question)
