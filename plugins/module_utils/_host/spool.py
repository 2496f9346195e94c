# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file without a name for content whose length is not known beforehand: nothing is left of it when the process ends, however it ends."""

from __future__ import annotations

import errno
import tempfile

from .._policy.errors import PERMANENT, QUOTA, TRANSIENT, Kvm2Error
from . import storage, streaming
from .source import Source

_LOOK_EACH = 4 * 1024 ** 2
# What is left to others on the filesystem: a twentieth of it, but no more than this.
_RESERVE = 256 * 1024 ** 2
# The last one is a limit of the filesystem or of the user for one file: another folder helps there too.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def spool(blocks, name, folder=None, pool_path=None, at_least=0, check_stop=storage.nothing):
    """A source.Source with the content of `blocks`, in an unnamed file; its space is looked at before and while it is written.

    folder: where the file is made, an operator's choice. Without it: the pool's folder where that is on this machine (pool_path) and its
    filesystem makes files that never have a name, so that no refresh lists them; else the folder for temporary files.
    at_least: bytes that are to come at the least. Where the file lies on the pool's filesystem, room for the same content in the pool is kept.
    check_stop(): called in each wait for the storage; what it raises ends that. A process of its own has the file.
    """
    worker = storage.start(check_stop)
    try:
        where, descriptor = _open(worker, folder, pool_path)
        length = _File(worker, descriptor, name, where, pool_path).fill(blocks, at_least)
        return Source(name, streaming.Stream(worker, descriptor, where), length)
    except BaseException:
        worker.close()
        raise


def _open(worker, folder, pool_path):
    """(folder, the worker's descriptor) of a new unnamed file."""
    if folder is None and pool_path is not None:
        descriptor = _made(worker, "nameless", pool_path)
        if not isinstance(descriptor, OSError):
            return pool_path, descriptor
    where = folder or tempfile.gettempdir()
    for how in ("nameless", "removed"):
        descriptor = _made(worker, how, where)
        if not isinstance(descriptor, OSError):
            return where, descriptor
    raise Kvm2Error(
        PERMANENT, "use", f"tmpdir {where}", descriptor.strerror or descriptor, "Give a folder that exists and can be written.") from descriptor


def _made(worker, how, folder):
    """A descriptor, or the OSError."""
    try:
        with streaming.told(folder, "make a file on"):
            return worker.ask(streaming.PATIENCE, how, folder)
    except OSError as error:
        return error


class _File:
    """The file while it is written."""

    def __init__(self, worker, descriptor, name, where, pool_path):
        self._worker, self._descriptor, self._name, self._where, self._pool_path = worker, descriptor, name, where, pool_path

    def _ask(self, what, *arguments):
        with streaming.told(self._where, "write to"):
            return self._worker.ask(streaming.PATIENCE, what, *arguments)

    def fill(self, blocks, at_least):
        """The length of what was written."""
        shares = self._is_beside_pool()
        looked_at = written = 0
        try:
            self._require(at_least * (2 if shares else 1))
            for block in self._written(blocks):
                written += len(block)
                if written - looked_at >= _LOOK_EACH:
                    self._require(written if shares else 0)
                    looked_at = written
        except OSError as error:
            if error.errno in _FULL:
                raise self._no_room(error.strerror or error) from error
            raise self._broken(self._where, error) from error
        return written

    def _is_beside_pool(self):
        try:
            return self._pool_path is not None and self._ask("is_beside", self._pool_path, self._descriptor)
        except OSError as error:
            raise self._broken(self._pool_path, error) from error

    def _written(self, blocks):
        """The blocks, each once it is written; the next one is made meanwhile."""
        last = None
        for block in blocks:
            if last is not None:
                self._end()
                yield last
            last = block
            with streaming.told(self._where, "write to"):
                self._worker.begin(streaming.PATIENCE, "write", self._descriptor, block)
        if last is not None:
            self._end()
            yield last

    def _end(self):
        with streaming.told(self._where, "write to"):
            self._worker.end(streaming.PATIENCE)

    def _require(self, wanted):
        available, size = self._ask("room", self._descriptor)
        room = available - min(_RESERVE, size // 20)
        if room < wanted or room <= 0:
            raise self._no_room(f"there is room for {max(0, room)} more bytes, and {wanted or 'more'} are needed")

    def _broken(self, folder, error):
        return Kvm2Error(TRANSIENT, "spool", f"{self._name} in {self._where}", f"{folder}: {error.strerror or error}", f"Check the storage of {folder}.")

    def _no_room(self, cause):
        return Kvm2Error(QUOTA, "spool", f"{self._name} in {self._where}", cause, "Free space there, or give a tmpdir with more room.")
