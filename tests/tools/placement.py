# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put the collection where Ansible looks for collections, whatever folder the checkout is in."""

from __future__ import annotations

import os
from pathlib import Path

from paths import CHECKOUT, COLLECTIONS, IN_COLLECTIONS


def collections_root() -> Path:
    """The folder for ANSIBLE_COLLECTIONS_PATH and sys.path: the checkout's own where it already sits in such a tree."""
    inside = CHECKOUT.parts[-len(IN_COLLECTIONS.parts):] == IN_COLLECTIONS.parts
    return CHECKOUT.parents[len(IN_COLLECTIONS.parts) - 1] if inside else COLLECTIONS


def place() -> Path:
    """Make the symlink to the checkout and return collections_root(). Safe when several processes do it at once."""
    root = collections_root()
    link = root / IN_COLLECTIONS
    if root != COLLECTIONS or (link.is_symlink() and Path(os.readlink(link)) == CHECKOUT):
        return root
    link.parent.mkdir(parents=True, exist_ok=True)
    fresh = link.with_name(f"kvm2.link-{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(CHECKOUT, target_is_directory=True)
    os.replace(fresh, link)
    return root
