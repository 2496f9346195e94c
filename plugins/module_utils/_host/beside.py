# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work on a file while something else fills it: its pages are written to the disk, and what is in it already is hashed, so that little is left to do
at the end."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod

from .._policy.errors import TRANSIENT, Kvm2Error
from . import storage
from .streaming import PART, PATIENCE

# Writing out what a slow disk still has to write takes minutes; nothing that works takes longer.
SYNC_PATIENCE = 900.0
# What the work gets once nobody wants it any more: what has to be undone then is still to come.
LEFT_PATIENCE = 5.0


class Beside(ABC):
    """A thread that has a process of its own do the work, which is left behind where the storage stops answering.

    Use as a context manager; its process starts at once, so that it is there when begin() names the file. That is kept open from then on. finish()
    says that the file is filled, and wait() raises what went wrong.
    check_stop(): called while wait() waits; what it raises ends that. patience: seconds that the storage gets for each step.
    """

    _name = _act = ""
    # The worker's function that opens the file.
    _open = "open_file"

    def __init__(self, check_stop, patience):
        self._check_stop, self._patience = check_stop, patience
        self._filled, self._leave = threading.Event(), threading.Event()
        self._worker = self._path = self._opened = self._error = None
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)

    def __enter__(self):
        self._worker = storage.start()
        return self

    def begin(self, path):
        """The file is there, and holds nothing yet."""
        self._path = path
        try:
            self._opened = self._worker.ask(storage.PATIENCE, self._open, path)
        except (OSError, storage.NoAnswer) as error:
            raise self._failure(error) from error
        self._thread.start()

    def __exit__(self, kind, *_problem):
        if self._thread.ident is None:
            self._worker.close()
            return
        # Left early, also in the middle of its last step, it must not wait for storage that may never answer.
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
            self._work()
        except (OSError, storage.NoAnswer) as error:
            self._error = error

    @abstractmethod
    def _work(self):
        """Do it, until _filled and what is to be done after that; at once to its end where _leave is set."""

    def _ask(self, name, *arguments):
        return self._worker.ask(self._patience, name, *arguments)

    def finish(self):
        self._filled.set()

    def wait(self, tell=storage.nothing):
        """Return once all is done. tell(): called at its beginning, and while it waits."""
        tell()
        self._thread.join(storage.LOOK)
        while self._thread.is_alive():
            self._check_stop()
            tell()
            self._thread.join(storage.LOOK)
        if self._error is not None:
            raise self._failure(self._error) from self._error

    def _failure(self, error):
        if isinstance(error, storage.Ended):
            return storage.no_helper(error)
        if isinstance(error, storage.NoAnswer):
            return storage.stopped(self._path, f"{self._act} what lies on", f"no answer within {self._patience:g} s")
        return Kvm2Error(TRANSIENT, self._act, f"file {self._path}", error.strerror or error, "Check the storage below the pool.")


class Syncer(Beside):
    """Writes a file's pages to the disk; after finish() the last of them, and the folder. Only since it has the file open from the start is every
    write error of it told here."""

    # Seconds between two.
    INTERVAL = 0.1
    _name, _act = "kvm2-sync", "make durable"

    def __init__(self, check_stop=storage.nothing, patience=SYNC_PATIENCE):
        super().__init__(check_stop, patience)

    def _work(self):
        while not self._filled.wait(self.INTERVAL):
            self._ask("fdatasync", self._opened)
        if not self._leave.is_set():
            self._ask("fsync", self._opened)
            self._ask("fsync_folder", os.path.dirname(self._path))


class Hasher(Beside):
    """Reads a file that is filled from its beginning to its end, behind whoever fills it: digest is the hex sha256 of what was read once wait() has
    returned, None where the path names another file by then; done are the bytes.

    How far the file is filled the filesystem tells: what was allocated and is not written yet is a hole. Nothing leans on its being right: what is
    read too early is another digest, as is everything else that is not what was meant, and only the right digest says anything. Each byte was read
    after it was written, in the file that has the name at the end; what is changed behind a reader no reading back sees, whenever it is done.
    """

    # Bytes kept from the first that is not written yet, more than is ever written half.
    BEHIND = 1024 ** 2
    PAUSE = 0.05
    _name, _act, _open = "kvm2-read-back", "read", "open_unwritten"

    def __init__(self, check_stop=storage.nothing, patience=PATIENCE):
        self.done, self.digest = 0, None
        super().__init__(check_stop, patience)

    def _work(self):
        descriptor, follows = self._opened
        while not self._filled.wait(self.PAUSE):
            while follows and not self._filled.is_set() and self._took("hash_written", descriptor, PART, self.BEHIND) == PART:
                pass
        while not self._leave.is_set() and self._took("hash_on", descriptor, PART) == PART:
            pass
        if not self._leave.is_set() and not self._ask("is_same", self._path, descriptor):
            self.digest = None

    def _took(self, how, *arguments):
        size, self.digest = self._ask(how, *arguments)
        self.done += size
        return size
