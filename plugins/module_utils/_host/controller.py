# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Noticing that whoever started this process has gone: ssh was cut, the job was cancelled. The work then ends at the next safe step."""

from __future__ import annotations

import os
import select
import signal
import threading

from .._policy.errors import TRANSIENT, Kvm2Error
from .deadline import end_now

# A step that does not come to its end within this time after the controller went is cut off, which the protocols stand.
GRACE = 30


class ControllerGone(Exception):
    """Passes through what goes on to the next item after a Kvm2Error: nobody wants the next item any more."""

    def __init__(self):
        super().__init__()
        self.error = Kvm2Error(TRANSIENT, "go on with", "the work", "the controller that asked for it has gone", "Run again.")


class ControllerWatch:
    """A thread that waits for the reader of standard output to go away.

    step() is called before each step on the hypervisor, and raises ControllerGone once: the cleaning up that follows needs further steps.
    check() raises a Kvm2Error each time, for loops and threads that have nothing to clean up themselves. `grace` seconds after the controller
    went, `leave` is called where the work has not ended by then; it has to end the process.
    """

    def __init__(self, leave=end_now, grace=GRACE, descriptor=1):
        self._leave, self._grace, self._descriptor = leave, grace, descriptor
        self._gone, self._done = threading.Event(), threading.Event()
        self._told = False
        self._wake, self._waker = os.pipe()
        self._hangup = self._catch_hangup()
        self._thread = threading.Thread(target=self._watch, name="kvm2-controller", daemon=True)
        self._thread.start()

    @property
    def gone(self):
        return self._gone.is_set()

    def check(self):
        if self.gone:
            self._told = True
            raise ControllerGone().error

    def step(self):
        if self.gone and not self._told and threading.current_thread() is threading.main_thread():
            self._told = True
            raise ControllerGone

    def cancel(self):
        """Stop watching; returns when the thread has ended."""
        self._done.set()
        os.close(self._waker)
        self._thread.join(5)
        if self._hangup is not None:
            signal.signal(signal.SIGHUP, self._hangup)

    def _catch_hangup(self):
        """On a terminal of ssh the end of the connection is a signal that would end the process in the middle of anything."""
        main = threading.current_thread() is threading.main_thread()
        if not main or signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL:
            return None
        return signal.signal(signal.SIGHUP, lambda _number, _frame: self._gone.set())

    def _watch(self):
        poll = select.poll()
        # No event is asked for: errors and hang-ups are reported all the same.
        poll.register(self._descriptor, 0)
        poll.register(self._wake, 0)
        try:
            while not self._done.is_set():
                found = dict(poll.poll())
                if found.get(self._descriptor, 0) & (select.POLLERR | select.POLLHUP):
                    self._gone.set()
                    break
                if self._descriptor in found:
                    # Not open at all: there is nobody to go away.
                    poll.unregister(self._descriptor)
            if not self._done.wait(self._grace if self.gone else None):
                self._leave()
        finally:
            os.close(self._wake)
