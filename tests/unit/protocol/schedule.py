# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several real runs over one machine, one call at a time: a schedule says who makes the next call, so that any interleaving can be played.

A run is a function of its Hypervisor, and runs in a thread of its own that only moves while it is its turn.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Optional

from ansible_collections.egress.kvm2.tests.unit.fake.calls import WRITING, Killed
from ansible_collections.egress.kvm2.tests.unit.fake.hypervisor import FakeHypervisor

# What a run learns from these cannot be changed by another run of ours, so a switch right before one of them is the same as one after it.
INDIFFERENT = frozenset(("host", "networks", "domain_capabilities", "pools", "pool", "addresses", "leases", "refresh_pool"))
LIMIT = 5000


class Segment(NamedTuple):
    """A run moves until it has made `calls` calls or `writes` writes in this segment, or to its end where both are None.

    brink: and on to right before its next write, so that it has read all that this write is decided by.  kill: it is then killed, before
    its next call.
    """

    run: int
    calls: Optional[int] = None
    writes: Optional[int] = None
    brink: bool = False
    kill: bool = False


class Run:
    """job: what it does with its Hypervisor.  watch: hooks that a test wants, given the Hypervisor; None for none."""

    def __init__(self, job, machine, uri, watch=None):
        self.hypervisor = FakeHypervisor(machine, uri)
        self.hypervisor.hook("*", self._pause)
        # After the pause: what the hooks see is what the call meets.
        if watch is not None:
            watch(self.hypervisor)
        self.calls, self._dying = [], False
        self._go, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self._threads = ThreadPoolExecutor(1)
        self._work = self._threads.submit(job, self.hypervisor)
        self._work.add_done_callback(lambda work: self._paused.release())
        self._paused.acquire()

    def _pause(self, *_args):
        self._paused.release()
        self._go.acquire()
        if self._dying:
            raise Killed

    @property
    def finished(self):
        return self._work.done()

    @property
    def killed(self):
        return self.hypervisor.killed

    @property
    def next(self):
        """The operation that it is about to call."""
        return self.hypervisor.calls[-1].operation

    def step(self):
        self.calls.append(self.next)
        self._go.release()
        self._paused.acquire()

    def kill(self):
        if not self.finished:
            self._dying = True
            self._go.release()
            self._paused.acquire()
        self._threads.shutdown()

    @property
    def result(self):
        """What the job returned, None where it was killed; what it raised otherwise is raised here."""
        return None if self.killed else self._work.result()


def play(machine, jobs, segments, uri="qemu:///system"):
    """Play the segments, then every run to its end in order. jobs: (job, watch) pairs as Run takes them. Returns the Runs."""
    runs = []
    try:
        runs.extend(Run(job, machine, uri, watch) for job, watch in jobs)
        for segment in (*segments, *(Segment(number) for number in range(len(runs)))):
            _move(runs[segment.run], segment)
    finally:
        for run in runs:
            run.kill()
    return runs


def _move(run, segment):
    calls = writes = 0
    while not run.finished:
        enough = (segment.calls is not None and calls >= segment.calls) or (segment.writes is not None and writes >= segment.writes)
        if enough and (not segment.brink or run.next in WRITING):
            break
        calls += 1
        writes += run.next in WRITING
        run.step()
        if calls > LIMIT:
            raise RuntimeError("a run does not come to its end")
    if segment.kill:
        run.kill()


def switches(make_machine, jobs, first, other):
    """Schedules in which `first` stops once, `other` goes on to right after or right before one of its writes, then `first` to its end, and
    `other` to its own.

    Switches that change nothing are left out, and among reads in a row every third one.
    """
    for calls in pauses(make_machine, jobs, first, thin=True):
        played = play(make_machine(), jobs, [Segment(first, calls=calls), Segment(other)])
        most = sum(operation in WRITING for operation in played[other].calls)
        for writes in range(most + 1):
            for brink in (True, False):
                # Not at all, or to its end: there is one way for each.
                if (writes, brink) not in ((0, False), (most, False)):
                    yield [Segment(first, calls=calls), Segment(other, writes=writes, brink=brink), Segment(first), Segment(other)]


def pauses(make_machine, jobs, first, thin=False):
    """After how many of its calls a run may be stopped so that it makes a difference: none of them to all of them.

    thin: of the places between two reads only every third one.
    """
    alone = play(make_machine(), jobs, [Segment(first)])[first].calls
    found = []
    for calls, (before, following) in enumerate(zip([None, *alone], [*alone, None], strict=True)):
        beside_write = before in WRITING or following in WRITING
        if following not in INDIFFERENT and (beside_write or not thin or calls % 3 == 0):
            found.append(calls)
    return found
