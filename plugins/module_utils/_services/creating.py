# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creating a volume under a name with a fresh nonce, which therefore nobody else has."""

from __future__ import annotations

import contextlib

from .._host import classify
from .._policy.errors import Kvm2Error


def create_volume(hypervisor, pool, name, xml):
    """hypervisor.create_volume, which may have made it also where its answer was lost: on any error what there is of it is deleted."""
    try:
        return hypervisor.create_volume(pool, xml)
    except BaseException as error:
        # Such a nonce was drawn twice, and the volume is another call's.
        if getattr(error, "code", None) != classify.STORAGE_VOL_EXIST:
            # The first failure is the one to report; the collector takes what stays.
            with contextlib.suppress(Kvm2Error):
                hypervisor.delete_volume(pool, name)
        raise
