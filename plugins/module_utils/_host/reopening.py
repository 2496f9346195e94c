# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which calls go on over another connection when their own was closed, as a daemon that is restarted does.

All of a hypervisor's methods name what they work on, so nothing of the old connection is needed on the new one. A read is only later then, and the
protocols stand any delay between two steps. A change may have been made or not, so it fails, and the next run looks. Over another connection nothing
goes on but on the same machine, told by its hostname.
"""

from __future__ import annotations

import functools
import threading

from .._policy.errors import Kvm2Error

# Seconds in which libvirt has to tell why a connection ended.
REASON = 2.0
# VIR_CONNECT_CLOSE_REASON_ERROR and _EOF; a peer that went silent (_KEEPALIVE) closes nothing.
_BY_PEER = (0, 1)


def reads(method):
    """A method of a Connection that changes nothing: it is begun anew on another connection where the one that it used was closed in the middle."""
    @functools.wraps(method)
    def read(self, *arguments, **more):
        self.revive()
        while True:
            try:
                return method(self, *arguments, **more)
            except Kvm2Error:
                if not self.revive():
                    raise
    return read


def writes(method):
    """A method of a Connection that changes something: it is never repeated, but it gets another connection where the last one is known to be closed
    before it begins."""
    @functools.wraps(method)
    def write(self, *arguments, **more):
        self.revive()
        return method(self, *arguments, **more)
    return write


def are_of_one_machine(one, other):
    """Are these hostnames of the same machine? A daemon adds the domain where its resolver tells it, which may not answer each time."""
    one, other = one.lower(), other.lower()
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


class Closed(threading.Event):
    """Set once a connection has ended, with the reason that libvirt gives."""

    reason = None

    def by_peer(self):
        return self.wait(REASON) and self.reason in _BY_PEER
