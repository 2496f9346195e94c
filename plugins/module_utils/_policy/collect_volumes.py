# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which volumes are collected: overlays and seeds without a domain, bases that nobody uses, and what killed runs left half-made."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Mapping

from . import names, record, references
from .collect_instances import span
from .collection import Item, OldBase

# Whatever min_age says, no orphaned volume goes before: a creator may still be about to define a domain over it.
LEAST_ORPHAN_AGE = 3600
# Volumes that exist for a moment, to read a pool's clock.
_PROBE_RE = re.compile(r"kvm2-clock-[0-9a-f]{12}\.raw", re.ASCII)


@dataclass(frozen=True)
class Ages:
    """Ages of volumes against the clocks of their pools."""

    now: float
    pool_now: dict

    def of(self, volume):
        """Seconds since the volume was last written, negative for one from the future; None where that cannot be told."""
        return None if volume.mtime is None else self.pool_now.get(volume.pool, self.now) - volume.mtime

    def why_not(self, volume, least):
        """Why the volume is not at least `least` seconds old, as (list of the Collection, reason); None where it is."""
        age = self.of(volume)
        if age is None:
            return "skipped", "its age cannot be told"
        if age < 0:
            return "skipped", f"it was last written {span(-age)} in the future: check the clock of the pool's machine"
        if age < least:
            return "kept", f"it was last written only {span(age)} ago"
        return None


@dataclass(frozen=True)
class Surroundings:
    """What volumes are judged by. found: references.References.  shared: {pool: type of its storage} of pools that may have other users."""

    found: references.References
    ages: Ages
    shared: Mapping[str, str]


VOUCH = "Set exclusive to true when no other daemon uses it."


def why_shared(storage):
    return f"it lies on shared storage ({storage}), where another daemon's references cannot be seen"


def _item(what, volume, reason, uid=None, others=False):
    return Item(what, volume.name, reason, volume.pool, volume.path, uid, others)


def _in_use(volume, found):
    users = found.users_of(volume.path)
    return ("kept", f"it is used by {', '.join(users)}") if users else None


def _unseen(found):
    """A reason for doubt: something that could not be read may use any volume that no seen domain uses."""
    if not found.blocked:
        return None
    more = f" (and {len(found.blocked) - 1} more)" if len(found.blocked) > 1 else ""
    return "skipped", f"something that cannot be seen may use it: {found.blocked[0]}{more}"


def decide_volumes(volumes, pools, request, around, result):
    """Sort every overlay, seed and probe of ours in the pools into the Collection `result`; result.instances is decided already, and takes
    its volumes along from whichever pool."""
    doomed = {item.uid: item.name for item in result.instances}
    for volume in volumes:
        name = names.parse_instance_volume(volume.name)
        if volume.pool not in pools and (name is None or name.uid not in doomed):
            continue
        others = False
        if name is not None:
            what, uid, others = name.kind, name.uid, name.fleet != request.fleet
            answer, reason = _of_instance(volume, name, request, around, doomed)
        elif _PROBE_RE.fullmatch(volume.name):
            what, uid = "probe", None
            answer, reason = _first(
                _unlike_ours(volume), _shared(volume, around), _in_use(volume, around.found), _unseen(around.found),
                around.ages.why_not(volume, request.incomplete_age), ("collected", "a killed run left it behind"))
        elif volume.name.startswith(names.PREFIX) and names.parse_base(volume.name) is None and names.parse_record(volume.name) is None:
            what, uid, answer, reason = "volume", None, "skipped", "its name is none that this collection makes"
        else:
            continue
        goes_along = uid in doomed and answer == "collected"
        if answer == "collected" and not goes_along and "volumes" not in request.collect:
            continue
        item = _item(what, volume, reason, uid, others)
        getattr(result, answer).append(item)
        if answer == "collected" and not goes_along:
            result.volumes.append(item)


