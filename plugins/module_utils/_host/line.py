# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What libvirt opens below a connection, its socket and its ssh, so that a call which waits for the peer can be freed from another thread."""

from __future__ import annotations

import os
import socket

from . import ending


class Line:
    """Made right before the connection is opened; opened() says that it is there. Nothing else in the process may open sockets in between.

    libvirt offers no way to interrupt a call. Where its socket is shut down, the call fails as it does when the peer closes.
    """

    def __init__(self, starts_children):
        """starts_children: False where libvirt starts no program for the connection, so that none has to be looked for."""
        self._starts_children = starts_children
        self._sockets_before, self._children_before = _sockets(), self._all_children()
        self._sockets = self._children = None

    def opened(self):
        self._sockets, self._children = self._new_sockets(), self._new_children()

    def cut(self):
        """Shut the sockets down and end the children, as far as they are still there."""
        started = self._new_children() if self._children is None else self._children
        if started:
            ending.end_children(started)
        for descriptor, inode in self._new_sockets() if self._sockets is None else self._sockets:
            _shut_down(descriptor, inode)

    def _new_sockets(self):
        return _sockets() - self._sockets_before

    def _new_children(self):
        return self._all_children() - self._children_before

    def _all_children(self):
        return frozenset(ending.children()) if self._starts_children else frozenset()


def _sockets():
    """(descriptor, inode) of every socket of this process; none where there is no Linux's /proc, and then nothing is shut down."""
    found = set()
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return found
    for name in names:
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add((int(name), int(target[len("socket:["):-1])))
    return found


def _shut_down(descriptor, inode):
    try:
        # A copy, so that the number cannot come to mean another file while it is looked at.
        copy = os.dup(descriptor)
    except OSError:
        return
    try:
        if os.fstat(copy).st_ino != inode:
            os.close(copy)
            return
        with socket.socket(fileno=copy) as line:
            line.shutdown(socket.SHUT_RDWR)
    except OSError:
        # Not connected any more.
        pass
