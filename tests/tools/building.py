# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""make build: the collection as users get it, out of the files that are or would be committed."""

from __future__ import annotations

import environment
from console import Step, must
from paths import CACHE, DIST
from sanity import copy_checkout


def build() -> None:
    """Build the archive into the state folder's dist."""
    venv = environment.ensure()
    source = CACHE / "build"
    with environment.locked("build"), Step(f"building the collection into {DIST}"):
        copy_checkout(source)
        command = [venv / "bin" / "ansible-galaxy", "collection", "build", "--force", "--output-path", DIST, source]
        must("build the collection", command, env=environment.venv_env(venv))
