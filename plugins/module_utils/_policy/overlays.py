# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which overlay is an instance's, and what has to be done about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from . import names
from .errors import CONFLICT, PERMANENT, Kvm2Error
from .model import Volume

# An unreferenced overlay may be taken while it is younger than this, and a domain defined over it while it is younger than the other.
YOUNG = 600
DEFINABLE = 1800


@dataclass(frozen=True)
class Candidate:
    """An overlay volume of the instance that no domain references. age in seconds, None where it cannot be told; negative is in the future.

    written: has a guest ever written to it (None: cannot be told).  complete: is it a whole qcow2 overlay.  right_base: on the wanted base.
    """

    volume: Volume
    age: Optional[float]
    written: Optional[bool]
    complete: bool
    right_base: bool


@dataclass(frozen=True)
class Drift:
    field: str
    have: object
    want: object
    needs: str

    def as_dict(self):
        return {"field": self.field, "have": self.have, "want": self.want, "needs": self.needs}


# Of a disk that somebody took out of the definition: what there is, and what is wanted.
DETACHED = ("no disk of ours", "a disk in the definition")


@dataclass(frozen=True)
class Decision:
    """status: present (the domain's), missing (the domain's, but its file has gone or it was detached), taken, created.  grow_to: bytes or None."""

    status: str
    name: Optional[str]
    grow_to: Optional[int] = None
    drift: Tuple[Drift, ...] = ()
    why: str = ""


def wanted_capacity(asked, virtual_size, obj, base):
    """Bytes of the overlay: what was asked for, else the base's virtual size. Less than the base is a permanent error."""
    if asked is None:
        return virtual_size
    if virtual_size is not None and asked < virtual_size:
        raise Kvm2Error(
            PERMANENT, "size", obj, f"a capacity of {asked} bytes is smaller than the {virtual_size} bytes of the base {base}",
            f"Ask for at least {virtual_size} bytes, or leave capacity out.")
    return asked


def same_base(one, other, digests):
    """Are two base volume names the same image? digests maps names of published bases to the digests of what is stored."""
    if one == other:
        return True
    if one in digests and other in digests:
        return digests[one] == digests[other]
    first, second = names.parse_base(one or ""), names.parse_base(other or "")
    return (first is not None and second is not None and not first.id16.startswith("u")
            and (first.key, first.id16, first.format) == (second.key, second.id16, second.format))


def keep(volume, path, capacity, asked, base, have_base, digests, obj, saved=False):
    """Decision about the overlay that the instance's domain references; volume is None where its file has gone, path where the domain names none.

    saved: a guest saved in its midst knows the disk as large as it is, and could not be told of another size.
    """
    if path is None:
        return Decision("missing", None, drift=(Drift("overlay", *DETACHED, "replace"),), why="it was detached from the domain")
    if volume is None:
        return Decision("missing", None, drift=(Drift("overlay", path, "a file that exists", "replace"),), why="its file has gone")
    if asked is not None and volume.capacity > capacity:
        raise Kvm2Error(
            PERMANENT, "shrink", obj, f"it has {volume.capacity} bytes and {capacity} are wanted", "An overlay is never made smaller: raise capacity.")
    drift = ()
    if not same_base(have_base, base, digests):
        drift = (Drift("base", have_base or volume.backing_path, base, "replace"),)
    grow = capacity if capacity is not None and volume.capacity < capacity else None
    if grow is not None and saved:
        return Decision("present", volume.name, drift=(*drift, Drift("capacity", volume.capacity, capacity, "start")))
    return Decision("present", volume.name, grow_to=grow, drift=drift)


def choose(candidates, capacity, on_stale, obj):
    """Decision for an instance without a domain: the youngest fit one is taken, else a new one is made. Old ones are left to the collector,
    since taking one would race it."""
    stale = [one for one in candidates if one.written]
    if stale and on_stale == "fail":
        listed = ", ".join(sorted(one.volume.name for one in stale))
        raise Kvm2Error(
            CONFLICT, "create", obj, f"a guest has written to {listed}, which no domain references",
            "Look into it, then delete it; or set on_stale to new.")
    fit = [
        one for one in candidates
        if one.complete and one.right_base and one.written is False and one.age is not None and 0 <= one.age < YOUNG
        and capacity is not None and one.volume.capacity >= capacity]
    if fit:
        youngest = min(fit, key=lambda one: (one.age, one.volume.name))
        grow = capacity if youngest.volume.capacity < capacity else None
        return Decision("taken", youngest.volume.name, grow_to=grow, why="made by an earlier run and never used")
    why = "no overlay is there" if not candidates else f"none of {len(candidates)} unreferenced overlays is fit to be taken"
    return Decision("created", None, why=why)
