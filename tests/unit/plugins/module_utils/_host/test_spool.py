# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import errno
import os
import resource

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import source, spool, storage
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import TRANSIENT, Kvm2Error

BLOCKS = [b"a" * 100_000, b"b" * 200_000]


def answer(monkeypatch, **answers):
    """Have the helper's functions of these names answered by others, which get what the helper would."""
    real = storage.Worker.ask

    def ask(worker, patience, name, *arguments):
        return answers[name](*arguments) if name in answers else real(worker, patience, name, *arguments)
    monkeypatch.setattr(storage.Worker, "ask", ask)


def room(monkeypatch, *free):
    """Let the filesystem have so many bytes free, one figure for each look; it is large enough for a reserve of 256 MiB."""
    figures = list(free)
    answer(monkeypatch, room=lambda _descriptor: (figures.pop(0) if len(figures) > 1 else figures[0], 10 ** 12))


def refuse(_folder):
    raise OSError(95, "Operation not supported")


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
    made, real = [], storage.Worker.ask

    def ask(worker, patience, name, *arguments):
        if name == "nameless":
            refuse(*arguments)
        if name == "removed":
            made.append(arguments)
        return real(worker, patience, name, *arguments)
    monkeypatch.setattr(storage.Worker, "ask", ask)
    spooled = spool.spool(iter(BLOCKS), "image", None, str(pool))
    assert made == [(str(other),)] and os.listdir(other) == os.listdir(pool) == []
    assert b"".join(spooled.blocks()) == b"".join(BLOCKS)
    spooled.close()


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
    answer(monkeypatch, is_beside=lambda _path, _descriptor: False)
    spool.spool(iter(BLOCKS), "image", str(tmp_path), str(tmp_path)).close()


@pytest.mark.parametrize("most", [150_000, 250_000])
def test_a_disk_that_is_full_all_the_same(monkeypatch, tmp_path, most):
    real = storage.start

    def small(*arguments):
        worker = real(*arguments)
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (most, most))
        return worker
    monkeypatch.setattr(storage, "start", small)
    with pytest.raises(Kvm2Error, match="File too large") as caught:
        spool.spool(iter(BLOCKS), "image", str(tmp_path))
    assert caught.value.kind == "quota" and "tmpdir" in caught.value.hint and str(tmp_path) in caught.value.object


@pytest.mark.parametrize("code, kind, word", [
    (errno.ENOSPC, "quota", "tmpdir with more room"), (errno.EDQUOT, "quota", "tmpdir with more room"), (errno.EIO, "transient", "Check the storage of"),
    (errno.EROFS, "transient", "Check the storage of")])
@pytest.mark.parametrize("where", ["begin", "room", "is_beside"])
def test_storage_that_fails_is_told_as_what_it_is(monkeypatch, tmp_path, where, code, kind, word):
    def fail(*_arguments):
        raise OSError(code, os.strerror(code))
    if where == "begin":
        real = storage.Worker.begin
        monkeypatch.setattr(storage.Worker, "begin", lambda worker, patience, name, *rest: (fail if name == "write" else real)(worker, patience, name, *rest))
    else:
        answer(monkeypatch, **{where: fail})
    with pytest.raises(Kvm2Error, match=os.strerror(code)) as caught:
        spool.spool(iter(BLOCKS), "image", str(tmp_path), str(tmp_path))
    # Where only something is looked at, nothing is full.
    assert caught.value.kind == (kind if where != "is_beside" else "transient") and str(tmp_path) in caught.value.message
    assert where == "is_beside" or word in caught.value.hint


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


@pytest.mark.parametrize("change, word", [
    (lambda path: os.truncate(path, 8_000_001), "gave more"), (lambda path: os.truncate(path, 9), "announced 8000000 bytes and gave [0-9]")])
def test_a_file_that_changes_while_it_is_read(tmp_path, change, word):
    path = tmp_path / "image"
    # More than is read ahead.
    path.write_bytes(b"x" * 8_000_000)
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
