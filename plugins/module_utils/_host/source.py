# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sources of bytes: what is common to a file, a spooled file and an answer over HTTP."""

from __future__ import annotations

import os
import stat

from .._policy.errors import PERMANENT, TRANSIENT, InvalidInput, Kvm2Error

# What libvirt's protocol takes in one message, so that each block read is one block sent.
BLOCK = 262120


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


def open_file(path):
    """The Source of a regular file on this machine."""
    name = f"file {path}"
    try:
        # A named pipe would block the opening.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Kvm2Error(PERMANENT, "read", name, error.strerror or error, "src names a file on the machine the module runs on.") from error
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        os.close(descriptor)
        raise InvalidInput(name, "it is not a regular file", "Copy the image into a file.")
    return Source(name, os.fdopen(descriptor, "rb"), facts.st_size)
