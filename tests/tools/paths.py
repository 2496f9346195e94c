# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where things are: the checkout, its state folder, and the two places the collection is put at."""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("KVM2_CACHE") or CHECKOUT / ".cache").resolve()
COLLECTIONS = CACHE / "collections"
SANITY = CACHE / "sanity"
DIST = CACHE / "dist"
IN_COLLECTIONS = Path("ansible_collections", "egress", "kvm2")
