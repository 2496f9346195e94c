# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Noticing that whoever started this process has gone, or wants it to end: ssh was cut, the job was cancelled. The work then ends at the next safe
step."""

from __future__ import annotations

import json
import os
import select
import signal
import threading

from .._policy.errors import TRANSIENT, Kvm2Error
from .ending import EndedEarly, before_last_word, leave, plain_failure

# A step that does not come to its end within this time after the controller went is cut off, which the protocols stand.
GRACE = 30
# Seconds between two empty lines for the reader of standard output.
KNOCK = 15
_SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
_GONE = "the controller that asked for it has gone"


class ControllerGone(EndedEarly):
    """The controller has gone, or a signal asked the process to end."""


class ControllerWatch:
    """A thread that waits for the reader of standard output to go away, and for signals that ask the process to end.

    Each `knock` seconds it writes an empty line, which Ansible passes over in front of a result. Where all of Ansible's processes were killed, their
    ssh client lives on and keeps the session, and notices only by something to hand on that there is nobody to take it.

    step() is called before each step on the hypervisor, and raises ControllerGone once: the cleaning up that follows needs further steps.
    check() raises a Kvm2Error each time, for loops and threads that have nothing to clean up themselves. `grace` seconds after the controller
    went, `leave` is called with describe(Kvm2Error) as JSON where the work has not ended by then; it has to end the process.
    """

    def __init__(self, leave=leave, grace=GRACE, descriptor=1, describe=plain_failure, knock=KNOCK):
        self._leave, self._grace, self._descriptor, self._describe = leave, grace, descriptor, describe
        self._knock_each = knock * 1000
        self._gone, self._done = threading.Event(), threading.Event()
        self._why = _GONE
        self._told = False
        self._wake, self._waker = os.pipe()
        self._signals = _Signals()
        self._thread = threading.Thread(target=self._watch, name="kvm2-controller", daemon=True)
        self._thread.start()

    @property
    def gone(self):
        return self._gone.is_set()

    def error(self):
        return Kvm2Error(TRANSIENT, "go on with", "the work", self._why, "Run again.")

    def check(self):
        if self.gone:
            self._told = True
            raise self.error()

    def step(self):
        if self.gone and not self._told and threading.current_thread() is threading.main_thread():
            self._told = True
            raise ControllerGone(self.error())

    def cancel(self):
        """Stop watching; returns when the thread has ended."""
        self._done.set()
        os.close(self._waker)
        self._thread.join(5)
        self._signals.restore()

    def _watch(self):
        poll = select.poll()
        # No event is asked for: errors and hang-ups are reported all the same.
        poll.register(self._descriptor, 0)
        poll.register(self._wake, 0)
        poll.register(self._signals.descriptor, select.POLLIN)
        try:
            while not self._done.is_set() and not self.gone:
                found = dict(poll.poll(self._knock_each))
                if not found:
                    before_last_word(self._knock)
                name = self._signals.read() if self._signals.descriptor in found else None
                if name is not None:
                    self._why = f"this process was asked to end ({name})"
                    self._gone.set()
                elif found.get(self._descriptor, 0) & (select.POLLERR | select.POLLHUP):
                    self._gone.set()
                elif self._descriptor in found:
                    # Not open at all: there is nobody to go away.
                    poll.unregister(self._descriptor)
                    self._knock_each = None
            if not self._done.wait(self._grace if self.gone else None):
                self._leave(json.dumps(dict(self._describe(self.error()), failed=True)))
        finally:
            os.close(self._wake)

    def _knock(self):
        # A terminal may be held up; whoever tells the result waits for this to return.
        if select.select([], [self._descriptor], [], 0)[1]:
            try:
                os.write(self._descriptor, b"\n")
            except OSError:
                self._gone.set()


class _Signals:
    """Signals that would end the process in the middle of anything, caught and written to a pipe: that happens also while the main thread is
    blocked in C, where no handler in Python runs. Those that somebody else handles or ignores are left alone.
    """

    def __init__(self):
        self.descriptor, self._writer = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._writer, False)
        self._caught, self._wakeup = {}, None
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                self._caught[number] = signal.signal(number, lambda _number, _frame: None)
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def read(self):
        """The name of a signal that came, or None."""
        try:
            numbers = os.read(self.descriptor, 100)
        except BlockingIOError:
            return None
        return next((signal.Signals(number).name for number in numbers if number in self._caught), None)

    def restore(self):
        if self._wakeup is not None:
            signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._caught.items():
            signal.signal(number, handler)
        os.close(self.descriptor)
        os.close(self._writer)
