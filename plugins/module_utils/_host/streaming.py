# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The content of a file, read by a process of its own: storage that stops answering in the middle holds up nobody for longer than PATIENCE, and nothing
keeps the module's process from ending."""

from __future__ import annotations

import contextlib
import fcntl
import threading

from .._policy.errors import TRANSIENT, Kvm2Error
from . import storage, storage_worker

# Seconds in which a block has to come or go: a disk under load makes pauses of many seconds, and works.
PATIENCE = 120.0
# Bytes of a file that are hashed before somebody is told of it.
PART = 4 * 1024 ** 2
_F_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", 1031)


class Stream:
    """What a worker reads of a file that it has opened. read(size) and close() as a file has them, close() from any thread.

    read() raises OSError as reading does, and a Kvm2Error where the storage stops answering."""

    def __init__(self, worker, descriptor, path):
        self._worker, self._path = worker, path
        self._lock, self._closing = threading.Lock(), False
        worker.check_stop = self._check(worker.check_stop)
        with contextlib.suppress(OSError):
            # Only the speed depends on it: a user has a limit for all pipes together.
            fcntl.fcntl(worker.answers, _F_SETPIPE_SZ, storage_worker.PIPE)
        with told(path, "read"):
            worker.begin(PATIENCE, "send", descriptor)

    def _check(self, check_stop):
        def check():
            if self._closing:
                raise storage.stopped(self._path, "read", "it was closed in the middle")
            check_stop()
        return check

    def read(self, size):
        """So many bytes, fewer at the end only."""
        pieces = []
        with self._lock, told(self._path, "read"):
            while size:
                self._worker.check_stop()
                piece = self._worker.bare(size, PATIENCE)
                if not piece:
                    break
                pieces.append(piece)
                size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self):
        self._closing = True
        with self._lock:
            self._worker.close()


@contextlib.contextmanager
def told(path, act):
    """Storage that does not answer inside, and a helper that ends, as a Kvm2Error that names them."""
    try:
        yield
    except storage.Ended as problem:
        raise storage.no_helper(problem) from problem
    except storage.NoAnswer as problem:
        raise storage.stopped(path, act, f"no answer within {PATIENCE:g} s") from problem


def sha256(path, tell, check_stop):
    """Hex sha256 of a file as it can be read from now on. tell(bytes that are read) is called now and then.

    check_stop(): called in each wait; what it raises ends it. The process that reads hashes too, beside whatever this one does."""
    worker, done = storage.start(check_stop), 0
    try:
        with told(path, "read"):
            descriptor = worker.ask(PATIENCE, "open_file", path)
            while True:
                check_stop()
                size, digest = worker.ask(PATIENCE, "hash_on", descriptor, PART)
                done += size
                tell(done)
                if size < PART:
                    return digest
    except OSError as error:
        raise Kvm2Error(TRANSIENT, "read", f"file {path}", error.strerror or error, "Check the storage below the pool.") from error
    finally:
        worker.close()
