# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A volume's age: its mtime against the clock of the pool, which is another machine's where the connection is remote."""

from __future__ import annotations

import secrets

from .._policy import volume_xml
from .._policy.errors import Kvm2Error
from . import creating


def age(hypervisor, volume, wall_clock):
    """Seconds since the volume's mtime, negative when it lies in the future; None where libvirt gives no mtime. Not for check mode: a remote
    pool's clock is read from a small volume made for it."""
    if volume.mtime is None:
        return None
    return probed(hypervisor, volume.pool, (), wall_clock) - volume.mtime


def newest_seen(hypervisor, pool, volumes, wall_clock):
    """The time on the pool's machine, or before it: that of the newest mtime where its clock cannot be read without writing."""
    if hypervisor.is_local():
        return wall_clock()
    return max((volume.mtime for volume in volumes if volume.pool == pool and volume.mtime is not None), default=0.0)


def probed(hypervisor, pool, volumes, wall_clock):
    """The time on the pool's machine, read from a small volume made for it where that is another one."""
    if hypervisor.is_local():
        return wall_clock()
    name = f"kvm2-clock-{secrets.token_hex(6)}.raw"
    probe = creating.create_volume(hypervisor, pool, name, volume_xml.raw_volume(name, 512))
    try:
        return probe.mtime if probe.mtime is not None else wall_clock()
    finally:
        hypervisor.delete_volume(pool, name)


# Enough to be written at all; every volume of ours is longer.
_TOUCHED = 4


def touch(hypervisor, pool, name):
    """Make a volume young: its first bytes are written again as they are, which any connection can do and which changes nothing in it.

    Only for a volume that no guest has open. One that has gone is none to protect.
    """
    if hypervisor.volume(pool, name) is None:
        return
    try:
        head = b"".join(hypervisor.download(pool, name, 0, _TOUCHED))
        hypervisor.upload(pool, name, [head], len(head))
    except Kvm2Error:
        if hypervisor.volume(pool, name) is not None:
            raise
