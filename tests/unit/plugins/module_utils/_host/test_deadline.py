# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import subprocess
import sys
import threading
import time

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host.deadline import Deadline, children

PROGRAM = """
import subprocess, sys, threading
sys.path[:0] = {path!r}
from ansible_collections.egress.kvm2.plugins.module_utils._host.deadline import Deadline
child = subprocess.Popen(["sleep", "600"])
print(child.pid, flush=True)
deadline = Deadline({overall}, "qemu:///test")
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
    child, *rest = done.stdout.split("\n", 1)
    result = json.loads(rest[0])
    assert done.returncode == 1
    assert result["failed"] is True and result["changed"] is False
    assert act in result["msg"] and "qemu:///test" in result["msg"]
    assert result["error"]["kind"] == "transient"
    until = time.monotonic() + 30
    while alive(int(child)) and time.monotonic() < until:
        threading.Event().wait(0.05)
    assert not alive(int(child))


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


def test_children_are_those_of_this_process():
    child = subprocess.Popen(["sleep", "600"])
    try:
        assert child.pid in children()
    finally:
        child.kill()
        child.wait()
    assert child.pid not in children()
