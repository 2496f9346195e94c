# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import threading
import time

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import beside, ending, storage
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(beside.Syncer, "INTERVAL", 0.01)
    path = tmp_path / "volume"
    path.write_bytes(b"x")
    return str(path)


@contextlib.contextmanager
def filling(helper, path, *args, **named):
    with helper(*args, **named) as one:
        one.begin(path)
        yield one


class Recorded:
    """Stands for a worker: counts what it is asked, and fails with `error` at the function of that name."""

    def __init__(self, name=None, error=None):
        self.asked, self._name, self._error = [], name, error
        self.called = threading.Semaphore(0)

    def ask(self, patience, name, *arguments):
        self.asked.append(name)
        if name == "fdatasync":
            self.called.release()
        if name == self._name:
            raise self._error
        return 5

    def close(self):
        self.asked.append("close")


@pytest.fixture
def worker(monkeypatch):
    def make(*how):
        made = Recorded(*how)
        monkeypatch.setattr(beside.storage, "start", lambda: made)
        return made
    return make


def test_it_syncs_meanwhile_and_at_the_end(path, worker):
    made = worker()
    with filling(beside.Syncer, path) as syncer:
        assert made.called.acquire(timeout=10) and made.called.acquire(timeout=10)
        syncer.finish()
        syncer.wait()
    assert made.asked[0] == "open_file" and made.asked[-3:] == ["fsync", "fsync_folder", "close"] and made.asked.count("fsync") == 1


def test_a_real_file_is_synced_by_a_process_that_is_gone_afterwards(path):
    before = set(ending.children())
    with filling(beside.Syncer, path) as syncer:
        assert len(set(ending.children()) - before) == 1
        syncer.finish()
        syncer.wait()
    assert set(ending.children()) <= before


def test_left_early_it_does_not_sync_all(path, worker):
    made = worker()
    with pytest.raises(ValueError), filling(beside.Syncer, path):
        raise ValueError
    assert "fsync" not in made.asked and made.asked[-1] == "close"
    assert not any(thread.name == "kvm2-sync" for thread in threading.enumerate())


@pytest.fixture
def stuck(tmp_path, monkeypatch):
    """stuck(name): the worker's function of that name never returns; the Event that is set once it is asked for."""
    pipe = str(tmp_path / "stuck")
    os.mkfifo(pipe)
    monkeypatch.setattr(beside, "LEFT_PATIENCE", 0.2)

    def make(what):
        asked = threading.Event()

        class Stuck(storage.Worker):
            def ask(self, patience, name, *arguments):
                if name != what:
                    return super().ask(patience, name, *arguments)
                asked.set()
                # Nobody writes to the pipe, so opening it never returns.
                return super().ask(patience, "open_file", pipe)
        monkeypatch.setattr(storage, "start", Stuck)
        return asked
    return make


@pytest.fixture
def nothing_left():
    """What it takes is given back."""
    before = len(os.listdir("/proc/self/fd")), set(ending.children())
    yield
    assert not any(thread.name in ("kvm2-sync", "kvm2-read-back") for thread in threading.enumerate())
    assert (len(os.listdir("/proc/self/fd")), set(ending.children())) == before


def test_left_early_it_does_not_wait_for_storage_that_hangs(path, stuck, nothing_left):
    asked = stuck("fdatasync")
    with pytest.raises(ValueError), filling(beside.Syncer, path):
        assert asked.wait(30)
        raise ValueError


@pytest.mark.parametrize("name", ["fsync", "fsync_folder"])
def test_left_in_the_last_sync_it_does_not_wait_for_that(path, stuck, nothing_left, name):
    asked, begun = stuck(name), time.monotonic()
    with pytest.raises(ValueError), filling(beside.Syncer, path, patience=60) as syncer:
        syncer.finish()
        assert asked.wait(30)
        raise ValueError
    assert time.monotonic() < begun + 40


def test_a_stop_ends_the_wait_for_the_last_sync(path, stuck, nothing_left, monkeypatch):
    def stop():
        raise Kvm2Error("transient", "go on with", "the work", "it was asked to end")
    monkeypatch.setattr(storage, "LOOK", 0.05)
    stuck("fsync")
    with pytest.raises(Kvm2Error, match="asked to end"), filling(beside.Syncer, path, stop, patience=60) as syncer:
        syncer.finish()
        syncer.wait()


