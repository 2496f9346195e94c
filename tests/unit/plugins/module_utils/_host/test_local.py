# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import threading

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import holes, local
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(local.Syncer, "INTERVAL", 0.01)
    path = tmp_path / "volume"
    path.write_bytes(b"x")
    return str(path)


def recorded(monkeypatch, name, error=None):
    calls = threading.Semaphore(0)
    real = getattr(os, name)

    def call(descriptor):
        calls.release()
        if error is not None:
            raise error
        return real(descriptor)
    monkeypatch.setattr(local.os, name, call)
    return calls


def test_it_syncs_meanwhile_and_at_the_end(path, monkeypatch):
    meanwhile, last = recorded(monkeypatch, "fdatasync"), recorded(monkeypatch, "fsync")
    with local.Syncer(path) as syncer:
        assert meanwhile.acquire(timeout=10) and meanwhile.acquire(timeout=10)
        syncer.finish()
        syncer.wait()
        # The file and its folder.
        assert last.acquire(blocking=False) and last.acquire(blocking=False)


def test_left_early_it_does_not_sync_all(path, monkeypatch):
    last = recorded(monkeypatch, "fsync")
    with pytest.raises(ValueError), local.Syncer(path):
        raise ValueError
    assert not last.acquire(blocking=False)
    assert not any(thread.name == "kvm2-sync" for thread in threading.enumerate())


@pytest.mark.parametrize("name", ["fdatasync", "fsync"])
def test_an_error_of_any_sync_is_told(path, monkeypatch, name):
    calls = recorded(monkeypatch, name, OSError(5, "Input/output error"))
    with local.Syncer(path) as syncer:
        if name == "fdatasync":
            assert calls.acquire(timeout=10)
        syncer.finish()
        with pytest.raises(Kvm2Error, match="Input/output error") as caught:
            syncer.wait()
    assert caught.value.kind == "transient"


def test_holes_are_dug_or_it_is_said_why_not():
    assert holes.dig(lambda command, **options: (0, "", ""), "/x") is None
    assert holes.dig(lambda command, **options: (1, "", "fallocate: not supported\n"), "/x") == "fallocate: not supported"

    def missing(command, **options):
        raise OSError(2, "No such file or directory")
    assert "No such file" in holes.dig(missing, "/x")
