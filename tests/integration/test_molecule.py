# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Molecule's scenario by nothing but `molecule test`, with what an earlier run has left in its way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from nested import command

from .conftest import CHECKOUT

FOREIGN = "virsh -q vol-create-as default kvm2-base-left-behind.qcow2 4096 && virsh -q net-destroy default"


@pytest.mark.extended
def test_molecule_alone():
    """An earlier run was killed: its hypervisors are still there, with things in the pool, and one of them is not well."""
    for arguments in (["up", "--hosts", "mol1,mol2"], ["ssh", "mol1", FOREIGN]):
        subprocess.run([str(part) for part in command(*arguments)], stdin=subprocess.DEVNULL, check=True, timeout=1800)
    done = subprocess.run(
        [Path(sys.executable).with_name("molecule"), "test"], cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=1800, check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")})
    assert done.returncode == 0, done.stdout
    assert "mol1" not in subprocess.run([str(part) for part in command("status")], capture_output=True, text=True, timeout=120, check=False).stdout
    assert len(re.findall(r"TASK \[Judge\]", done.stdout)) == 5
