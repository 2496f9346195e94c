# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import holes, local, storage, storage_worker
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "volume"
    path.write_bytes(b"x")
    return str(path)


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