def _of_instance(volume, name, request, around, doomed):
    if name.fleet != request.fleet:
        return "skipped", f"it belongs to the fleet {name.fleet}"
    if name.uid in doomed:
        return "collected", f"it goes with the instance {doomed[name.uid]}"
    least = max(request.min_age, LEAST_ORPHAN_AGE)
    return _first(
        _unlike_ours(volume), _shared(volume, around), _in_use(volume, around.found), _unseen(around.found),
        around.ages.why_not(volume, least), ("collected", f"no domain uses it and it was last written {span(around.ages.of(volume) or 0)} ago"))


def _shared(volume, around):
    storage = around.shared.get(volume.pool)
    return None if storage is None else ("skipped", f"its pool cannot be judged: {why_shared(storage)}. {VOUCH}")


def _first(*answers):
    return next(answer for answer in answers if answer is not None)


def _unlike_ours(volume):
    if volume.unreadable:
        return "unreadable", volume.unreadable
    return None if volume.type == "file" else ("skipped", f"it is no file but a {volume.type}")


def decide_bases(volumes, request, around, records, result):
    """Sort every base and record into the Collection `result`."""
    pairs = _pairs(volumes)
    valid = {}
    for (pool, name), (base, record_volume) in pairs.items():
        parsed = records.get((pool, name.record)) if record_volume is not None else None
        if base is not None and isinstance(parsed, record.Record) and parsed.size == base.physical:
            valid[pool, name] = parsed
    newest = {}
    for (pool, name), parsed in valid.items():
        place = (pool, name.key, name.format)
        newest[place] = max(newest.get(place, (0, "")), (parsed.published_at, str(name)))
    for (pool, name), (base, record_volume) in pairs.items():
        parts = [volume for volume in (record_volume, base) if volume is not None]
        if (pool, name) in valid:
            is_newest = newest[pool, name.key, name.format][1] == str(name)
            answer, reason = _published(base, record_volume, request, around, is_newest)
        else:
            answer, reason = _unpublished(parts, base, record_volume, records.get((pool, name.record)), request, around)
        items = [_item("base" if volume is base else "record", volume, reason) for volume in parts]
        getattr(result, answer).extend(items)
        if answer == "collected":
            result.bases.append(OldBase(pool, name, base, record_volume, reason))


def _pairs(volumes):
    """{(pool, BaseName): (volume of the base or None, volume of the record or None)}."""
    found = {}
    for volume in volumes:
        base, of_record = names.parse_base(volume.name), names.parse_record(volume.name)
        if base is not None:
            found[volume.pool, base] = (volume, found.get((volume.pool, base), (None, None))[1])
        elif of_record is not None:
            found[volume.pool, of_record] = (found.get((volume.pool, of_record), (None, None))[0], volume)
    return found


def _published(base, record_volume, request, around, is_newest):
    found, ages = around.found, around.ages
    return _first(
        _unlike_ours(base), _unlike_ours(record_volume), _in_use(base, found), _in_use(record_volume, found),
        ("kept", "it is the newest base of its key") if is_newest and request.keep_latest else None,
        _shared(base, around), _unseen(found), ages.why_not(record_volume, request.min_age),
        ("collected", f"nothing uses it and it was published {span(ages.of(record_volume) or 0)} ago"))


def _unpublished(parts, base, record_volume, parsed, request, around):
    """A base without a valid record, or a record without a base: half-made, or retired."""
    if record_volume is not None and parsed is None:
        return "unreadable", "its record could not be read"
    why = "it has no record"
    if base is None:
        why = "its base is not there"
    elif isinstance(parsed, record.Unreadable):
        why = f"its record is unreadable: {parsed.why}"
    elif parsed is not None:
        why = f"it has {base.physical} bytes but its record says {parsed.size}"
    checks = [check for volume in parts for check in (_unlike_ours(volume), _in_use(volume, around.found), _shared(volume, around))]
    young = [around.ages.why_not(volume, request.incomplete_age) for volume in parts]
    answer, reason = _first(*checks, _unseen(around.found), *young, ("collected", "nothing uses it"))
    return answer, f"{why}; {reason}"
