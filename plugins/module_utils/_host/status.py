# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The small file in which a long step says how far it is, for the action plugin that reads it over a connection of its own."""

from __future__ import annotations

import os
import threading
import time

from .._policy import progress

EACH = 1.0


class StatusFile:
    """token names the folder, by progress.folder(); None where nobody reads. The folder is made by the first write, is this user's alone, and must
    not have been there: nobody else can put a file or a link in its place. Where it cannot be written there is no progress, and no error.
    """

    def __init__(self, token, clock=time.monotonic):
        self._clock = clock
        self._path = progress.folder(token)
        self._closed = self._path is None
        self._descriptor = None
        self._lock = threading.Lock()
        self._phase, self._began, self._written = None, 0.0, 0.0

    def write(self, done, total, phase):
        """Note it, once a second at most; from any thread."""
        with self._lock:
            now = self._clock()
            if self._closed or (phase == self._phase and now - self._written < EACH):
                return
            if phase != self._phase:
                self._phase, self._began = phase, now
            self._written = now
            try:
                self._replace(progress.render(progress.Sample(phase, done, total, now - self._began)))
            except OSError:
                self._remove()

    def remove(self):
        """Take it away again; nothing is written afterwards."""
        with self._lock:
            self._remove()

    def _replace(self, data):
        if self._descriptor is None:
            os.mkdir(self._path, 0o700)
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        new = os.open("new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._descriptor)
        try:
            os.write(new, data)
        finally:
            os.close(new)
        os.replace("new", progress.FILE, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def _remove(self):
        self._closed = True
        if self._descriptor is None:
            return
        for name in ("new", progress.FILE):
            try:
                os.unlink(name, dir_fd=self._descriptor)
            except OSError:
                pass
        os.close(self._descriptor)
        self._descriptor = None
        try:
            os.rmdir(self._path)
        except OSError:
            pass
