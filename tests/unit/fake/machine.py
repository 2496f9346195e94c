# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state behind the fake: one machine with its files, pools, domains and networks. Several FakeHypervisor may be connected to it.

The methods here are what a test does beside libvirt: put files, let time pass, let a guest write or another tool define a domain.
"""

from __future__ import annotations

import copy
import posixpath
import uuid
from dataclasses import dataclass, field
from typing import Optional

from . import kept_xml, qcow2_bytes

GIB = 1024 ** 3
ISO_MAGIC_AT = 32769


@dataclass
class File:
    """data holds the first bytes, the rest up to size are zeros; allocated is what the file takes from the filesystem."""

    data: bytearray
    size: int
    mtime: float
    allocated: int
    target: Optional[str] = None
    directory: bool = False

    def read(self, offset, length):
        length = max(0, min(length, self.size - offset))
        part = bytes(self.data[offset:offset + length])
        return part + b"\0" * (length - len(part))

    def write(self, offset, block):
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset:offset + len(block)] = block
        self.size = max(self.size, len(self.data))
        self.allocated = max(self.allocated, len(self.data))

    @property
    def format(self):
        """As libvirt tells it from the content."""
        if qcow2_bytes.is_image(self.data):
            return "qcow2"
        return "iso" if self.data[ISO_MAGIC_AT:ISO_MAGIC_AT + 5] == b"CD001" else "raw"

    @property
    def capacity(self):
        return qcow2_bytes.virtual_size(self.data) if self.format == "qcow2" else self.size

    @property
    def backing(self):
        return qcow2_bytes.backing(self.data) if self.format == "qcow2" else (None, None)


@dataclass
class PoolState:
    """known are the names that libvirt lists: a file put there beside it is among them after a refresh only."""

    name: str
    path: Optional[str]
    type: str
    active: bool
    size: int
    autostart: bool
    uuid: str
    known: set = field(default_factory=set)
    available: int = 0


@dataclass
class Guest:
    """How a domain's guest behaves. addresses: texts like 192.168.122.10; asked `polls` times before it has them.

    stops: "at once", "never", or after how many reads of its state.  agent: (interface's MAC or None for its first one, address) of what its agent
    reports, None where it has no agent.  arp: the same of the neighbour table.  unreadable: {source: why libvirt cannot tell of it}.
    """

    addresses: tuple = ()
    polls: int = 0
    stops: object = "at once"
    writes: bool = True
    agent: Optional[tuple] = None
    arp: tuple = ()
    unreadable: dict = field(default_factory=dict)


@dataclass
class DomainState:
    """config and live are XML trees as text; open_files are what the running guest has open, also when they were deleted since."""

    uuid: str
    name: str
    config: Optional[str] = None
    live: Optional[str] = None
    state: str = "shutoff"
    reason: str = ""
    autostart: bool = False
    managed_save: bool = False
    saved_files: tuple = ()
    saved: Optional[str] = None
    snapshots: int = 0
    checkpoints: int = 0
    unreadable: Optional[str] = None
    guest: Guest = field(default_factory=Guest)
    stopping: Optional[int] = None
    asked: int = 0
    number: int = 0
    open_files: dict = field(default_factory=dict)

    @property
    def active(self):
        return self.live is not None


@dataclass
class NetworkState:
    name: str
    active: bool
    bridge: Optional[str]
    uuid: str


class Machine:
    """now: seconds since the epoch, moved by the test alone. guest: how the guests of domains defined from now on behave."""

    def __init__(self, now=1_800_000_000.0, arch="x86_64", cpus=8, memory=16 * GIB):
        self.now = now
        self.arch, self.cpus, self.memory = arch, cpus, memory
        self.virt_types = ["qemu"]
        self.machines = {"q35": "pc-q35-10.0", "pc": "pc-i440fx-10.0"}
        self.firmwares = ["efi"]
        self.cpu_modes = ["maximum", "host-model", "custom"]
        self.files, self.pools, self.domains, self.networks, self.bridges = {}, {}, {}, {}, set()
        self.guest = Guest()
        self.started = 0
        # {(MAC address, address): when it runs out} of leases, for guests whose addresses are leases that can be renewed.
        self.leases = {}
        # {path: bytes} of consoles' logs, which are no files of a pool.
        self.consoles = {}
        self.nwfilters = ("clean-traffic", "no-mac-spoofing")

    def copy(self):
        return copy.deepcopy(self)

    # -- time and guests

    def advance(self, seconds):
        self.now += seconds

    def domain_state(self, name):
        """The DomainState of that name or UUID; KeyError where there is none."""
        for state in self.domains.values():
            if name in (state.name, state.uuid):
                return state
        raise KeyError(name)

    def guest_writes(self, name):
        """The guest writes to each of its writable disks."""
        for file, writable in self.domain_state(name).open_files.values():
            if writable:
                self._write_into(file)

    def _write_into(self, file):
        file.mtime = self.now
        if file.format == "qcow2":
            qcow2_bytes.write(file.data)
            file.size = max(file.size, len(file.data))
            file.allocated = max(file.allocated, len(file.data))

    def is_locked(self, file):
        """Has a running guest opened this File for writing? QEMU locks it then."""
        return any(file is held for state in self.domains.values() for held, writable in state.open_files.values() if writable)

    def pause(self, name, reason="user"):
        state = self.domain_state(name)
        state.state, state.reason = "paused", reason

    def save(self, name):
        """A managed save, as `virsh managedsave` makes one."""
        state = self.domain_state(name)
        state.managed_save, state.saved_files, state.saved = True, kept_xml.sources(state.live, self), state.live
        self.power_off(state, "saved")

    def power_off(self, state, reason="shutdown"):
        """The guest ends; a transient domain is gone with it."""
        state.live, state.state, state.reason = None, "shutoff", reason
        state.stopping, state.asked, state.open_files = None, 0, {}
        if state.config is None:
            self.domains.pop(state.uuid, None)

    # -- files

    def realpath(self, path):
        path = posixpath.normpath(path)
        seen = set()
        while path in self.files and self.files[path].target is not None and path not in seen:
            seen.add(path)
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), self.files[path].target))
        return path

    def file(self, path):
        """The File at a path, symlinks followed, or None."""
        return self.files.get(self.realpath(path))

    def put_file(self, path, data=b"", size=None, age=0):
        """A file beside libvirt. age in seconds; size in bytes where it ends in a hole."""
        file = File(bytearray(data), max(size or 0, len(data)), self.now - age, len(data))
        self.files[posixpath.normpath(path)] = file
        return file

    def put_image(self, path, virtual_size=GIB, backing_path=None, backing_format=None, age=0, written=False):
        """A qcow2 file beside libvirt, as qemu-img would make it."""
        data = qcow2_bytes.image(virtual_size, backing_path, backing_format)
        if written:
            qcow2_bytes.write(data)
        return self.put_file(path, data, age=age)

    def put_symlink(self, path, target):
        self.files[posixpath.normpath(path)] = File(bytearray(), 0, self.now, 0, target=target)

    def put_directory(self, path):
        self.files[posixpath.normpath(path)] = File(bytearray(), 4096, self.now, 4096, directory=True)

    def remove_file(self, path):
        del self.files[posixpath.normpath(path)]

    def make_old(self, path, seconds):
        """Move a file's modification time into the past."""
        self.file(path).mtime -= seconds

    # -- pools and networks

    def add_pool(self, name="default", path="/var/lib/libvirt/images", size=100 * GIB, kind="dir", active=True, autostart=True):
        pool = PoolState(name, path, kind, active, size, autostart, str(uuid.uuid5(uuid.NAMESPACE_OID, f"pool/{name}")))
        self.pools[name] = pool
        if active:
            self.refresh(pool)
        return pool

    def in_folder(self, folder):
        folder = posixpath.normpath(folder)
        return {posixpath.basename(path): file for path, file in self.files.items() if posixpath.dirname(path) == folder}

    def refresh(self, pool):
        pool.known = set(self.in_folder(pool.path)) if pool.path else set()
        pool.available = self.free(pool)

    def free(self, pool):
        """What the filesystem below a pool has left now, whatever libvirt remembers."""
        return pool.size - sum(file.allocated for file in self.in_folder(pool.path).values()) if pool.path else 0

    def add_network(self, name="default", active=True, bridge="virbr0"):
        self.networks[name] = NetworkState(name, active, bridge, str(uuid.uuid5(uuid.NAMESPACE_OID, f"network/{name}")))
        if bridge and active:
            self.bridges.add(bridge)
