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
        self._over = threading.Event()

    def work(self, number):
        # Only what has several objects to work for needs it.
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(number, "kvm2-overlap") as threads:
            works = [threads.submit(self._work) for _worker in range(number)]
        for work in works:
            # Raises what ended it.
            work.result()

    def _work(self):
        ended_well = False
        try:
            while not self._over.is_set() and self._do_one():
                pass
            ended_well = True
        finally:
            if not ended_well:
                self._over.set()

    def _do_one(self):
        """Is there another one to be begun?"""
        try:
            number, job = self._waiting.popleft()
        except IndexError:
            return False
        self._check_stop()
        self._outcome[number] = _come_to(job)
        return self._is_usable()


def _come_to(job):
    try:
        job()
    except Kvm2Error as error:
        return error
    return None
