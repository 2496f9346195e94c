# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove what the tooling made. Only known names go, since $KVM2_CACHE may be a folder that holds more."""

from __future__ import annotations

import shutil

from console import say
from paths import CACHE

_OURS = ("venv", "venv-*", "venv.link-*", "*.lock", "build", "collections", "demo", "dist", "pytest", "sanity")


def clean() -> None:
    """Remove environments, copies and archives; the state folder itself where nothing else is in it."""
    for pattern in _OURS:
        for path in CACHE.glob(pattern):
            say(f"removing {path}")
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    if CACHE.is_dir() and not any(CACHE.iterdir()):
        CACHE.rmdir()
