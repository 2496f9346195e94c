# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several jobs at the same time over one connection: how many, in which order they are told, and what ends them early."""

from __future__ import annotations

import contextlib
import threading

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import libvirt_connection, overlapping
from ansible_collections.egress.kvm2.plugins.module_utils._host.deadline import Deadline
from ansible_collections.egress.kvm2.plugins.module_utils._host.libvirt_hypervisor import LibvirtHypervisor
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import TRANSIENT, Kvm2Error

# Seconds that nothing here takes; a test in which somebody waits in vain fails.
BOUND = 20


class Connection:
    """usable: what it is, each time it is opened; calls lists how often that was."""

    def __init__(self):
        self.usable, self.opened = True, 0

    @contextlib.contextmanager
    def used_by_several(self):
        self.opened += 1
        self.usable = True
        yield lambda: self.usable


@pytest.fixture
def connection():
    before = set(threading.enumerate())
    yield Connection()
    assert set(threading.enumerate()) == before


def run(connection, jobs, at_once, check_stop=lambda: None):
    return overlapping.run(connection, jobs, at_once, check_stop)


@pytest.mark.parametrize(("jobs", "at_once", "most"), [(5, 2, 2), (3, 8, 3), (4, 4, 4)])
def test_so_many_are_done_at_the_same_time_and_no_more(connection, jobs, at_once, most):
    lock, inside, seen, together = threading.Lock(), [], [], threading.Event()

    def job():
        with lock:
            inside.append(1)
            seen.append(len(inside))
            if len(inside) == most:
                together.set()
        assert together.wait(BOUND)
        with lock:
            inside.pop()
    assert run(connection, [job] * jobs, at_once) == [None] * jobs
    assert max(seen) == most


@pytest.mark.parametrize(("jobs", "at_once"), [(3, 1), (1, 4), (0, 4)])
def test_one_at_a_time_needs_no_thread(connection, jobs, at_once):
    threads = []
    assert run(connection, [lambda: threads.append(threading.current_thread())] * jobs, at_once) == [None] * jobs
    assert threads == [threading.current_thread()] * jobs and connection.opened == 0


def test_each_is_told_what_it_came_to_whichever_is_ready_first(connection):
    first_may_end, done = threading.Event(), []
    refused = Kvm2Error("conflict", "start", "domain two", "it has gone")

    def one():
        assert first_may_end.wait(BOUND)
        done.append("one")

    def two():
        done.append("two")
        raise refused

    def three():
        done.append("three")
        first_may_end.set()
    assert run(connection, [one, two, three], 2) == [None, refused, None]
    assert done == ["two", "three", "one"]


def test_a_stop_is_raised_once_those_in_the_middle_have_ended(connection):
    stop, others = threading.Event(), threading.Event()
    ended, begun = [], []
    gone = Kvm2Error(TRANSIENT, "go on with", "the work", "the controller has gone")

    def check():
        if stop.is_set():
            others.set()
            raise gone

    def slow():
        begun.append("slow")
        assert others.wait(BOUND)
        ended.append("slow")

    def quick():
        begun.append("quick")
        stop.set()
    with pytest.raises(Kvm2Error) as caught:
        run(connection, [slow, quick, quick, quick], 2, check)
    assert caught.value is gone and ended == ["slow"] and begun in (["slow", "quick"], ["quick", "slow"])


def test_a_fault_of_the_code_is_raised_and_nothing_further_begun(connection):
    done = []

    def broken():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(connection, [broken, broken, *[lambda: done.append(1)] * 9], 2)
    assert done == []


def test_over_a_lost_connection_nothing_is_begun_and_the_rest_goes_on_over_another_one(connection):
    lost, over = Kvm2Error(TRANSIENT, "start", "domain x", "End of file"), []

    def loses():
        connection.usable = False
        raise lost

    def goes_on():
        over.append(connection.opened)
    outcome = run(connection, [loses, loses, *[goes_on] * 4], 2)
    # A thread may have got to its first job only when the other one had lost the connection: it does that one and no more.
    assert outcome == [lost, lost, None, None, None, None] and connection.opened == 2 and over == [2] * 4


def test_where_it_stays_lost_each_is_tried_once(connection):
    lost = Kvm2Error(TRANSIENT, "start", "domain x", "End of file")

    def loses():
        connection.usable = False
        raise lost
    assert run(connection, [loses] * 7, 3) == [lost] * 7


def test_under_several_threads_a_connection_is_not_opened_anew(monkeypatch):
    libvirt = libvirt_connection.libvirt
    opened, real = [], libvirt.open
    monkeypatch.setattr(libvirt, "open", lambda uri: opened.append(uri) or real(uri))
    deadline = Deadline(600, "test:///default", leave=lambda text: None)
    hypervisor = LibvirtHypervisor("test:///default", deadline)
    names, both = [], threading.Barrier(2, timeout=BOUND)

    def breaks():
        both.wait()
        libvirt_connection._note(None, 1, hypervisor._ended)
        both.wait()

    def asks():
        both.wait()
        both.wait()
        # It is known to have ended, so that nothing is repeated over it.
        assert not hypervisor.revive()
        names.append([pool.name for pool in hypervisor.pools()])
    outcome = hypervisor.overlap([breaks, asks, *[lambda: names.append([pool.name for pool in hypervisor.pools()])] * 3], 2, lambda: None)
    assert outcome == [None] * 5 and names == [["default-pool"]] * 4 and len(opened) == 2
    assert hypervisor.close() is True
    deadline.cancel()
