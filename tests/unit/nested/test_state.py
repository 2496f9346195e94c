# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the harness takes for its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

NESTED = Path(__file__).resolve().parents[2] / "nested"
# In a process of its own: the harness's modules have names that others have too.
PROGRAM = """
import json, sys
from state import State
state = State()
names = [name.replace("OWN", state.prefix) for name in json.load(sys.stdin)]
json.dump([name.replace(state.prefix, "OWN") for name in state.own_images(names)], sys.stdout)
"""


def test_only_images_of_the_own_state_folder_are_own(tmp_path):
    own = ["localhost/OWN-root:trixie-0123456789ab", "localhost/OWN-bare:trixie"]
    others = [
        "localhost/kvm2-zzzzzz-root:trixie-0123456789ab", "localhost/OWNx-root:trixie", "docker.io/OWN-root:trixie", "docker.io/library/debian:trixie",
        "<none>:<none>"]
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=dict(os.environ, KVM2_CACHE=str(tmp_path), PYTHONPATH=str(NESTED)), input=json.dumps(others + own),
        capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == own
