# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The room of a filesystem below a pool, where the module runs on the hypervisor itself."""

from __future__ import annotations

import os

from .._policy.space import Filesystem


def statistics(path):
    """space.Filesystem of the one a path lies on, read at this moment; None where the path cannot be seen."""
    try:
        stat = os.statvfs(path)
    except OSError:
        return None
    size = stat.f_frsize
    counts_inodes = stat.f_files > 0
    return Filesystem(
        stat.f_blocks * size, stat.f_bfree * size, stat.f_bavail * size, stat.f_files if counts_inodes else None,
        stat.f_favail if counts_inodes else None)


def same(path, other):
    """Do two paths lie on one filesystem? False where one of them cannot be seen."""
    try:
        return os.stat(path).st_dev == os.stat(other).st_dev
    except OSError:
        return False
