# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import threading
import time

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import ending, holes, local, storage, storage_worker
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(local.Syncer, "INTERVAL", 0.01)
    path = tmp_path / "volume"
    path.write_bytes(b"x")
    return str(path)


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
        monkeypatch.setattr(local.storage, "start", lambda: made)
        return made
    return make


def test_it_syncs_meanwhile_and_at_the_end(path, worker):
    made = worker()
    with local.Syncer(path) as syncer:
        assert made.called.acquire(timeout=10) and made.called.acquire(timeout=10)
        syncer.finish()
        syncer.wait()
    assert made.asked[0] == "open_file" and made.asked[-3:] == ["fsync", "fsync_folder", "close"] and made.asked.count("fsync") == 1


def test_a_real_file_is_synced_by_a_process_that_is_gone_afterwards(path):
    before = set(ending.children())
    with local.Syncer(path) as syncer:
        assert len(set(ending.children()) - before) == 1
        syncer.finish()
        syncer.wait()
    assert set(ending.children()) <= before


def test_left_early_it_does_not_sync_all(path, worker):
    made = worker()
    with pytest.raises(ValueError), local.Syncer(path):
        raise ValueError
    assert "fsync" not in made.asked and made.asked[-1] == "close"
    assert not any(thread.name == "kvm2-sync" for thread in threading.enumerate())


@pytest.fixture
def stuck(tmp_path, monkeypatch):
    """stuck(name): the worker's function of that name never returns; the Event that is set once it is asked for."""
    pipe = str(tmp_path / "stuck")
    os.mkfifo(pipe)
    monkeypatch.setattr(local, "LEFT_PATIENCE", 0.2)

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
    """What a Syncer takes is given back."""
    before = len(os.listdir("/proc/self/fd")), set(ending.children())
    yield
    assert not any(thread.name == "kvm2-sync" for thread in threading.enumerate())
    assert (len(os.listdir("/proc/self/fd")), set(ending.children())) == before


def test_left_early_it_does_not_wait_for_storage_that_hangs(path, stuck, nothing_left):
    asked = stuck("fdatasync")
    with pytest.raises(ValueError), local.Syncer(path):
        assert asked.wait(30)
        raise ValueError


@pytest.mark.parametrize("name", ["fsync", "fsync_folder"])
def test_left_in_the_last_sync_it_does_not_wait_for_that(path, stuck, nothing_left, name):
    asked, begun = stuck(name), time.monotonic()
    with pytest.raises(ValueError), local.Syncer(path, patience=60) as syncer:
        syncer.finish()
        assert asked.wait(30)
        raise ValueError
    assert time.monotonic() < begun + 40


def test_a_stop_ends_the_wait_for_the_last_sync(path, stuck, nothing_left, monkeypatch):
    def stop():
        raise Kvm2Error("transient", "go on with", "the work", "it was asked to end")
    monkeypatch.setattr(storage, "LOOK", 0.05)
    stuck("fsync")
    with pytest.raises(Kvm2Error, match="asked to end"), local.Syncer(path, stop, patience=60) as syncer:
        syncer.finish()
        syncer.wait()


@pytest.mark.parametrize("name", ["fdatasync", "fsync"])
@pytest.mark.parametrize("error, message", [(OSError(5, "Input/output error"), "Input/output error"), (storage.NoAnswer(), "no answer within")])
def test_an_error_of_any_sync_is_told(path, worker, name, error, message):
    made = worker(name, error)
    with local.Syncer(path) as syncer:
        if name == "fdatasync":
            assert made.called.acquire(timeout=10)
        syncer.finish()
        with pytest.raises(Kvm2Error, match=message) as caught:
            syncer.wait()
    assert caught.value.kind == "transient" and path in caught.value.message


def test_a_file_that_is_not_there_leaves_no_process(path):
    before = set(ending.children())
    with pytest.raises(Kvm2Error, match="No such file"):
        local.Syncer(path + ".gone")
    assert set(ending.children()) <= before


@pytest.mark.parametrize("closed", ["volume", "", None])
def test_what_may_be_read_and_synced(path, monkeypatch, closed):
    assert local.readable(path) and not local.readable(path + ".gone")
    # A system's pool lets a plain user through to the files, and not see the folder.
    refused = None if closed is None else os.path.join(os.path.dirname(path), closed).rstrip("/")
    monkeypatch.setattr(storage_worker.os, "access", lambda name, _mode: name != refused)
    assert storage_worker.readable(path) == (closed is None)


def test_paths_are_resolved_all_at_once(tmp_path, monkeypatch):
    (tmp_path / "real").write_bytes(b"")
    (tmp_path / "link").symlink_to("real")
    asked, touch = [], storage.touch
    monkeypatch.setattr(local.storage, "touch", lambda name, *arguments: asked.append(name) or touch(name, *arguments))
    resolve = local.resolver([str(tmp_path / "link"), str(tmp_path / "real")])
    assert resolve(str(tmp_path / "link")) == resolve(str(tmp_path / "real")) == str(tmp_path / "real") and asked == ["realpaths"]
    for _time in range(2):
        assert resolve(str(tmp_path / "other")) == str(tmp_path / "other")
    assert asked == ["realpaths", "realpath"]


def test_storage_that_does_not_answer_is_told_of_its_own_paths_only(tmp_path, monkeypatch):
    def touch(name, path, *_arguments):
        if path.startswith("/dead"):
            raise storage.stopped(path, "look at", "no answer")
        return [path] if name == "realpaths" else path
    monkeypatch.setattr(local.storage, "touch", touch)
    resolve = local.resolver(["/dead/a", "/live/b"])
    assert resolve("/live/b") == "/live"
    with pytest.raises(Kvm2Error, match="/dead/a"):
        resolve("/dead/a")


def test_holes_are_dug_or_it_is_said_why_not():
    assert holes.dig(lambda command, **options: (0, "", ""), "/x") is None
    assert holes.dig(lambda command, **options: (1, "", "fallocate: not supported\n"), "/x") == "fallocate: not supported"

    def missing(command, **options):
        raise OSError(2, "No such file or directory")
    assert "No such file" in holes.dig(missing, "/x")
