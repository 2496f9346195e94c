# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What guests tell over libvirt: their addresses, their agents, their consoles."""

from __future__ import annotations

from .._policy.model import Address
from . import classify
from .libvirt_connection import libvirt
from .libvirt_domains import DomainCalls
from .reopening import reads

_SOURCES = {"lease": 0, "agent": 1, "arp": 2}


class GuestCalls(DomainCalls):
    """The part of the Hypervisor interface about what goes on in guests."""

    @reads
    def addresses(self, uuid, source):
        interfaces = self._interfaces(uuid, source)[0] or {}
        found = [
            Address(mac=interface.get("hwaddr") or "", address=entry["addr"], prefix=int(entry.get("prefix") or 0), source=source)
            for interface in interfaces.values() for entry in interface.get("addrs") or ()]
        if source == "arp" and self.is_local():
            found += self._neighbours(uuid)
        return tuple(dict.fromkeys(found))

    def _neighbours(self, uuid):
        """What the kernel itself tells of the guest: libvirt reads the first of its answers only, some fifty neighbours, and 9.0 not even that from a
        recent kernel, which puts the end of the table into the same answer."""
        domain = self.domain(uuid)
        if domain is None or domain.live_xml is None:
            return []
        # Loaded where a guest is asked for: compiling what only some modules need takes a tenth of a call that has nothing to do.
        from .._policy import domain_read
        from . import host_files
        known = host_files.neighbours()
        return [Address(mac, address, 0, "arp") for mac in domain_read.macs(domain.live_xml) for address in known.get(mac, ())]

    @reads
    def why_no_addresses(self, uuid, source):
        return self._interfaces(uuid, source)[1]

    def _interfaces(self, uuid, source):
        """(libvirt's answer, ""), (None, why) where there is none: no guest, no agent yet, or no such source for this guest."""
        handle = self._domain(uuid)
        if handle is None:
            return None, "it has gone"
        self._step()
        try:
            return handle.interfaceAddresses(_SOURCES[source], 0) or {}, ""
        except libvirt.libvirtError as error:
            if self._is_lost():
                raise self._error("read", "read the addresses of", f"domain {uuid}", error) from error
            return None, error.get_error_message()

    @reads
    def leases(self):
        found, obj = {}, f"leases of {self.uri}"
        # A daemon without networks has no driver for them.
        for network in self._find(
                classify.NO_SUPPORT, "read", obj, self._conn.listAllNetworks, libvirt.VIR_CONNECT_LIST_NETWORKS_ACTIVE) or ():
            self._step()
            try:
                leases = network.DHCPLeases()
            except libvirt.libvirtError as error:
                if self._is_lost():
                    raise self._error("read", "read", obj, error) from error
                continue
            found.update({(lease["mac"].lower(), lease["ipaddr"]): int(lease["expirytime"] or 0) for lease in leases})
        return found

    @reads
    def agent_answers(self, uuid):
        # An agent may know of no interface, and one that forbids this question is taken for none.
        return self._interfaces(uuid, "agent")[0] is not None

    # The bound is the same, however often it is set: a wait goes on over another connection.
    @reads
    def bound_agent(self, uuid, seconds):
        try:
            # No step of the work: a bound is taken back also where the work has to end.
            self._conn.lookupByUUIDString(uuid).agentSetResponseTimeout(seconds)
        except libvirt.libvirtError as error:
            if self._is_lost():
                raise self._error("read", "bound the agent of", f"domain {uuid}", error) from error

    def console_tail(self, path, length):
        from . import console_log
        return console_log.tail(path, length) if self.is_local() else None

    def removes_console_logs(self):
        from . import console_log
        return self.is_local() and console_log.removable()

    def delete_console_log(self, path):
        from . import console_log
        return self.is_local() and console_log.remove(path)
