# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import turn


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(turn, "_LOOK_EACH", 0.01)
    monkeypatch.setattr(turn, "_folder", lambda: str(tmp_path))
    return tmp_path


def nobody(seconds):
    raise AssertionError("there was nobody to wait for")


def test_a_turn_is_one_at_a_time_and_leaves_nothing(folder):
    first = turn.take("image", 10, nobody)
    assert first.held and len(os.listdir(folder)) == 1
    other = turn.take("another image", 10, nobody)
    assert other.held
    other.release()
    waits = []

    def waiting(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            first.release()

    second = turn.take("image", 10, waiting)
    assert second.held and len(waits) == 3
    second.release()
    second.release()
    assert os.listdir(folder) == []


def test_patience_ends(folder):
    first, waits = turn.take("image", 10, nobody), []
    assert not turn.take("image", 0.05, waits.append).held
    assert waits
    first.release()


def test_a_wait_can_be_stopped(folder):
    first = turn.take("image", 10, nobody)
    with pytest.raises(AssertionError, match="nobody"):
        turn.take("image", 10, nobody)
    first.release()


def test_many_at_once_never_two_hold_it():
    inside, most, done = [], [], []

    def work():
        mine = turn.take("image", 30, lambda seconds: None)
        inside.append(1)
        most.append(len(inside))
        inside.pop()
        done.append(mine.held)
        mine.release()

    threads = [threading.Thread(target=work) for _number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [True] * 8 and max(most) == 1


def test_a_process_that_dies_gives_its_turn_back(folder):
    taken = turn.take("image", 10, nobody)
    taken.release()
    path = taken._path
    program = "import fcntl, os, sys, time; fcntl.flock(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX); print(1, flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE)
    holder.stdout.readline()
    waits = []

    def waiting(seconds):
        if not waits:
            holder.send_signal(signal.SIGKILL)
            holder.wait()
        waits.append(seconds)

    mine = turn.take("image", 30, waiting)
    assert mine.held and waits
    mine.release()
    holder.stdout.close()


def test_where_no_lock_can_be_had_the_work_goes_on(monkeypatch, tmp_path):
    monkeypatch.setattr(turn, "_folder", lambda: None)
    assert not turn.take("image", 10, nobody).held
    monkeypatch.setattr(turn, "_folder", lambda: "/nowhere")
    assert not turn.take("image", 10, nobody).held
    monkeypatch.setattr(turn, "_folder", lambda: str(tmp_path))

    def unsupported(*arguments):
        raise OSError(95, "not supported")
    monkeypatch.setattr(fcntl, "flock", unsupported)
    assert not turn.take("image", 10, nobody).held


def test_a_folder_of_somebody_else_is_not_used(monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setattr(turn.os, "geteuid", lambda: 12345)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert turn._folder() is None
    monkeypatch.setattr(turn.os, "geteuid", lambda: os.stat(tmp_path).st_uid)
    monkeypatch.setattr(turn.os.path, "isdir", lambda path: False)
    made = turn._folder()
    assert made.startswith(str(tmp_path)) and os.stat(made).st_mode & 0o777 == 0o700
    os.chmod(made, 0o777)
    assert turn._folder() is None
