# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the collection knows of a hypervisor's objects: plain frozen values, no libvirt in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

# Domain states, as libvirt's virDomainState numbers them.
STATES = ("nostate", "running", "blocked", "paused", "shutdown", "shutoff", "crashed", "pmsuspended")
FILE_POOLS = ("dir", "fs", "netfs")


@dataclass(frozen=True)
class Node:
    """A folder or device. mode: permission bits.  acl: does it carry an access list, which the mode alone does not tell.  label: SELinux's."""

    path: str
    uid: int
    gid: int
    mode: int
    acl: bool = False
    label: Optional[str] = None

    def allows(self, user, bit):
        """May the user (a User) read (4), write (2), enter or run (1) it, by its mode?"""
        if user.uid == 0:
            return True
        if user.uid == self.uid:
            return bool(self.mode >> 6 & bit)
        if self.gid == user.gid or self.gid in user.groups:
            return bool(self.mode >> 3 & bit)
        return bool(self.mode & bit)


@dataclass(frozen=True)
class Pool:
    """A storage pool. Sizes in bytes, as libvirt reports them (available is the filesystem's f_bfree). folder: owner and mode of its path, None
    where libvirt tells none."""

    name: str
    uuid: str
    type: str
    active: bool
    path: Optional[str] = None
    capacity: int = 0
    allocation: int = 0
    available: int = 0
    autostart: bool = False
    folder: Optional[Node] = None


@dataclass(frozen=True)
class Volume:
    """A storage volume. Sizes in bytes, mtime in seconds since the epoch on the pool's clock (None where libvirt gives none).

    unreadable says why nothing but its name and path is known.
    """

    pool: str
    name: str
    path: str
    type: str = "file"
    format: Optional[str] = None
    capacity: int = 0
    allocation: int = 0
    physical: int = 0
    mtime: Optional[float] = None
    backing_path: Optional[str] = None
    backing_format: Optional[str] = None
    unreadable: Optional[str] = None


@dataclass(frozen=True)
class Domain:
    """A domain. xml is the persistent (inactive) definition, live_xml that of the running guest, saved_xml that of the guest in a managed save,
    which a start lets go on; each is None where there is none. snapshot_xmls are the <domainsnapshot> documents of its snapshots."""

    name: str
    uuid: str
    state: str
    reason: str = ""
    active: bool = False
    persistent: bool = True
    autostart: bool = False
    managed_save: bool = False
    snapshots: int = 0
    checkpoints: int = 0
    xml: Optional[str] = None
    live_xml: Optional[str] = None
    unreadable: Optional[str] = None
    saved_xml: Optional[str] = None
    snapshot_xmls: Tuple[str, ...] = ()

    @property
    def guest_xml(self):
        """The definition that the guest itself goes by, running or saved; None for one that is off."""
        return self.live_xml if self.live_xml is not None else self.saved_xml

    @property
    def any_xml(self):
        return self.xml if self.xml is not None else self.live_xml

    @property
    def xmls(self):
        return tuple(text for text in (self.xml, self.live_xml, self.saved_xml) if text is not None)


@dataclass(frozen=True)
class Network:
    """vlans_since: the libvirt version, as in HostFacts, from which on it takes guests into a VLAN; None for never."""

    name: str
    uuid: str
    active: bool
    bridge: Optional[str] = None
    autostart: bool = False
    vlans_since: Optional[int] = None


@dataclass(frozen=True)
class Address:
    """An address of a guest's interface. source: lease, agent or arp."""

    mac: str
    address: str
    prefix: int
    source: str


@dataclass(frozen=True)
class HostFacts:
    """memory in bytes; versions as libvirt's integers (major * 1000000 + minor * 1000 + release)."""

    hostname: str
    arch: str
    cpus: int
    memory: int
    libvirt_version: int
    hypervisor_version: int
    capabilities_xml: str = ""


@dataclass(frozen=True)
class Inventory:
    """Everything that could hold a reference to a file: read before any decision to delete.

    unreadable names what could not be read, with the cause; inactive_pools and unrefreshed are names of pools.
    """

    pools: Tuple[Pool, ...]
    volumes: Tuple[Volume, ...]
    domains: Tuple[Domain, ...]
    unreadable: Tuple[Tuple[str, str], ...] = ()
    inactive_pools: Tuple[str, ...] = ()
    unrefreshed: Tuple[Tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Filesystem:
    """Figures of the filesystem below a pool, sizes in bytes.

    available and inodes_available are what an ordinary user can still take; free also counts what is kept for root. inodes is None where the
    filesystem does not count them.
    """

    capacity: int
    free: int
    available: int
    inodes: Optional[int]
    inodes_available: Optional[int]
