# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filesystem below a pool, where the module runs on the hypervisor itself."""

from __future__ import annotations

import os

from .._policy.errors import TRANSIENT, Kvm2Error


def realpath(path):
    return os.path.realpath(path)


def exists(path):
    return os.path.exists(path)


def available(path):
    """Bytes of the filesystem that an ordinary user can still fill (f_bavail), or None where the path cannot be seen."""
    try:
        stat = os.statvfs(path)
    except OSError:
        return None
    return stat.f_bavail * stat.f_frsize


def make_durable(path):
    """fsync a file and the folder it is in."""
    for target in (path, os.path.dirname(path)):
        try:
            descriptor = os.open(target, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise Kvm2Error(TRANSIENT, "make durable", f"file {target}", error, "Check the storage below the pool.") from error


def filesystem_type(path):
    """Type of the filesystem a path lies on, by the mount table; None where that cannot be told."""
    path, best, kind = os.path.realpath(path), "", None
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as mounts:
            for line in mounts:
                fields = line.split(" ")
                folder = fields[1].encode("utf-8", "surrogateescape").decode("unicode_escape", "replace")
                if (path == folder or path.startswith(folder.rstrip("/") + "/")) and len(folder) >= len(best):
                    best, kind = folder, fields[2]
    except OSError:
        return None
    return kind


def bridges():
    """Names of the network bridges of this machine, sorted."""
    try:
        names = os.listdir("/sys/class/net")
    except OSError:
        return ()
    return tuple(sorted(name for name in names if os.path.isdir(f"/sys/class/net/{name}/bridge")))
