# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os

from ansible_collections.egress.kvm2.plugins.module_utils._host.console_log import tail


def test_the_end_of_a_log(tmp_path):
    path = tmp_path / "console.log"
    path.write_bytes(b"0123456789")
    assert tail(str(path), 4) == (b"6789", False)
    assert tail(str(path), 10) == (b"0123456789", True)
    assert tail(str(path), 100) == (b"0123456789", True)
    path.write_bytes(b"")
    assert tail(str(path), 100) == (b"", True)


def test_a_log_that_was_just_begun_anew_is_read_with_the_former(tmp_path):
    path = tmp_path / "console.log"
    (tmp_path / "console.log.0").write_bytes(b"former\n")
    path.write_bytes(b"new\n")
    assert tail(str(path), 100) == (b"former\nnew\n", True)
    assert tail(str(path), 7) == (b"er\nnew\n", False)
    assert tail(str(path), 4) == (b"new\n", True)


def test_nothing_but_a_file_is_read(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    (tmp_path / "link").symlink_to(secret)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("link", "pipe", "folder", "missing", "missing/below"):
        assert tail(str(tmp_path / name), 100) is None
    (tmp_path / "log").write_bytes(b"log")
    (tmp_path / "log.0").symlink_to(secret)
    assert tail(str(tmp_path / "log"), 100) == (b"log", True)
