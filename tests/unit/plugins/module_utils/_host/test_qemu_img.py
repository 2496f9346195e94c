# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import subprocess

from ansible_collections.egress.kvm2.plugins.module_utils._host import storage
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
    base, top = tmp_path / "base", tmp_path / "top"
    make(base)
    make(top, "-b", str(base), "-F", "qcow2")
    base.unlink()
    assert backing_chain(str(top)) is None


def test_without_qemu_img_nothing_is_told(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"x")
    assert backing_chain(str(path), run=lambda command, *rest: storage.run(["no-such-program", *command], *rest)) is None
    assert backing_chain(str(path), run=lambda command, *rest: storage.run(["false"], *rest)) is None
