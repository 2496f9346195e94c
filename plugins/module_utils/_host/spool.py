# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file without a name for content whose length is not known beforehand: nothing is left of it when the process ends, however it ends."""

from __future__ import annotations

import os
import tempfile

from .._policy.errors import PERMANENT, QUOTA, Kvm2Error
from .source import Source

_LOOK_EACH = 4 * 1024 ** 2
# What is left to others on the filesystem: a twentieth of it, but no more than this.
_RESERVE = 256 * 1024 ** 2


def spool(blocks, name, folder=None, pool_path=None, at_least=0):
    """A source.Source with the content of `blocks`, in an unnamed file; its space is looked at before and while it is written.

    folder: where the file is made, an operator's choice. Without it: the pool's folder where that is on this machine (pool_path) and its
    filesystem makes files that never have a name, so that no refresh lists them; else the folder for temporary files.
    at_least: bytes that are to come at the least. Where the file lies on the pool's filesystem, room for the same content in the pool is kept.
    """
    where, handle = _open(folder, pool_path)
    try:
        _fill(blocks, name, handle, where, pool_path, at_least)
        length = handle.tell()
        handle.seek(0)
    except BaseException:
        handle.close()
        raise
    return Source(name, handle, length)


def _open(folder, pool_path):
    """(folder, file) of a new unnamed file."""
    if folder is None and pool_path is not None:
        descriptor = _nameless(pool_path)
        if descriptor is not None:
            return pool_path, os.fdopen(descriptor, "w+b", 0)
    where = folder or tempfile.gettempdir()
    try:
        # Without a buffer, since closing would try once more to write what a full disk did not take.
        return where, tempfile.TemporaryFile(dir=where, buffering=0)
    except OSError as error:
        raise Kvm2Error(PERMANENT, "use", f"tmpdir {where}", error.strerror or error, "Give a folder that exists and can be written.") from error


def _nameless(folder):
    """Descriptor of a file that never has a name, or None where the filesystem makes none."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


def _fill(blocks, name, handle, where, pool_path, at_least):
    shares = pool_path is not None and os.stat(pool_path).st_dev == os.fstat(handle.fileno()).st_dev
    looked_at = written = 0
    _require(handle, at_least * (2 if shares else 1), name, where)
    try:
        for block in blocks:
            view = memoryview(block)
            while len(view):
                view = view[handle.write(view):]
            written += len(block)
            if written - looked_at >= _LOOK_EACH:
                _require(handle, written if shares else 0, name, where)
                looked_at = written
    except OSError as error:
        raise _no_room(name, where, error.strerror or error) from error


def _require(handle, wanted, name, where):
    stat = os.fstatvfs(handle.fileno())
    room = stat.f_bavail * stat.f_frsize - min(_RESERVE, stat.f_blocks * stat.f_frsize // 20)
    if room < wanted or room <= 0:
        raise _no_room(name, where, f"there is room for {max(0, room)} more bytes, and {wanted or 'more'} are needed")


def _no_room(name, where, cause):
    return Kvm2Error(QUOTA, "spool", f"{name} in {where}", cause, "Free space there, or give a tmpdir with more room.")
