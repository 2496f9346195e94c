# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is about to be made in a pool, and how much of it is there already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from . import names
from .overlays import YOUNG
from .units import format_size

# An instance has an overlay and a seed, an image is a base and its record.
_FILES_EACH = 2


@dataclass(frozen=True)
class Need:
    """What was asked for, in bytes.

    fixed: an amount.  instances: new disks of `capacity` each.  image: an image, of which `key` names the base.  overlays: (name, uid,
    capacity) of the instances of `fleet`.  filled: the share of its capacity (0 to 1) that a new disk counts with.
    """

    fixed: int = 0
    instances: int = 0
    capacity: int = 0
    image: int = 0
    key: Optional[str] = None
    fleet: Optional[str] = None
    overlays: Tuple[Tuple[str, str, int], ...] = ()
    filled: float = 1.0

    @property
    def makes_instances(self):
        return bool(self.instances or self.overlays)

    @property
    def uids(self):
        """The domains' UUIDs of the instances that are named."""
        return frozenset(uid for _name, uid, _capacity in self.overlays)


@dataclass(frozen=True)
class Needed:
    """bytes: to be taken at once.  later: what new disks may grow by beyond that.  files: new ones.  how: what bytes is made of."""

    bytes: int
    later: int
    files: int
    how: str


def work_out(need, volumes, used_paths, now, image_is_there):
    """The Needed of a Need in a pool with these volumes.

    An overlay that is there counts only with what it lacks in capacity. It is there when a domain uses it (used_paths: paths of files that
    domains name), or when it is young enough to be taken up: an older unused one is left alone and a new one made beside it.
    now: seconds since the epoch on the pool's clock.  image_is_there: is the wanted base published?
    """
    have = {}
    for volume in volumes:
        parsed = names.parse_instance_volume(volume.name)
        if parsed is None or parsed.kind != "overlay" or parsed.fleet != need.fleet:
            continue
        young = volume.mtime is not None and now - volume.mtime < YOUNG
        if volume.path in used_paths or young:
            have[parsed.uid] = max(have.get(parsed.uid, 0), volume.capacity)
    lacking = [(capacity, have.get(uid, 0)) for _name, uid, capacity in need.overlays if have.get(uid, 0) < capacity]
    new = [capacity for capacity, there in lacking if not there] + [need.capacity] * need.instances
    grown = sum(capacity - there for capacity, there in lacking if there)
    disks = int(sum(new) * need.filled)
    image = 0 if image_is_there else need.image
    return Needed(
        need.fixed + disks + grown + image, sum(new) - disks, _FILES_EACH * (len(new) + bool(image)), _how(need, new, disks, grown, image, image_is_there))


def _how(need, new, disks, grown, image, image_is_there):
    parts = []
    if need.fixed:
        parts.append(f"{format_size(need.fixed)} as asked")
    if new:
        share = "" if need.filled == 1 else f", {need.filled:.0%} of their capacity"
        parts.append(f"{format_size(disks)} for {_count(len(new), 'new disk')}{share}")
    there = need.instances + len(need.overlays) - len(new)
    if there:
        parts.append(f"{format_size(grown)} for {_count(there, 'disk')} that {'is' if there == 1 else 'are'} there already")
    if image:
        parts.append(f"{format_size(image)} for the image")
    elif need.image and image_is_there:
        parts.append("nothing for the image, which is published already")
    return "; ".join(parts) or "nothing is asked for"


def _count(number, what):
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
