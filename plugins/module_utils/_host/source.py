# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sources of bytes: what is common to a file, a spooled file and an answer over HTTP."""

from __future__ import annotations

from .._policy.errors import PERMANENT, TRANSIENT, InvalidInput, Kvm2Error
from . import storage, streaming

# What is read at once, and sent in one message: less than libvirt's protocol takes, since whole pages that stay in the processor's cache go through its
# daemon in half the time.
BLOCK = 131072


class Source:
    """An open source, name as in messages. length is in bytes, or None where it is not known beforehand."""

    etag = None
    last_modified = None

    def __init__(self, name, handle, length):
        self.name = name
        self.length = length
        self._handle = handle

    def blocks(self):
        """Blocks of the content; one that ends before its announced length, or goes on after it, is a transient error."""
        have = 0
        while True:
            try:
                block = self._handle.read(BLOCK)
            except OSError as error:
                raise Kvm2Error(TRANSIENT, "read", self.name, error.strerror or error, "Try again.") from error
            have += len(block)
            if self.length is not None and (have > self.length or (not block and have < self.length)):
                raise Kvm2Error(
                    TRANSIENT, "read", self.name, f"it announced {self.length} bytes and gave {'more' if have > self.length else have}",
                    "Something changes it; try again once it stays as it is.")
            if not block:
                return
            yield block

    def close(self):
        self._handle.close()


def open_file(path, check_stop=storage.nothing):
    """The Source of a regular file on this machine. check_stop(): called in each wait for it; what it raises ends that."""
    name = f"file {path}"
    worker = storage.start(check_stop)
    try:
        with streaming.told(path, "open"):
            found = worker.ask(streaming.PATIENCE, "open_regular", path)
        if found is None:
            raise InvalidInput(name, "it is not a regular file", "Copy the image into a file.")
        return Source(name, streaming.Stream(worker, found[0], path), found[1])
    except OSError as error:
        worker.close()
        raise Kvm2Error(PERMANENT, "read", name, error.strerror or error, "src names a file on the machine the module runs on.") from error
    except BaseException:
        worker.close()
        raise
