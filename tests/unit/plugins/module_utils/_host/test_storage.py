# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A named pipe that nobody writes to stands for storage that does not answer: opening it never returns."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import ending, storage
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error


@pytest.fixture(autouse=True)
def clean():
    storage.close()
    before = state()
    yield
    storage.close()
    until = time.monotonic() + 30
    while left_since(before) and time.monotonic() < until:
        storage._LEFT[:] = [worker for worker in storage._LEFT if not worker._is_reaped()]
        threading.Event().wait(0.01)
    assert not left_since(before)


def state():
    return set(threading.enumerate()), set(os.listdir("/proc/self/fd")), set(ending.children())


def left_since(before):
    """Threads of other tests may end meanwhile; nothing may come."""
    return set().union(*(now - then for now, then in zip(state(), before, strict=True)))


@pytest.fixture
def stuck(tmp_path):
    path = str(tmp_path / "stuck")
    os.mkfifo(path)
    return path


class ShortLived(storage.Worker):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        os.kill(self.pid, signal.SIGKILL)


def wait_for(condition):
    until = time.monotonic() + 30
    while not condition() and time.monotonic() < until:
        threading.Event().wait(0.01)
    return condition()


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_it_says_of_a_path(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    path = str(tmp_path / "link")
    assert storage.touch("realpath", path) == os.path.realpath(tmp_path)
    assert storage.touch("exists", path) is True and storage.touch("exists", path + "/none") is False
    assert storage.touch("device", path) == os.stat(tmp_path).st_dev
    found = os.statvfs(tmp_path)
    assert storage.touch("statvfs", path)[:2] == (found.f_frsize, found.f_blocks)
    assert storage.touch("node", path)[:3] == (path, os.getuid(), os.getgid())
    assert storage.touch("realpath", "/a/\udcff b") == "/a/\udcff b"


def test_errors_are_those_of_the_call(tmp_path):
    with pytest.raises(FileNotFoundError, match="No such file"):
        storage.touch("statvfs", str(tmp_path / "none"))
    assert storage.touch("exists", str(tmp_path))


def test_one_process_answers_all_and_is_gone_afterwards(tmp_path):
    before = set(ending.children())
    storage.prepare()
    first = set(ending.children()) - before
    for number in range(50):
        assert not storage.touch("lexists", str(tmp_path / str(number)))
    assert set(ending.children()) - before == first and len(first) == 1
    storage.close()
    assert set(ending.children()) == before


def test_storage_that_does_not_answer_is_left_behind_and_named(stuck, tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "mounts", lambda: [("/", "ext4"), (str(tmp_path), "nfs"), ("/elsewhere", "nfs")])
    with pytest.raises(Kvm2Error) as caught:
        storage.touch("open_file", stuck, patience=0.3)
    assert caught.value.kind == "transient" and stuck in caught.value.message and "no answer within 0.3 s" in caught.value.message
    # Nothing waits for the same mount again, and other storage is asked as before.
    began = time.monotonic()
    with pytest.raises(Kvm2Error, match="did not answer before"):
        storage.touch("exists", str(tmp_path / "other"), patience=60)
    assert time.monotonic() - began < 30
    assert storage.touch("exists", "/proc") is True


def test_where_the_process_was_killed_another_one_answers(tmp_path):
    storage.prepare()
    first = storage._SHARED.worker.pid
    os.kill(first, signal.SIGKILL)
    assert wait_for(lambda: storage.touch("exists", str(tmp_path)) and storage._SHARED.worker.pid != first)


def test_where_no_process_stays_that_is_said_and_no_storage_is_blamed(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "Worker", ShortLived)
    for ask in (lambda: storage.touch("exists", str(tmp_path)), lambda: storage.run(["true"], str(tmp_path), 30)):
        with pytest.raises(Kvm2Error, match=r"Failed to start the helper process .*Broken pipe") as caught:
            ask()
        assert caught.value.kind == "transient" and str(tmp_path) not in caught.value.message and storage._SHARED.dead == []


def test_a_program_that_is_too_slow_takes_along_what_it_has_started(tmp_path):
    pid = tmp_path / "pid"
    with pytest.raises(Kvm2Error, match="no answer within"):
        storage.run(["sh", "-c", 'sleep 600 & echo $! > "$0.part"; mv "$0.part" "$0"; wait', str(pid)], str(pid), 5)
    assert wait_for(lambda: not alive(int(pid.read_text())))
    # It says nothing about the storage.
    assert storage.touch("exists", str(pid)) is True


def test_programs_are_left_behind_too(stuck, tmp_path):
    assert storage.run(["cat", "/proc/self/comm"], str(tmp_path), 30) == (0, b"cat\n")
    assert storage.run(["sh", "-c", "exit 3"], str(tmp_path), 30) == (3, b"")
    with pytest.raises(FileNotFoundError):
        storage.run(["no-such-program"], str(tmp_path), 30)
    with pytest.raises(Kvm2Error, match="no answer within"):
        storage.run(["head", "-c1", stuck], stuck, 0.3)


def test_it_holds_no_descriptor_of_this_process(tmp_path):
    reader, writer = os.pipe()
    os.set_inheritable(writer, False)
    storage.prepare()
    held = {os.readlink(f"/proc/{storage._SHARED.worker.pid}/fd/{name}") for name in ("0", "1", "2")}
    os.close(writer)
    # Whoever reads is told of the end, though the helper lives on.
    assert os.read(reader, 1) == b"" and os.readlink("/proc/self/fd/1") not in held
    os.close(reader)


def test_mounts_are_read_as_the_table_writes_them(tmp_path, monkeypatch):
    assert ("/proc", "proc") in storage.mounts()
    table = tmp_path / "mounts"
    table.write_text("server:/a /mnt/with\\040blank\\134and é nfs4 rw 0 0\n".replace(" é", "é"), encoding="utf-8")
    real = open
    monkeypatch.setattr("builtins.open", lambda path, *how, **more: real(table if path == "/proc/self/mounts" else path, *how, **more))
    assert storage.mounts() == [("/mnt/with blank\\andé", "nfs4")]


def test_where_no_process_can_be_started_that_is_said(monkeypatch):
    for executable, told in (("/no/such/python", "/no/such/python"), (None, "does not know its own path")):
        monkeypatch.setattr(storage.sys, "executable", executable)
        with pytest.raises(Kvm2Error, match=told) as caught:
            storage.touch("exists", "/")
        assert caught.value.kind == "transient"
