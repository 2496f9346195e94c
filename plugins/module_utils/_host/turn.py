# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking turns with other runs on this machine, to save double work. Nothing is right because of it: where no lock can be had there is none."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import tempfile
import threading
import time

_LOOK_EACH = 0.3


class Turn:
    """A turn that was taken: others wait until it is released, or this process ends in whatever way. held: False where none could be had."""

    def __init__(self, path=None, descriptor=None):
        self._path = path
        self._descriptor = descriptor

    @property
    def held(self):
        return self._descriptor is not None

    def release(self):
        if self._descriptor is not None:
            # While it is still held, so that nobody else's file goes.
            _quietly(os.unlink, self._path)
            os.close(self._descriptor)
            self._descriptor = None


def no_turn(what, patience, waiting):
    """In the place of `take` where nothing may be written."""
    return Turn()


def take(what, patience, waiting):
    """The Turn for `what` (a text that says which work is meant), once nobody else on this machine has it; after `patience` seconds without it.

    waiting(seconds) is called again and again while somebody else has it.
    """
    folder = _folder()
    if folder is None:
        return Turn()
    path = os.path.join(folder, hashlib.sha256(what.encode()).hexdigest()[:32])
    began = time.monotonic()
    while True:
        turn = _try(path)
        waited = time.monotonic() - began
        if turn is not None or waited > patience:
            return turn or Turn()
        waiting(waited)
        threading.Event().wait(_LOOK_EACH)


def _try(path):
    """A Turn, one that is not held where the lock does not work here, or None where somebody else has it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return Turn()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever had it before has removed its file: a lock on that keeps nobody away.
        current = os.stat(path, follow_symlinks=False).st_ino == os.fstat(descriptor).st_ino
    except OSError as error:
        os.close(descriptor)
        return None if error.errno in (errno.EWOULDBLOCK, errno.ENOENT, errno.EINTR) else Turn()
    if current:
        return Turn(path, descriptor)
    os.close(descriptor)
    return None


def _folder():
    """A folder that is this user's alone, or None."""
    if os.geteuid() == 0 and os.path.isdir("/run"):
        path = "/run/egress-kvm2"
    else:
        path = os.path.join(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir(), f"egress-kvm2-{os.geteuid()}")
    _quietly(os.mkdir, path, 0o700)
    try:
        facts = os.lstat(path)
    except OSError:
        return None
    return path if stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o022 else None


def _quietly(function, *arguments):
    try:
        function(*arguments)
    except OSError:
        pass
