# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work for several objects at the same time over one connection, whose daemon mostly waits for something else: QEMU, the disk, the way there."""

from __future__ import annotations

import threading
from collections import deque

from .._policy.errors import Kvm2Error


def run(connection, jobs, at_once, check_stop):
    """Call the functions, at most `at_once` at the same time. Returns what each came to, in their order: None or the Kvm2Error it raised.

    check_stop(): called before each; what it raises ends the work once those that are being done have ended, and is raised here. What a function
    raises but a Kvm2Error is a fault, and raised here in the same way. A connection that is lost ends those in the middle, and is opened anew, where
    that can be, for those that have not begun.
    """
    outcome, waiting = [None] * len(jobs), deque(enumerate(jobs))
    while waiting:
        # One alone needs no thread, and neither does the last one.
        if at_once == 1 or len(waiting) == 1:
            number, job = waiting.popleft()
            check_stop()
            outcome[number] = _come_to(job)
            continue
        with connection.used_by_several() as is_usable:
            crew = _Crew(waiting, outcome, check_stop, is_usable)
            crew.work(min(at_once, len(waiting)))
    return outcome


class _Crew:
    """Threads that take jobs off `waiting` until there are none, or none should be begun."""

    def __init__(self, waiting, outcome, check_stop, is_usable):
        self._waiting, self._outcome, self._check_stop, self._is_usable = waiting, outcome, check_stop, is_usable
        self._faults = []

    def work(self, number):
        threads = [threading.Thread(target=self._work, name="kvm2-overlap", daemon=True) for _ in range(number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._faults:
            raise self._faults[0]

    def _work(self):
        try:
            while not self._faults:
                try:
                    number, job = self._waiting.popleft()
                except IndexError:
                    return
                self._check_stop()
                self._outcome[number] = _come_to(job)
                if not self._is_usable():
                    return
        # Whatever it was, the thread that asked for the work gets it.
        except BaseException as fault:
            self._faults.append(fault)


def _come_to(job):
    try:
        job()
    except Kvm2Error as error:
        return error
    return None
