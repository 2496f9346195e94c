# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creating a volume under a name with a fresh nonce, which therefore nobody else has."""

from __future__ import annotations

from .._host import classify
from .undoing import undone_by


def create_volume(hypervisor, pool, name, xml):
    """hypervisor.create_volume, which may have made it also where its answer was lost: on any error what there is of it is deleted."""
    with undone_by(lambda: hypervisor.delete_volume(pool, name), unless=_is_taken):
        return hypervisor.create_volume(pool, xml)


def _is_taken(error):
    """Such a nonce was drawn twice, and the volume is another call's."""
    return error.code == classify.STORAGE_VOL_EXIST
