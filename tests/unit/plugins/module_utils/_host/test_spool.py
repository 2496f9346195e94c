# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import source, spool
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import TRANSIENT, Kvm2Error

BLOCKS = [b"a" * 100_000, b"b" * 200_000]


def room(monkeypatch, *free):
    """Let the filesystem have so many bytes free, one figure for each look; it is large enough for a reserve of 256 MiB."""
    figures = list(free)
    monkeypatch.setattr(
        spool.os, "fstatvfs", lambda _fd: SimpleNamespace(f_bavail=figures.pop(0) if len(figures) > 1 else figures[0], f_frsize=1, f_blocks=10 ** 12))


@pytest.mark.parametrize("chosen", ["tmpdir", "pool", None])
def test_content_and_length_and_nothing_left(tmp_path, chosen, monkeypatch):
    monkeypatch.setattr(spool.tempfile, "gettempdir", lambda: str(tmp_path))
    where = str(tmp_path) if chosen else None
    spooled = spool.spool(iter(BLOCKS), "image", where if chosen == "tmpdir" else None, where if chosen == "pool" else None)
    assert os.listdir(tmp_path) == []
    assert spooled.length == 300_000
    assert b"".join(spooled.blocks()) == b"".join(BLOCKS)
    spooled.close()


def test_a_filesystem_without_nameless_files_is_not_littered(tmp_path, monkeypatch):
    pool, other = tmp_path / "pool", tmp_path / "tmp"
    pool.mkdir()
    other.mkdir()
    monkeypatch.setattr(spool.tempfile, "gettempdir", lambda: str(other))
    monkeypatch.setattr(spool, "_nameless", lambda folder: None)
    made = []
    real = spool.tempfile.TemporaryFile
    monkeypatch.setattr(spool.tempfile, "TemporaryFile", lambda dir, buffering: made.append(dir) or real(dir=dir, buffering=buffering))
    spool.spool(iter(BLOCKS), "image", None, str(pool)).close()
    assert made == [str(other)]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(Kvm2Error, match="tmpdir /nowhere") as caught:
        spool.spool(iter(BLOCKS), "image", "/nowhere")
    assert caught.value.kind == "permanent"


def test_room_is_looked_at_before_the_first_byte(tmp_path, monkeypatch):
    room(monkeypatch, 300 * 1024 ** 2)
    unread = map(pytest.fail, ["it was read"])
    with pytest.raises(Kvm2Error, match="there is room for 46137344 more bytes, and 100000000 are needed") as caught:
        spool.spool(unread, "image", str(tmp_path), at_least=100_000_000)
    assert caught.value.kind == "quota"


def test_beside_the_pool_room_for_a_second_copy_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(spool, "_LOOK_EACH", 100_000)
    reserve = 256 * 1024 ** 2
    room(monkeypatch, reserve + 10 ** 6, reserve + 150_000)
    with pytest.raises(Kvm2Error, match="300000 are needed") as caught:
        spool.spool(iter(BLOCKS), "image", None, str(tmp_path))
    assert caught.value.kind == "quota"
    room(monkeypatch, reserve + 10 ** 6, reserve + 150_000)
    monkeypatch.setattr(spool.os, "stat", lambda _path: SimpleNamespace(st_dev=-1))
    spool.spool(iter(BLOCKS), "image", str(tmp_path), str(tmp_path)).close()


def test_a_disk_that_is_full_all_the_same(monkeypatch):
    monkeypatch.setattr(spool, "_open", lambda *given: ("/dev", open("/dev/full", "wb", 0)))
    room(monkeypatch, 10 ** 12)
    with pytest.raises(Kvm2Error, match="No space left on device") as caught:
        spool.spool(iter(BLOCKS), "image", "/dev")
    assert caught.value.kind == "quota" and "tmpdir" in caught.value.hint


def test_a_source_that_fails_fails_the_spooling(tmp_path):
    def blocks():
        yield b"x"
        raise Kvm2Error(TRANSIENT, "fetch", "it", "no more")
    with pytest.raises(Kvm2Error, match="no more"):
        spool.spool(blocks(), "image", str(tmp_path))


# -- files


def test_files(tmp_path):
    path = tmp_path / "image"
    path.write_bytes(b"x" * 600_000)
    opened = source.open_file(str(path))
    assert opened.length == 600_000 and b"".join(opened.blocks()) == path.read_bytes()
    opened.close()


@pytest.mark.parametrize("change, word", [(lambda path: path.write_bytes(b"x" * 700_000), "gave more"), (lambda path: os.truncate(path, 9), "gave 9")])
def test_a_file_that_changes_while_it_is_read(tmp_path, change, word):
    path = tmp_path / "image"
    path.write_bytes(b"x" * 600_000)
    opened = source.open_file(str(path))
    change(path)
    with pytest.raises(Kvm2Error, match=word) as caught:
        list(opened.blocks())
    assert caught.value.kind == "transient"
    opened.close()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_refused_and_does_not_block(tmp_path, make):
    make(tmp_path / "x")
    with pytest.raises(Kvm2Error, match="regular file") as caught:
        source.open_file(str(tmp_path / "x"))
    assert caught.value.kind == "permanent"


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(Kvm2Error, match="No such file") as caught:
        source.open_file(str(tmp_path / "none"))
    assert caught.value.kind == "permanent"
