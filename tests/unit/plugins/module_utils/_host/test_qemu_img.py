# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import subprocess

from ansible_collections.egress.kvm2.plugins.module_utils._host.qemu_img import backing_chain


def run(arguments, handle_exceptions=True):
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def make(path, *arguments):
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *arguments, str(path), "1M"], check=True)


def test_the_whole_chain_below_an_image(tmp_path):
    base, middle, top = (tmp_path / name for name in ("base", "middle", "top"))
    make(base)
    make(middle, "-b", str(base), "-F", "qcow2")
    make(top, "-b", "middle", "-F", "qcow2")
    assert backing_chain(run, str(top)) == (str(middle), str(base))
    assert backing_chain(run, str(base)) == ()


def test_a_file_that_has_gone_hides_nothing_and_a_broken_chain_might(tmp_path):
    assert backing_chain(run, str(tmp_path / "gone")) == ()
    base, top = tmp_path / "base", tmp_path / "top"
    make(base)
    make(top, "-b", str(base), "-F", "qcow2")
    base.unlink()
    assert backing_chain(run, str(top)) is None


def test_without_qemu_img_nothing_is_told(tmp_path):
    def missing(arguments, handle_exceptions=True):
        raise FileNotFoundError(arguments[0])
    path = tmp_path / "x"
    path.write_bytes(b"x")
    assert backing_chain(missing, str(path)) is None
