# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the services ask of a hypervisor. The libvirt implementation and the test fake both keep to this.

Names of pools and volumes identify volumes; UUIDs identify domains. Sizes are bytes. Everything raises Kvm2Error; "gone already" is None on
a read and False on a delete, never an error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager


class Hypervisor(ABC):
    """One connection to one hypervisor."""

    uri = ""
    # Why a destructive step is done, for the line about it in the system log.
    why = ""

    @contextmanager
    def because(self, why):
        """Destructive steps inside give this reason in the system log; an empty one leaves the reason that holds already."""
        before, self.why = self.why, why or self.why
        try:
            yield
        finally:
            self.why = before

    @abstractmethod
    def close(self):
        """Close the connection, within some seconds whatever the peer does."""

    @abstractmethod
    def overlap(self, jobs, at_once, check_stop):
        """Call the functions, at most `at_once` of them at the same time and each from any thread: what each came to, in their order, as None or the
        Kvm2Error that it raised. check_stop() is called before each; what it raises is raised here."""

    # -- the host

    @abstractmethod
    def is_local(self):
        """Does this process run on the machine of the daemon? Told by the URI: it names no host."""

    @abstractmethod
    def host(self):
        """model.HostFacts of the machine."""

    @abstractmethod
    def domain_capabilities(self, virt_type, arch=None, machine=None):
        """The domain capabilities XML, or None where the host does not support that combination."""

    @abstractmethod
    def daemon_limits(self):
        """host_state.Limits of the daemon, or None where they cannot be told (not local, unreadable)."""

    # -- pools and volumes

    @abstractmethod
    def pools(self):
        """All pools, as model.Pool."""

    @abstractmethod
    def pool(self, name):
        """model.Pool or None."""

    @abstractmethod
    def refresh_pool(self, name):
        """Read the pool's folder again."""

    @abstractmethod
    def volumes(self, pool):
        """All volumes of an active pool, as model.Volume; one that vanishes meanwhile is left out."""

    @abstractmethod
    def volume(self, pool, name):
        """model.Volume or None."""

    @abstractmethod
    def create_volume(self, pool, xml):
        """Create a volume from its XML and return it as model.Volume. A full pool is a quota error and leaves nothing."""

    @abstractmethod
    def delete_volume(self, pool, name):
        """True when it was deleted, False when it was gone already."""

    @abstractmethod
    def backing_chain(self, path):
        """Paths of all files below an image file, for one that no pool lists; None where they cannot be told (not local, unreadable)."""

    @abstractmethod
    def resize_volume(self, pool, name, capacity):
        """Give a volume that no guest has open another capacity in bytes."""

    @abstractmethod
    def upload(self, pool, name, blocks, length, sparse=False):
        """Send exactly `length` bytes from the iterable `blocks` into a volume. A source that is longer or shorter, or raises, aborts the
        stream: never one byte more is sent, and a short one is never finished. sparse: zeros become holes, whose space is given back."""

    @abstractmethod
    def dig_holes(self, path):
        """Give the space of the zeros in a local file back to its filesystem; None when that was done, else why not."""

    @abstractmethod
    def download(self, pool, name, offset, length):
        """Iterate over blocks of bytes of a volume's file, `length` bytes from `offset`; fewer when the file ends before."""

    # -- domains

    @abstractmethod
    def domains(self):
        """All domains, running and defined, as model.Domain; one whose XML cannot be read says so in `unreadable`."""

    @abstractmethod
    def domain(self, uuid):
        """model.Domain or None."""

    @abstractmethod
    def domain_by_name(self, name):
        """model.Domain or None."""

    @abstractmethod
    def define(self, xml):
        """Define or redefine; returns the model.Domain. An unsupported configuration is a permanent error."""

    @abstractmethod
    def set_metadata(self, uuid, prefix, namespace, xml):
        """Set the metadata element of a namespace in the definition, the persistent and the live one; False when the domain is gone."""

    @abstractmethod
    def start(self, uuid):
        """Start a domain that is off; one that runs already is fine."""

    @abstractmethod
    def resume(self, uuid):
        """Let a paused or suspended guest go on."""

    @abstractmethod
    def shutdown(self, uuid):
        """Ask the guest to shut down (ACPI); False when it is off or gone already."""

    @abstractmethod
    def destroy(self, uuid):
        """Stop at once; False when it is off or gone already."""

    @abstractmethod
    def undefine(self, uuid):
        """Undefine with managed save, snapshot and checkpoint metadata, NVRAM and TPM state; False when it is gone already."""

    @abstractmethod
    def drop_managed_save(self, uuid):
        """Remove the memory of a saved guest, so that the next start boots; False when there is none or the domain is gone."""

    @abstractmethod
    def set_autostart(self, uuid, on):
        """Have the domain started together with the daemon, or not."""

    @abstractmethod
    def block_resize(self, uuid, path, capacity):
        """Grow the disk with that source path of a running guest."""

    @abstractmethod
    def addresses(self, uuid, source):
        """Addresses of a running guest, as model.Address. source: lease, agent or arp. Unknown yet is an empty tuple."""

    @abstractmethod
    def why_no_addresses(self, uuid, source):
        """Why libvirt cannot tell the addresses of a guest from that source, in its own words; empty where it can, also where it knows none."""

    @abstractmethod
    def leases(self):
        """{(MAC address in lower case, address): when it runs out, in seconds since the epoch of the DHCP server's machine, 0 for never} of the leases
        of all networks that have not run out. A network that cannot tell has none."""

    @abstractmethod
    def agent_answers(self, uuid):
        """Does the guest's agent answer?"""

    @abstractmethod
    def bound_agent(self, uuid, seconds):
        """From here on a running guest's agent is waited for so long at each question, where libvirt would wait for ever.

        The daemon keeps it, for all clients and after this connection. -2 takes it back, also where the work has to end."""

    @abstractmethod
    def console_tail(self, path, length):
        """(the last bytes, at most `length`, of a guest's console log at that path of the hypervisor; are they all of it), or None where it cannot
        be seen from here."""

    @abstractmethod
    def removes_console_logs(self):
        """Can this process remove the files in names.CONSOLE_LOGS? They are root's, on the machine of the daemon."""

    @abstractmethod
    def delete_console_log(self, path):
        """Remove a guest's console log, with what libvirt's log daemon has put aside of it; False where none was there or may be removed."""

    @abstractmethod
    def nwfilters(self):
        """Names of all network filters, None where the daemon has no driver for them."""

    # -- networks

    @abstractmethod
    def networks(self):
        """All networks, as model.Network."""
