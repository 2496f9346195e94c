# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of a pool's room: what is needed and the reserve fail, what may come is a warning unless a limit was given for it."""

from __future__ import annotations

from .checks import FAIL, OK, SKIPPED, WARN, Check
from .errors import QUOTA
from .space import FILESYSTEM
from .units import format_size

_MAKE_ROOM = "Free space in the pool (see: virsh vol-list {pool} --details), use another pool, or ask for less."


def checks(space, overcommit_ratio, overcommit_limit=None):
    """The Checks of a space.Space. overcommit_ratio warns, overcommit_limit (None: there is none) fails."""
    return (_check_room(space), _check_growth(space), _check_overcommit(space, overcommit_ratio, overcommit_limit), _check_inodes(space))


def _figures(space):
    source = "as its filesystem says" if space.available_source == FILESYSTEM else "by libvirt's figure, the reserve taken off"
    text = f"{format_size(space.available)} are free ({source})"
    return f"{text}, of which {format_size(space.reserve)} have to stay free" if space.available_source == FILESYSTEM else text


def _check_room(space):
    name = f"space in pool {space.pool}"
    hint = _MAKE_ROOM.format(pool=space.pool)
    if space.needed > space.room:
        missing = format_size(space.needed - space.room)
        return Check(name, FAIL, f"{format_size(space.needed)} are needed, {_figures(space)}: {missing} are missing.", hint, QUOTA)
    # The room has the reserve taken off already.
    left = space.room + space.reserve - space.needed
    if left < space.warn_reserve:
        wished = format_size(space.warn_reserve)
        return Check(
            name, WARN, f"{format_size(space.needed)} are needed, {_figures(space)}: {format_size(left)} remain, and {wished} should.", hint, QUOTA)
    return Check(name, OK, f"{format_size(space.needed)} are needed, {_figures(space)}.")


def _check_growth(space):
    name = f"growth in pool {space.pool}"
    parts = [f"The overlays may still grow by {format_size(space.growth)}"]
    if space.growth_beside:
        parts.append(f"other disks beside them by {format_size(space.growth_beside)}")
    if space.later:
        parts.append(f"the new disks by {format_size(space.later)} more than is counted")
    text = ", ".join(parts)
    if space.to_come == 0 or space.needed + space.to_come <= space.room:
        return Check(name, OK, f"{text}.")
    return Check(
        name, WARN, f"{text}, with {format_size(space.needed)} needed besides, and {_figures(space)}.",
        "Guests are paused when the pool runs full: watch it, or make room.", QUOTA)


def _check_overcommit(space, ratio, limit):
    name = f"overcommit of pool {space.pool}"
    share = f"{space.overcommit:.2f} times the {format_size(space.usable)} that the pool can hold"
    message = f"Written full, everything takes {share}"
    if limit is not None and space.overcommit > limit:
        return Check(name, FAIL, f"{message}; {limit:g} is the limit.", "Use smaller disks or a larger pool, or raise overcommit_limit.", QUOTA)
    if space.overcommit > ratio:
        return Check(name, WARN, f"{message}; {ratio:g} should be enough.", "Use smaller disks or a larger pool, or raise overcommit_ratio.", QUOTA)
    return Check(name, OK, f"{message}; {ratio:g} is fine.")


def _check_inodes(space):
    name = f"inodes of pool {space.pool}"
    if space.available_source != FILESYSTEM:
        return Check(name, SKIPPED, "The filesystem's inodes cannot be seen over this connection.")
    if space.inodes is None:
        return Check(name, OK, "The filesystem makes inodes as they are needed.")
    message = f"{space.inodes_needed} files are needed, and the filesystem has room for {space.inodes_available}"
    if space.inodes_needed > space.inodes_available:
        return Check(name, FAIL, f"{message}.", f"Delete small files: df -i {space.path} tells how many there are.", QUOTA)
    if space.inodes_available - space.inodes_needed < space.inodes / 100:
        return Check(name, WARN, f"{message}: less than one in a hundred stays free.", f"Look for what makes so many files: df -i {space.path}.", QUOTA)
    return Check(name, OK, f"{message}.")
