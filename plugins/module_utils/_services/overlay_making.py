# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creating an overlay on a published base: the record is read before and after, so that no collector takes the base from under it."""

from __future__ import annotations

from .._policy import volume_xml
from .._policy.errors import TRANSIENT, Kvm2Error
from . import bases, creating
from .undoing import undone_by


def create(hypervisor, pool, name, base, capacity):
    """Step 2: the volume itself, on a bases.Published. Returns its model.Volume."""
    try:
        return creating.create_volume(
            hypervisor, pool, name, volume_xml.overlay_volume(name, capacity, base.volume.path, base.record.format))
    except Kvm2Error as error:
        # libvirt refuses an overlay on a base that a collector took since its record was read.
        if not bases.is_published(hypervisor, pool, base.name):
            raise retired(base.name, pool) from error
        raise


def create_checked(hypervisor, pool, name, base_name, capacity):
    """All three steps for one overlay on the base of that volume name; where the record went meanwhile the overlay goes too."""
    base = bases.the_published(hypervisor, pool, base_name)
    volume = create(hypervisor, pool, name, base, capacity)
    with undone_by(lambda: hypervisor.delete_volume(pool, name)):
        if not bases.is_published(hypervisor, pool, base.name):
            raise retired(base_name, pool)
    return volume


def retired(base_name, pool):
    return Kvm2Error(
        TRANSIENT, "use", f"base {base_name} in pool {pool}", "it was retired meanwhile", "Run kvm2_image again, then this with the base it returns.")
