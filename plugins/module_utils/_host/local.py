# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filesystem below a pool, where the module runs on the hypervisor itself. Storage that does not answer is a Kvm2Error, never a wait for ever."""

from __future__ import annotations

import os
import threading

from .._policy.errors import TRANSIENT, Kvm2Error
from . import storage

# Writing out what a slow disk still has to write takes minutes; nothing that works takes longer.
SYNC_PATIENCE = 900.0
# What a sync gets that nobody wants any more: what has to be undone then is still to come.
LEFT_PATIENCE = 5.0


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


class Syncer:
    """Writes a file's pages to the disk while something else fills it, so that little is left to do at the end.

    The file is kept open from the start, since only then every write error of it is told here. Use as a context manager; finish() begins the
    last sync, that of the folder with it, and wait() raises what went wrong in any of them. A process of its own does it, which is left behind
    where the storage stops answering. check_stop(): called while wait() waits; what it raises ends that.
    """

    INTERVAL = 0.2

    def __init__(self, path, check_stop=storage.nothing, patience=SYNC_PATIENCE):
        self._path, self._check_stop, self._patience = path, check_stop, patience
        self._filled, self._leave = threading.Event(), threading.Event()
        self._error = None
        self._worker = storage.start()
        try:
            self._descriptor = self._worker.ask(storage.PATIENCE, "open_file", path)
        except (OSError, storage.NoAnswer) as error:
            self._worker.close()
            raise self._failure(error) from error
        self._thread = threading.Thread(target=self._run, name="kvm2-sync", daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, kind, *_problem):
        # Left early, also in the middle of the last sync, it must not wait for storage that may never answer.
        early = kind is not None or not self._filled.is_set()
        self._leave.set()
        self._filled.set()
        self._thread.join(LEFT_PATIENCE if early else None)
        if self._thread.is_alive():
            # The thread sees the end of the worker, and lets go of it itself.
            self._worker.kill()
            self._thread.join(storage.LEAVE)
        if not self._thread.is_alive():
            self._worker.close()

    def _run(self):
        try:
            while not self._filled.wait(self.INTERVAL):
                self._worker.ask(self._patience, "fdatasync", self._descriptor)
            if not self._leave.is_set():
                self._worker.ask(self._patience, "fsync", self._descriptor)
                self._worker.ask(self._patience, "fsync_folder", os.path.dirname(self._path))
        except (OSError, storage.NoAnswer) as error:
            self._error = error

    def finish(self):
        self._filled.set()

    def wait(self):
        self._thread.join(storage.LOOK)
        while self._thread.is_alive():
            self._check_stop()
            self._thread.join(storage.LOOK)
        if self._error is not None:
            raise self._failure(self._error) from self._error

    def _failure(self, error):
        if isinstance(error, storage.NoAnswer):
            return storage.stopped(self._path, "make durable what lies on", str(error) or f"no answer within {self._patience:g} s")
        return Kvm2Error(TRANSIENT, "make durable", f"file {self._path}", error.strerror or error, "Check the storage below the pool.")


def filesystem_type(path):
    """Type of the filesystem a path lies on, by the mount table; None where that cannot be told."""
    path, best, kind = realpath(path), "", None
    for folder, type_of_it in storage.mounts():
        if (path == folder or path.startswith(folder.rstrip("/") + "/")) and len(folder) >= len(best):
            best, kind = folder, type_of_it
    return kind
