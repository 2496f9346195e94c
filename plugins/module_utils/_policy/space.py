# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room in a pool: what guests can really use, what is spoken for, and how each figure was got."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional

FILESYSTEM, LIBVIRT = "filesystem", "libvirt"


@dataclass(frozen=True)
class Space:
    """All sizes in bytes.

    available: what guests can use. From the filesystem it is what an ordinary user can still fill; libvirt's own figure counts blocks that
    the filesystem keeps for root too, so there the reserve is taken off already.  growth: what the overlays in the pool may still grow by.
    growth_beside: what else may grow on the same filesystem.  needed: what is about to be made.  later: what that may grow by.
    reserve: what has to stay free.  warn_reserve: what should.  used: what is taken now.  inodes_*: None where they cannot be told.
    sources: how each figure was got.
    """

    pool: str
    path: str
    capacity: int
    used: int
    available: int
    available_source: str
    growth: int
    needed: int
    reserve: int
    growth_beside: int = 0
    later: int = 0
    warn_reserve: int = 0
    inodes: Optional[int] = None
    inodes_available: Optional[int] = None
    inodes_needed: int = 0
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def room(self):
        """What may still be taken, the reserve kept; negative where less than the reserve is free."""
        return self.available if self.available_source == LIBVIRT else self.available - self.reserve

    @property
    def to_come(self):
        """What may be written beyond what is needed now."""
        return self.growth + self.growth_beside + self.later

    @property
    def usable(self):
        """What the pool holds at most, without what is kept for root."""
        return self.used + max(0, self.available)

    @property
    def overcommit(self):
        """What everything would take when written full, as a share of what the pool can hold."""
        return (self.used + self.to_come + self.needed) / self.usable if self.usable else 0.0

    def as_dict(self):
        return {
            "pool": self.pool, "path": self.path, "capacity": self.capacity, "used": self.used, "available": self.available,
            "available_source": self.available_source, "growth": self.growth, "growth_beside": self.growth_beside, "needed": self.needed,
            "later": self.later, "reserve": self.reserve, "warn_reserve": self.warn_reserve, "room": self.room,
            "overcommit": round(self.overcommit, 3), "inodes_available": self.inodes_available, "inodes_needed": self.inodes_needed,
            "sources": dict(self.sources)}


def measure(pool, volumes, needed, reserve, warn_reserve=("bytes", 0), filesystem=None, growth_beside=0, refreshed=True):
    """The Space of a model.Pool with its volumes.

    needed: need.Needed.  reserve, warn_reserve: ("bytes", n) or ("percent", p of the capacity).  filesystem: a Filesystem, None where it
    cannot be seen.  growth_beside: bytes that disks outside the pool may grow by on its filesystem.  refreshed: was the pool read afresh?
    """
    seen = filesystem is not None
    capacity = filesystem.capacity if seen else pool.capacity
    kept, wished = _amount(reserve, capacity), _amount(warn_reserve, capacity)
    by_libvirt = "libvirt's figure of the pool, " + ("read afresh" if refreshed else "as of its last refresh")
    sources = {
        "capacity": "size of the filesystem" if seen else by_libvirt,
        "used": "size of the filesystem without its free blocks" if seen else by_libvirt,
        "available": (
            f"free blocks that the filesystem at {pool.path} gives to an ordinary user (f_bavail)" if seen
            else f"{by_libvirt}, without the reserve: it counts blocks that only root can use"),
        "growth": "capacity without allocation, over all overlays in the pool",
        "growth_beside": (
            "the same over the overlays of other pools on this filesystem, and over the other disks there that domains write to" if seen
            else "the same over the other disks in the pool that domains write to"),
        "needed": needed.how,
        "later": "what the new disks may take beyond what is counted as needed",
        "reserve": _how_much(reserve), "warn_reserve": _how_much(warn_reserve),
    }
    return Space(
        pool=pool.name, path=pool.path or "", capacity=capacity, used=filesystem.capacity - filesystem.free if seen else pool.allocation,
        available=filesystem.available if seen else pool.available - kept, available_source=FILESYSTEM if seen else LIBVIRT,
        growth=growth(volumes), needed=needed.bytes, reserve=kept, growth_beside=growth_beside, later=needed.later, warn_reserve=wished,
        inodes=filesystem.inodes if seen else None, inodes_available=filesystem.inodes_available if seen else None,
        inodes_needed=needed.files, sources=sources)


def _amount(asked, capacity):
    kind, amount = asked
    return int(amount) if kind == "bytes" else int(capacity * amount / 100)


def _how_much(asked):
    return "as asked" if asked[0] == "bytes" else f"{asked[1]:g} % of the capacity"


def growth(volumes):
    """Bytes that the overlays among these volumes may still grow by; bases never grow."""
    return sum(_growth(volume) for volume in volumes if volume.backing_path is not None)


def other_growth(volumes, written_paths):
    """Bytes that disks which are no overlays may still grow by: those of these volumes that domains write to (their paths)."""
    return sum(_growth(volume) for volume in volumes if volume.backing_path is None and volume.path in written_paths)


def _growth(volume):
    return max(0, volume.capacity - volume.allocation)
