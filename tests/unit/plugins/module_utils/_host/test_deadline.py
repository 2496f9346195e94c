# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import deadline as deadlines
from ansible_collections.egress.kvm2.plugins.module_utils._host.deadline import Deadline, DeadlinePassed
from ansible_collections.egress.kvm2.plugins.module_utils._host.ending import children, end_children
from ansible_collections.egress.kvm2.plugins.module_utils._host.line import Line
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error

PROGRAM = """
import subprocess, sys, threading
sys.path[:0] = {path!r}
from ansible_collections.egress.kvm2.plugins.module_utils._host import deadline as deadlines
deadlines.CUT, deadlines.LEAVE, deadlines.LEAVE_OPENING = 0.1, 0.2, 0.1
# As ssh that has started another for a jump host: both are to go.
child = subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"])
print(child.pid, flush=True)
deadline = deadlines. Deadline({overall}, "qemu:///test")
if {near}:
    deadline.narrow({near}, "connect to", "hypervisor qemu:///test")
lock = threading.Lock()
lock.acquire()
lock.acquire()   # blocked in C for ever
"""


@pytest.mark.parametrize("overall, near, act", [(0.3, 0, "finish within its timeout"), (60, 0.3, "connect to")])
def test_ends_a_blocked_process_with_a_failure_and_without_its_children(overall, near, act):
    program = PROGRAM.format(path=sys.path, overall=overall, near=near)
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=30, check=False, text=True)
    *started, text = [line for line in done.stdout.splitlines() if line]
    result = json.loads(text)
    assert done.returncode == 1
    assert result["failed"] is True and result["changed"] is False
    assert act in result["msg"] and "qemu:///test" in result["msg"]
    assert result["error"]["kind"] == "transient"
    until = time.monotonic() + 30
    while any(alive(int(pid)) for pid in started) and time.monotonic() < until:
        threading.Event().wait(0.05)
    assert len(started) == 2 and not any(alive(int(pid)) for pid in started)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_cancelled_in_time_it_does_nothing():
    left = []
    deadline = Deadline(0.2, "qemu:///test", leave=left.append)
    deadline.cancel()
    threading.Event().wait(0.4)
    assert left == []
    assert not any(thread.name == "kvm2-deadline" for thread in threading.enumerate())


def test_widened_in_time_the_near_limit_does_nothing():
    left = []
    deadline = Deadline(60, "qemu:///test", leave=left.append)
    deadline.narrow(0.2, "connect to", "hypervisor")
    deadline.widen()
    threading.Event().wait(0.4)
    assert left == [] and 59 < deadline.remaining() <= 60
    deadline.cancel()


def wait_for(condition):
    until = time.monotonic() + 30
    while not condition() and time.monotonic() < until:
        threading.Event().wait(0.01)
    return condition()


def test_work_that_goes_on_is_told_once_then_the_line_is_cut_then_the_process_ends():
    told, now = [], [0.0]
    deadline = Deadline(60, "qemu:///test", lambda: now[0], told.append, lambda error: {"msg": error.message, "actions": ["made"]})
    deadline.cut = lambda: told.append("cut")

    def at(moment):
        now[0] = moment
        # Has it look at the clock.
        deadline.widen()
    deadline.step()
    deadline.check()
    assert deadline.passed is None
    deadline.working_on("import", "base x")
    at(60.0)
    assert wait_for(lambda: deadline.passed is not None) and told == []
    with pytest.raises(DeadlinePassed) as ended:
        deadline.step()
    assert ended.value.error.kind == "transient" and "Failed to import base x: it is not done after 60 s" in ended.value.error.message
    # What is cleaned up then may take its steps; loops are told each time.
    deadline.step()
    for _time in range(2):
        with pytest.raises(Kvm2Error, match="base x"):
            deadline.check()
    at(60.0 + deadlines.CUT)
    assert wait_for(lambda: told == ["cut"])
    at(60.0 + deadlines.LEAVE)
    assert wait_for(lambda: len(told) == 2)
    assert json.loads(told[1]) == {"msg": ended.value.error.message, "actions": ["made"], "failed": True}
    deadline.cancel()


def test_an_open_that_does_not_answer_is_cut_at_once():
    cut = threading.Event()
    deadline = Deadline(60, "qemu:///test", leave=lambda text: None)
    deadline.cut = cut.set
    deadline.narrow(0.1, "connect to", "hypervisor x", "Try again.")
    assert cut.wait(30)
    assert deadline.passed.message == "Failed to connect to hypervisor x: no answer within 0.1 s. Try again."
    # The whole time is not over.
    deadline.step()
    deadline.widen()
    assert deadline.passed is None
    deadline.cancel()


def test_what_ends_the_process_is_told_though_the_limit_was_taken_back_meanwhile():
    told = []

    class TakenBack(Deadline):
        def _end(self, error):
            self.widen()
            super()._end(error)
    deadline = TakenBack(600, "qemu:///test", leave=told.append)
    deadline.narrow(0.0, "connect to", "hypervisor x")
    assert wait_for(lambda: told) and "Failed to connect to hypervisor x" in json.loads(told[0])["msg"]
    deadline.cancel()


ONE_RESULT = """
import subprocess, sys, threading
sys.path[:0] = {path!r}
from ansible_collections.egress.kvm2.plugins.module_utils._host import ending
ending.SCRATCH.update(str(number) for number in range(100000))
child = subprocess.Popen(["sleep", "600"])
for number in range(3):
    threading.Thread(target=ending.leave, args=('{{"told": 1}}',), daemon=True).start()
# The end of the child frees this thread, as that of ssh does, which then comes with a result of its own.
{wait}
for number in range(100000):
    ending.SCRATCH.discard(str(number))
ending.leave('{{"told": 1}}')
"""


@pytest.mark.parametrize("wait", ["child.wait()", ""])
def test_whoever_comes_second_tells_nothing(wait, tmp_path):
    program = ONE_RESULT.format(path=sys.path, wait=wait)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=120, check=False, text=True, cwd=tmp_path)
    assert done.stdout.split("\n") == ["", '{"told": 1}', ""] and done.stderr == "" and done.returncode == 1


def test_without_the_proc_of_linux_nothing_is_found_and_nothing_fails(monkeypatch):
    def missing(path):
        raise FileNotFoundError(path)
    monkeypatch.setattr(os, "listdir", missing)
    line = Line(True)
    line.opened()
    line.cut()
    assert children() == []


def test_only_the_children_that_are_meant_are_ended():
    first, second = (subprocess.Popen(["sleep", "600"]) for _time in range(2))
    try:
        end_children({first.pid, os.getppid()})
        assert first.wait(30) == -9 and second.poll() is None
    finally:
        second.kill()
        second.wait()


def test_children_are_those_of_this_process():
    child = subprocess.Popen(["sleep", "600"])
    try:
        assert child.pid in children()
    finally:
        child.kill()
        child.wait()
    assert child.pid not in children()
