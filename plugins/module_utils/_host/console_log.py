# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A console's log on this machine: its end is read, and it is removed. It is a guest's own text at a path that a domain's XML gives, so it is read
with care."""

from __future__ import annotations

import os
import re
import stat

from .._policy.names import CONSOLE_LOGS


def tail(path, length):
    """(the last bytes of a log, at most `length`; are they all of it), or None where it cannot be seen.

    libvirt's log daemon moves a full log to PATH.0 and begins anew, so that one is read too where the new one is short.
    """
    found, whole = _end(path, length)
    if found is None:
        return None
    if len(found) < length:
        former, whole = _end(f"{path}.0", length - len(found))
        return (former or b"") + found, former is None or whole
    return found, whole


def _end(path, length):
    """(bytes, do they begin with the file), (None, True) for what is no regular file, cannot be opened or read."""
    try:
        # Neither a symlink nor a pipe that somebody put there is followed or waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None, True
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None, True
        begin = max(0, status.st_size - length)
        return os.pread(descriptor, length, begin), begin == 0
    except OSError:
        return None, True
    finally:
        os.close(descriptor)


def removable(folder=CONSOLE_LOGS):
    return os.access(folder, os.W_OK | os.X_OK)


def remove(path):
    """Delete a log and what the log daemon has moved aside of it, PATH.0 and so on. True where something went."""
    folder, name = os.path.split(path)
    pieces, gone = re.compile(re.escape(name) + r"(\.\d+)?"), False
    try:
        found = os.listdir(folder)
    except OSError:
        return False
    for piece in found:
        if pieces.fullmatch(piece):
            try:
                os.unlink(os.path.join(folder, piece))
                gone = True
            except OSError:
                # Gone already, or not ours to remove: then it stays, and nothing else depends on it.
                continue
    return gone