@pytest.mark.parametrize("name", ["fdatasync", "fsync"])
@pytest.mark.parametrize("error, message", [(OSError(5, "Input/output error"), "Input/output error"), (storage.NoAnswer(), "no answer within")])
def test_an_error_of_any_sync_is_told(path, worker, name, error, message):
    made = worker(name, error)
    with filling(beside.Syncer, path) as syncer:
        if name == "fdatasync":
            assert made.called.acquire(timeout=10)
        syncer.finish()
        with pytest.raises(Kvm2Error, match=message) as caught:
            syncer.wait()
    assert caught.value.kind == "transient" and path in caught.value.message


def test_one_that_never_begins_is_gone_with_its_process(nothing_left):
    with beside.Syncer(), beside.Hasher():
        assert len(ending.children()) >= 2


def test_a_file_that_is_not_there_leaves_no_process(path):
    before = set(ending.children())
    with pytest.raises(Kvm2Error, match="No such file"), filling(beside.Syncer, path + ".gone"):
        pass
    assert set(ending.children()) <= before


# -- reading behind what fills a file

MIB = 1024 ** 2
CONTENT = random.Random(2).randbytes(12 * MIB + 5)


@pytest.fixture
def allocated(tmp_path, monkeypatch):
    """The path of a file whose space is taken, and in which nothing is written."""
    monkeypatch.setattr(beside.Hasher, "PAUSE", 0.001)
    path = tmp_path / "base"
    with open(path, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, len(CONTENT))
    # As libvirt looks at its header.
    assert path.read_bytes()[:4] == bytes(4)
    return path


def write(path, content, at=0):
    descriptor = os.open(path, os.O_WRONLY)
    os.pwrite(descriptor, content, at)
    os.close(descriptor)


def reaches(hasher, count):
    until = time.monotonic() + 60
    while hasher.done < count and time.monotonic() < until:
        threading.Event().wait(0.005)
    return hasher.done >= count


def test_it_reads_what_is_written_and_nothing_else(allocated, nothing_left):
    with filling(beside.Hasher, str(allocated)) as hasher:
        for end in (3 * MIB, 9 * MIB + 7):
            write(allocated, CONTENT[hasher.done:end], hasher.done)
            assert reaches(hasher, end - 2 * hasher.BEHIND) and hasher.done <= end - hasher.BEHIND + 4096
        write(allocated, CONTENT[9 * MIB:], 9 * MIB)
        hasher.finish()
        told = []
        # However little is left to wait for: what is done must not hang on the clock.
        hasher.wait(lambda: told.append(hasher.done))
    assert hasher.digest == hashlib.sha256(CONTENT).hexdigest() and hasher.done == len(CONTENT)
    assert told and told == sorted(told)


def test_where_nothing_tells_what_is_written_it_reads_at_the_end(allocated, nothing_left):
    write(allocated, b"x")
    with filling(beside.Hasher, str(allocated)) as hasher:
        write(allocated, CONTENT)
        threading.Event().wait(0.1)
        assert hasher.done == 0
        hasher.finish()
        hasher.wait()
    assert hasher.digest == hashlib.sha256(CONTENT).hexdigest()


@pytest.mark.parametrize("again", [True, False])
def test_another_file_of_that_name_is_not_taken_for_it(allocated, nothing_left, again):
    with filling(beside.Hasher, str(allocated)) as hasher:
        write(allocated, CONTENT)
        kept = allocated.rename(f"{allocated}.kept")
        if again:
            allocated.write_bytes(CONTENT)
        hasher.finish()
        hasher.wait()
    assert hasher.digest is None and kept.exists()


@pytest.mark.parametrize("name", ["hash_written", "hash_on", "is_same"])
def test_left_early_it_does_not_wait_for_storage_that_does_not_read(allocated, stuck, nothing_left, name):
    asked, begun = stuck(name), time.monotonic()
    with pytest.raises(ValueError), filling(beside.Hasher, str(allocated)) as hasher:
        if name != "hash_written":
            hasher.finish()
        assert asked.wait(30)
        raise ValueError
    assert time.monotonic() < begun + 40


def test_storage_that_stops_being_read_is_named(allocated, stuck, nothing_left):
    stuck("hash_on")
    with pytest.raises(Kvm2Error, match=r"Failed to read what lies on the storage of .*base: no answer within 0\.3 s") as caught, \
            filling(beside.Hasher, str(allocated), patience=0.3) as hasher:
        hasher.finish()
        hasher.wait()
    assert caught.value.kind == "transient"


def test_a_helper_that_ends_is_not_blamed_on_the_storage(allocated, nothing_left):
    before = set(ending.children())
    with pytest.raises(Kvm2Error, match="its helper ended") as caught, filling(beside.Hasher, str(allocated)) as hasher:
        reader, = set(ending.children()) - before
        os.kill(reader, signal.SIGKILL)
        hasher.finish()
        hasher.wait()
    assert "memory" in caught.value.hint
