# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The room of a filesystem below a pool, where the module runs on the hypervisor itself."""

from __future__ import annotations

from .._policy.model import Filesystem
from . import storage


def statistics(path):
    """model.Filesystem of the one a path lies on, read at this moment; None where the path cannot be seen."""
    try:
        size, blocks, free, available, files, files_available = storage.touch("statvfs", path)
    except OSError:
        return None
    counts_inodes = files > 0
    return Filesystem(blocks * size, free * size, available * size, files if counts_inodes else None, files_available if counts_inodes else None)


def same(path, other):
    """Do two paths lie on one filesystem? False where one of them cannot be seen."""
    try:
        return storage.touch("device", path) == storage.touch("device", other)
    except OSError:
        return False
