# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Published bases of a pool: finding them by their records, and retiring them."""

from __future__ import annotations

from dataclasses import dataclass

from .._policy import names, record
from .._policy.errors import CONFLICT, Kvm2Error
from .._policy.model import Volume
from .._policy.names import BaseName
from .pools import look_around

_RECORD_LIMIT = 65536


@dataclass(frozen=True)
class Published:
    """A base with a valid record."""

    name: BaseName
    volume: Volume
    record: record.Record


def read_record(hypervisor, pool, name):
    """The record.Record of a base (a BaseName), record.Unreadable, or None where there is none."""
    volume = hypervisor.volume(pool, name.record)
    if volume is None:
        return None
    try:
        data = b"".join(hypervisor.download(pool, name.record, 0, min(volume.physical or _RECORD_LIMIT, _RECORD_LIMIT)))
    except Kvm2Error:
        if hypervisor.volume(pool, name.record) is None:
            return None
        raise
    return record.parse(data, name)


def published(hypervisor, pool, volumes, wanted=lambda name: True):
    """All Published bases of a pool whose BaseName is wanted: record parses, base is there with the recorded size."""
    by_name = {volume.name: volume for volume in volumes}
    found = []
    for volume_name in sorted(by_name):
        name = names.parse_record(volume_name)
        if name is None or not wanted(name):
            continue
        base = by_name.get(str(name))
        if base is None:
            continue
        parsed = read_record(hypervisor, pool, name)
        if isinstance(parsed, record.Record) and base.physical == parsed.size:
            found.append(Published(name, base, parsed))
    return tuple(found)


def the_published(hypervisor, pool, base, act="use"):
    """The Published base of that volume name; an error that says what is wrong with it otherwise."""
    obj = f"base {base} in pool {pool} on {hypervisor.uri}"
    name = names.parse_base(base)
    if name is None:
        raise Kvm2Error("permanent", act, obj, "it is not the name of a base", "Pass image.base as kvm2_image returned it.")
    volume, parsed = hypervisor.volume(pool, base), read_record(hypervisor, pool, name)
    missing = "Run kvm2_image again, then use the base it returns."
    if parsed is None or volume is None:
        raise Kvm2Error("transient", act, obj, "it is not published any more" if volume else "it is not there", missing)
    if not isinstance(parsed, record.Record):
        raise Kvm2Error("transient", act, obj, f"its record is unreadable: {parsed.why}", missing)
    if volume.physical != parsed.size:
        raise Kvm2Error(
            "permanent", act, obj, f"it has {volume.physical} bytes but its record says {parsed.size}",
            "Something changed it. Remove its record to have it fetched again.")
    return Published(name, volume, parsed)


def is_published(hypervisor, pool, name):
    """Is the record of this BaseName there and valid at this moment?"""
    return isinstance(read_record(hypervisor, pool, name), record.Record)


def references_of(hypervisor, ignore_pools=()):
    """The policy's References over everything this hypervisor holds, read afresh."""
    return look_around(hypervisor, ignore_pools)[1]


def retire(hypervisor, pool, name, path):
    """Retire a base (a BaseName) that was seen unused: record first, then look again, then the base.

    A record is never put back: with two collectors at once that would take a base from under a new overlay. Returns None when the base is
    gone, else the users that appeared meanwhile.
    """
    hypervisor.delete_volume(pool, name.record)
    users = blockers(references_of(hypervisor), path)
    if users:
        return users
    hypervisor.delete_volume(pool, str(name))
    return None


def blockers(found, path):
    """Why the file may not be deleted: its users, and what could not be looked into."""
    return tuple(found.users_of(path)) + tuple(found.blocked)


def conflict(act, obj, users):
    return Kvm2Error(
        CONFLICT, act, obj, "it is in use, or may be: " + "; ".join(users), "Once nothing of that uses it any more, run again; or leave it to kvm2_gc.")
