# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room in a pool: what guests can really use, what is spoken for, and whether what is planned fits."""

from __future__ import annotations

from dataclasses import dataclass

from . import names
from .checks import FAILED, OK, WARNING, Check
from .errors import QUOTA
from .units import format_size

FILESYSTEM, LIBVIRT = "filesystem", "libvirt"


@dataclass(frozen=True)
class Space:
    """All sizes in bytes.

    available: what guests can use. From the filesystem it is what an ordinary user can still fill; libvirt's own figure counts blocks that
    the filesystem keeps for root too, so there the reserve is taken off already.  growth: what the overlays may still grow by.
    needed: what is about to be made.  reserve: what has to stay free.  used: what is taken now.
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

    @property
    def room(self):
        """What may still be taken, the reserve kept; negative where less than the reserve is free."""
        return self.available if self.available_source == LIBVIRT else self.available - self.reserve

    @property
    def overcommit(self):
        """What everything would take when written full, as a share of the pool's capacity."""
        return (self.used + self.growth + self.needed) / self.capacity if self.capacity else 0.0

    def as_dict(self):
        return {
            "pool": self.pool, "path": self.path, "capacity": self.capacity, "available": self.available,
            "available_source": self.available_source, "growth": self.growth, "needed": self.needed, "reserve": self.reserve,
            "overcommit": round(self.overcommit, 3)}


def measure(pool, volumes, needed, reserve, f_bavail=None):
    """The Space of a model.Pool with its volumes.

    needed: bytes.  reserve: ("bytes", n) or ("percent", p of the capacity).  f_bavail: bytes that an ordinary user can still fill in the
    pool's filesystem, None where it cannot be seen.
    """
    kind, amount = reserve
    kept = int(amount) if kind == "bytes" else int(pool.capacity * amount / 100)
    available = pool.available - kept if f_bavail is None else f_bavail
    return Space(
        pool=pool.name, path=pool.path or "", capacity=pool.capacity, used=pool.allocation, available=available,
        available_source=LIBVIRT if f_bavail is None else FILESYSTEM, growth=growth(volumes), needed=needed, reserve=kept)


def growth(volumes):
    """Bytes that the overlays among these volumes may still grow by; bases never grow."""
    return sum(max(0, volume.capacity - volume.allocation) for volume in volumes if volume.backing_path is not None)


def needed(volumes, fixed=0, instances=0, capacity=0, image=0, key=None, fleet=None, overlays=()):
    """Bytes that are about to be taken in a pool with these volumes.

    fixed; instances new disks of `capacity` each; an image, unless a base of `key` with its record is there; and `overlays` of a fleet:
    (name, uid, capacity), of which one that is there already counts only with what it lacks.
    """
    total = fixed + instances * capacity + (0 if key is not None and _has_base(volumes, key) else image)
    have = {}
    for volume in volumes:
        parsed = names.parse_instance_volume(volume.name)
        if parsed is not None and parsed.kind == "overlay" and parsed.fleet == fleet:
            have[parsed.uid] = max(have.get(parsed.uid, 0), volume.capacity)
    return total + sum(max(0, size - have.get(uid, 0)) for _name, uid, size in overlays)


def _has_base(volumes, key):
    listed = {volume.name for volume in volumes}
    parsed = (names.parse_record(name) for name in listed)
    return any(base is not None and base.key == key and str(base) in listed for base in parsed)


def checks(space, overcommit_ratio):
    """The Checks of a Space: what is needed and the reserve fail, what may come of growth is a warning."""
    return (_check_room(space), _check_growth(space), _check_overcommit(space, overcommit_ratio))


def _figures(space):
    source = "as its filesystem says" if space.available_source == FILESYSTEM else "by libvirt's figure, the reserve taken off"
    text = f"{format_size(space.available)} are free ({source})"
    return text if space.available_source == LIBVIRT else f"{text}, of which {format_size(space.reserve)} have to stay free"


def _check_room(space):
    name = f"space in pool {space.pool}"
    if space.needed <= space.room:
        return Check(name, OK, f"{format_size(space.needed)} are needed, {_figures(space)}.")
    missing = format_size(space.needed - space.room)
    return Check(
        name, FAILED, f"{format_size(space.needed)} are needed, {_figures(space)}: {missing} are missing.",
        "Free space in the pool, use another pool, or ask for less.", QUOTA)


def _check_growth(space):
    name = f"growth in pool {space.pool}"
    if space.needed + space.growth <= space.room or space.growth == 0:
        return Check(name, OK, f"The overlays may still grow by {format_size(space.growth)}.")
    return Check(
        name, WARNING, f"The overlays may still grow by {format_size(space.growth)}, with {format_size(space.needed)} needed besides, and "
        f"{_figures(space)}.", "Guests are paused when the pool runs full: watch it, or make room.", QUOTA)


def _check_overcommit(space, ratio):
    name = f"overcommit of pool {space.pool}"
    share = f"{space.overcommit:.2f} times the {format_size(space.capacity)} of the pool"
    message = f"Written full, everything takes {share}; {ratio:g} is the limit."
    if space.overcommit <= ratio:
        return Check(name, OK, message)
    return Check(name, WARNING, message, "Use smaller disks or a larger pool, or raise overcommit_ratio.", QUOTA)
