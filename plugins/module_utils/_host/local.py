# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filesystem below a pool, where the module runs on the hypervisor itself."""

from __future__ import annotations

import os
import threading

from .._policy.errors import TRANSIENT, Kvm2Error


def realpath(path):
    return os.path.realpath(path)


def exists(path):
    return os.path.exists(path)


class Syncer:
    """Writes a file's pages to the disk while something else fills it, so that little is left to do at the end.

    The file is kept open from the start, since only then every write error of it is told here. Use as a context manager; finish() begins the
    last sync, that of the folder with it, and wait() raises what went wrong in any of them.
    """

    INTERVAL = 0.2

    def __init__(self, path):
        self._path = path
        self._filled, self._leave = threading.Event(), threading.Event()
        self._error = None
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise self._failure(error) from error
        self._thread = threading.Thread(target=self._run, name="kvm2-sync", daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_problem):
        self._leave.set()
        self._filled.set()
        self._thread.join()
        os.close(self._descriptor)

    def _run(self):
        try:
            while not self._filled.wait(self.INTERVAL):
                os.fdatasync(self._descriptor)
            if not self._leave.is_set():
                os.fsync(self._descriptor)
                _sync_folder(os.path.dirname(self._path))
        except OSError as error:
            self._error = error

    def finish(self):
        self._filled.set()

    def wait(self):
        self._thread.join()
        if self._error is not None:
            raise self._failure(self._error) from self._error

    def _failure(self, error):
        return Kvm2Error(TRANSIENT, "make durable", f"file {self._path}", error.strerror or error, "Check the storage below the pool.")


def _sync_folder(path):
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
