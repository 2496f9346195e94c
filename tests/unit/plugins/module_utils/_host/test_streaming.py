# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files on storage that stops answering: a helper that is stopped stands for one that is stuck in the kernel."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import threading
import time

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import ending, source, spool, storage, storage_worker, streaming
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import TRANSIENT, Kvm2Error

CONTENT = random.Random(1).randbytes(5_000_001)


def state():
    return set(threading.enumerate()), set(os.listdir("/proc/self/fd")), set(ending.children())


@pytest.fixture(autouse=True)
def clean():
    before = state()
    yield
    until = time.monotonic() + 30
    while left_since(before) and time.monotonic() < until:
        storage._LEFT[:] = [worker for worker in storage._LEFT if not worker._is_reaped()]
        threading.Event().wait(0.01)
    assert not left_since(before)


def left_since(before):
    """Threads of other tests may end meanwhile; nothing may come."""
    return set().union(*(now - then for now, then in zip(state(), before, strict=True)))


@pytest.fixture
def path(tmp_path):
    (tmp_path / "image").write_bytes(CONTENT)
    return str(tmp_path / "image")


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(streaming, "PATIENCE", 0.3)
    monkeypatch.setattr(storage, "LEAVE", 0.1)


def stop(opened):
    os.kill(opened._handle._worker.pid, signal.SIGSTOP)


def read(opened):
    try:
        return b"".join(opened.blocks())
    finally:
        opened.close()


def test_all_of_it_comes_in_whole_blocks(path):
    opened = source.open_file(path)
    blocks = list(opened.blocks())
    opened.close()
    assert b"".join(blocks) == CONTENT and {len(block) for block in blocks[:-1]} == {source.BLOCK}


def test_one_that_is_left_in_the_middle_ends(path):
    opened = source.open_file(path)
    assert next(opened.blocks()) == CONTENT[:source.BLOCK]
    began = time.monotonic()
    opened.close()
    assert time.monotonic() - began < storage.LEAVE


def test_storage_that_stops_answering_in_the_middle_of_a_source(path, impatient):
    opened = source.open_file(path)
    stop(opened)
    with pytest.raises(Kvm2Error) as caught:
        read(opened)
    assert caught.value.kind == "transient" and path in caught.value.message and "no answer within 0.3 s" in caught.value.message


def test_storage_that_stops_answering_in_the_middle_of_a_spool(tmp_path, impatient):
    def blocks():
        for number in range(10_000):
            if number == 3:
                stuck, = set(ending.children()) - before
                os.kill(stuck, signal.SIGSTOP)
            yield bytes(100_000)
    before = set(ending.children())
    with pytest.raises(Kvm2Error) as caught:
        spool.spool(blocks(), "image", str(tmp_path))
    assert caught.value.kind == "transient" and f"write to the storage of {tmp_path}" in caught.value.message


def test_storage_that_does_not_even_open(path, impatient, monkeypatch):
    real = storage.start

    def stuck(*arguments):
        worker = real(*arguments)
        os.kill(worker.pid, signal.SIGSTOP)
        return worker
    monkeypatch.setattr(storage, "start", stuck)
    for opening in (lambda: source.open_file(path), lambda: spool.spool([b"x"], "image", os.path.dirname(path))):
        with pytest.raises(Kvm2Error) as caught:
            opening()
        assert caught.value.kind == "transient" and "no answer within 0.3 s" in caught.value.message


def test_a_wait_for_it_ends_where_the_work_has_to(path, monkeypatch):
    monkeypatch.setattr(storage, "LEAVE", 0.1)
    monkeypatch.setattr(storage, "LOOK", 0.01)
    over = Kvm2Error(TRANSIENT, "finish", "the work", "its time is over", "Run again.")
    ended = threading.Event()

    def check_stop():
        if ended.is_set():
            raise over
    opened = source.open_file(path, check_stop)
    stop(opened)
    ended.set()
    with pytest.raises(Kvm2Error) as caught:
        read(opened)
    assert caught.value is over


def test_it_is_closed_while_another_thread_waits_for_it(path, monkeypatch):
    monkeypatch.setattr(storage, "LEAVE", 0.1)
    opened, failures, waiting = source.open_file(path), [], threading.Event()
    stop(opened)

    def wait():
        try:
            for _block in opened.blocks():
                waiting.set()
        except Kvm2Error as error:
            failures.append(error)
    thread = threading.Thread(target=wait)
    thread.start()
    # What was read ahead comes all the same.
    waiting.wait(0.5)
    began = time.monotonic()
    opened.close()
    thread.join()
    assert time.monotonic() - began < 30 and [error.kind for error in failures] == ["transient"]


def test_a_helper_that_is_killed_is_not_blamed_on_the_storage(path):
    opened = source.open_file(path)
    os.kill(opened._handle._worker.pid, signal.SIGKILL)
    with pytest.raises(Kvm2Error, match="its helper ended: something ended it in the middle") as caught:
        read(opened)
    assert caught.value.kind == "transient" and "memory" in caught.value.hint


def test_an_error_of_the_storage_is_told_as_such():
    # The memory of a process is a regular file whose first page cannot be read.
    opened = source.open_file("/proc/self/mem")
    with pytest.raises(Kvm2Error, match="Input/output error") as caught:
        read(opened)
    assert caught.value.kind == "transient" and caught.value.object == "file /proc/self/mem"


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 3 * storage_worker.HASHED_AT_ONCE + 5])
def test_a_file_is_hashed_in_parts(tmp_path, monkeypatch, size):
    monkeypatch.setattr(streaming, "PART", 4096)
    told, asked = [], []
    (tmp_path / "base").write_bytes(CONTENT[:size])
    digest = streaming.sha256(str(tmp_path / "base"), told.append, lambda: asked.append(1))
    assert digest == hashlib.sha256(CONTENT[:size]).hexdigest()
    assert told[-1] == size and told == sorted(told) and len(asked) >= len(told)


def test_hashing_ends_where_the_run_has_to_end(path):
    def ends():
        raise Kvm2Error(TRANSIENT, "go on with", "the import", "the controller has gone")
    with pytest.raises(Kvm2Error, match="the controller has gone"):
        streaming.sha256(path, print, ends)


def test_a_file_that_cannot_be_hashed_is_named(path, tmp_path, impatient):
    with pytest.raises(Kvm2Error, match=f"Failed to read file {path}none: No such file") as caught:
        streaming.sha256(path + "none", print, storage.nothing)
    assert caught.value.kind == TRANSIENT
    os.mkfifo(tmp_path / "stuck")
    with pytest.raises(Kvm2Error, match=f"the storage of {tmp_path}/stuck: no answer"):
        streaming.sha256(str(tmp_path / "stuck"), print, storage.nothing)
