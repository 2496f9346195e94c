# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room in a pool as it is seen on a hypervisor: its volumes, its filesystem, and what else grows there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from .._host import fetch, filesystem
from .._policy import disk_use, names, need, space
from .._policy.checks import WARN, Check
from .._policy.errors import Kvm2Error
from .._policy.model import FILE_POOLS
from . import bases, clock
from .pools import sees_pool


@dataclass(frozen=True)
class Seen:
    """newest: the latest mtime of a volume in the pool, None where there is none."""

    space: space.Space
    checks: Tuple[Check, ...]
    newest: Optional[float]


def look(hypervisor, pool, domains, asked, refreshed):
    """Seen of a usable model.Pool. asked: has need, checksum, reserve, warn_reserve and the context."""
    volumes = hypervisor.volumes(pool.name)
    statistics = filesystem.statistics(pool.path) if sees_pool(hypervisor, pool) else None
    beside, found = _beside(hypervisor, pool) if statistics is not None else ((), ())
    used, written = disk_use.disks(domains, (*volumes, *beside))
    now = clock.newest_seen(hypervisor, pool.name, volumes, asked.context.clock)
    needed = need.work_out(asked.need, volumes, used, now, _image_is_there(hypervisor, pool.name, volumes, asked))
    growth_beside = space.growth(beside) + space.other_growth((*volumes, *beside), written)
    measured = space.measure(pool, volumes, needed, asked.reserve, asked.warn_reserve, statistics, growth_beside, refreshed)
    newest = max((volume.mtime for volume in volumes if volume.mtime is not None), default=None)
    return Seen(measured, found, newest)


def _beside(hypervisor, pool):
    """(volumes of the other pools on the same filesystem, Checks of those that cannot be read)."""
    volumes, found, folders = [], [], {pool.path}
    for other in hypervisor.pools():
        if not other.active or other.type not in FILE_POOLS or not other.path or other.path in folders:
            continue
        folders.add(other.path)
        if not filesystem.same(pool.path, other.path):
            continue
        try:
            volumes += hypervisor.volumes(other.name)
        except Kvm2Error as error:
            found.append(Check(
                f"pool {other.name} on the same filesystem", WARN, f"What its volumes may grow by is not counted: {error.cause}.", error.hint))
    return tuple(volumes), tuple(found)


def _image_is_there(hypervisor, pool, volumes, asked):
    """Is the image published? Without a checksum any base of its key counts."""
    if asked.need.key is None:
        return False
    if asked.checksum is None:
        listed = {volume.name for volume in volumes}
        parsed = (names.parse_record(name) for name in listed)
        return any(base is not None and base.key == asked.need.key and str(base) in listed for base in parsed)
    rest = asked.checksum.partition(":")[2]
    records = [one.record for one in bases.published(hypervisor, pool, volumes, lambda name: name.key == asked.need.key)]
    if "://" in rest:
        return any(record.checksum_url == fetch.shown(rest) for record in records)
    return any(asked.checksum.lower() in (record.checksum, record.fetched, f"sha256:{record.digest}") for record in records)
