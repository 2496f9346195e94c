# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filesystem below a pool, where the module runs on the hypervisor itself. Storage that does not answer is a Kvm2Error, never a wait for ever."""

from __future__ import annotations

import os

from .._policy.errors import Kvm2Error
from . import storage


def realpath(path):
    return storage.touch("realpath", path)


def resolver(paths):
    """realpath, for which these paths are looked at all at once; any other is looked at when it is asked for, and so are those on storage that does
    not answer: that is told of each of them, and keeps nobody from the others."""
    by_folder, known = {}, {}
    for path in paths:
        by_folder.setdefault(os.path.dirname(path), []).append(path)
    for folder, some in by_folder.items():
        try:
            known.update(zip(some, storage.touch("realpaths", folder, some)))
        except Kvm2Error:
            continue

    def resolve(path):
        if path not in known:
            known[path] = realpath(path)
        return known[path]
    return resolve


def exists(path):
    return storage.touch("exists", path)


def readable(path):
    """Is the file there, and may it be read and made durable from here? Of a system's pool a plain user may do neither."""
    return storage.touch("readable", path)


def filesystem_type(path):
    """Type of the filesystem a path lies on, by the mount table; None where that cannot be told."""
    path, best, kind = realpath(path), "", None
    for folder, type_of_it in storage.mounts():
        if (path == folder or path.startswith(folder.rstrip("/") + "/")) and len(folder) >= len(best):
            best, kind = folder, type_of_it
    return kind
