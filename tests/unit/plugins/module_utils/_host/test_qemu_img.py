# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import subprocess
import threading
import time

from ansible_collections.egress.kvm2.plugins.module_utils._host import ending, storage
from ansible_collections.egress.kvm2.plugins.module_utils._host.qemu_img import backing_chain


def make(path, *arguments):
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *arguments, str(path), "1M"], check=True)


def test_the_whole_chain_below_an_image(tmp_path):
    base, middle, top = (tmp_path / name for name in ("base", "middle", "top"))
    make(base)
    make(middle, "-b", str(base), "-F", "qcow2")
    make(top, "-b", "middle", "-F", "qcow2")
    assert backing_chain(str(top)) == (str(middle), str(base))
    assert backing_chain(str(base)) == ()


def test_a_file_that_has_gone_hides_nothing_and_a_broken_chain_might(tmp_path):
    assert backing_chain(str(tmp_path / "gone")) == ()
    # Perhaps of another machine, or on a disk that is not mounted.
    assert backing_chain(str(tmp_path / "nowhere" / "gone")) is None
    base, top = tmp_path / "base", tmp_path / "top"
    make(base)
    make(top, "-b", str(base), "-F", "qcow2")
    base.unlink()
    assert backing_chain(str(top)) is None


def test_an_image_or_storage_that_does_not_answer_is_told_of_nobody_and_hinders_nobody(tmp_path, monkeypatch):
    pipe, before = tmp_path / "stuck", set(ending.children())
    os.mkfifo(pipe)
    assert backing_chain(str(pipe), run=lambda command, path, patience: storage.run(["sh", "-c", 'sleep 600 & cat "$0"', path], path, 0.5)) is None
    assert storage.touch("exists", str(pipe))
    storage.close()
    until = time.monotonic() + 30
    while set(ending.children()) - before and time.monotonic() < until:
        threading.Event().wait(0.01)
    assert set(ending.children()) <= before

    def silent(name, path):
        raise storage.stopped(path, "look at", "no answer")
    monkeypatch.setattr(storage, "touch", silent)
    assert backing_chain(str(pipe)) is None


def test_without_qemu_img_nothing_is_told(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"x")
    assert backing_chain(str(path), run=lambda command, *rest: storage.run(["no-such-program", *command], *rest)) is None
    assert backing_chain(str(path), run=lambda command, *rest: storage.run(["false"], *rest)) is None
