# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hard deadline for the whole process, which holds even where a call is blocked in C and no Python exception can reach it."""

from __future__ import annotations

import json
import threading
import time

from .._policy.errors import TRANSIENT, Kvm2Error
from .ending import EndedEarly, leave, plain_failure

# Seconds after the time is over. First the work is asked to end, and may still clean up; then the connection is cut, which frees a call that
# waits for the peer; what is still blocked then ends together with the process.
CUT, LEAVE = 2.0, 4.0
# Where nothing but a connection is being opened there is nothing to clean up.
LEAVE_OPENING = 2.0

_HINT = "Check that the hypervisor and its storage answer (virsh -c URI list; virsh pool-refresh), or raise the timeout; then run again."


class DeadlinePassed(EndedEarly):
    """The whole time is over."""


class Deadline:
    """A thread that ends the work when a time is over, and the process where the work does not end.

    narrow(seconds, act, object, hint) sets a nearer limit for one act, widen() takes it back. `cut` is called to free what waits for the peer;
    whoever opens a connection sets it. A process that has to be ended prints describe(Kvm2Error) as JSON before, ends its children (libvirt's
    ssh), and exits. step(), check() and passed tell the work that its time is over.
    """

    def __init__(self, seconds, uri, clock=time.monotonic, leave=leave, describe=plain_failure):
        self._clock = clock
        self._leave, self._describe = leave, describe
        self._overall = _Limit(
            clock() + seconds, "finish within its timeout the work on", f"hypervisor {uri}", f"it is not done after {seconds:g} s", _HINT,
            [(0.0, self._stop), (CUT, self._cut), (LEAVE, self._end)])
        self._near = None
        self._told = False
        self.cut = None
        self._changed = threading.Condition()
        self._done = False
        self._thread = threading.Thread(target=self._watch, name="kvm2-deadline", daemon=True)
        self._thread.start()

    def narrow(self, seconds, act, obj, hint=_HINT):
        with self._changed:
            self._near = _Limit(
                self._clock() + seconds, act, obj, f"no answer within {seconds:g} s", hint, [(0.0, self._cut), (LEAVE_OPENING, self._end)])
            self._changed.notify()

    def working_on(self, act, obj):
        """Say what goes on from here, so that a failure at the overall limit names it."""
        self._overall.act, self._overall.obj = act, obj

    def widen(self):
        with self._changed:
            self._near = None
            self._changed.notify()

    def cancel(self):
        """Stop watching; returns when the thread has ended."""
        with self._changed:
            self._done = True
            self._changed.notify()
        self._thread.join(5)

    def remaining(self):
        """Seconds left of the overall time, at least 0."""
        return max(0.0, self._overall.at - self._clock())

    @property
    def passed(self):
        """The Kvm2Error of the limit that is over, or None."""
        return next((limit.error() for limit in (self._near, self._overall) if limit is not None and limit.over), None)

    def check(self):
        """Raise a Kvm2Error where the time is over; for loops and threads."""
        error = self.passed
        if error is not None:
            raise error

    def step(self):
        """Raise DeadlinePassed once where the whole time is over: the cleaning up that follows needs further steps."""
        if self._overall.over and not self._told and threading.current_thread() is threading.main_thread():
            self._told = True
            raise DeadlinePassed(self._overall.error())

    def _watch(self):
        error = self._last()
        # Without the lock: whoever is to print the result must not wait for this thread.
        if error is not None:
            self._end(error)

    def _last(self):
        """Go through the stages. The error of the limit at which the process has to end, or None where the work is done before."""
        with self._changed:
            while not self._done:
                limit = self._overall
                if self._near is not None and self._near.due() < limit.due():
                    limit = self._near
                left = limit.due() - self._clock()
                if left > 0:
                    self._changed.wait(left)
                    continue
                limit.over = True
                act = limit.stages.pop(0)[1]
                if act == self._end:
                    return limit.error()
                act()
        return None

    def _stop(self):
        """limit.over is what the work looks at."""

    def _cut(self):
        cut = self.cut
        if cut is not None:
            cut()

    def _end(self, error):
        self._leave(json.dumps(dict(self._describe(error), failed=True)))


class _Limit:
    """at: when the time is over.  stages: what is done then, as (seconds after it, function)."""

    def __init__(self, at, act, obj, cause, hint, stages):
        self.at, self.act, self.obj, self.cause, self.hint, self.stages = at, act, obj, cause, hint, stages
        self.over = False

    def due(self):
        return self.at + self.stages[0][0]

    def error(self):
        return Kvm2Error(TRANSIENT, self.act, self.obj, self.cause, self.hint)
