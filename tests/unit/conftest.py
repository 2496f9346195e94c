# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared by all unit tests: the import path of the collection, and reproducible property tests."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from placement import place

# The collection becomes importable as ansible_collections.egress.kvm2 from any checkout folder.
sys.path.insert(0, str(place()))

# In CI the examples are the same in every run; by hand they vary and so find more. The machine's load decides nothing.
settings.register_profile("ci", derandomize=True, deadline=None, database=None, print_blob=True)
settings.register_profile("dev", deadline=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(autouse=True)
def result_untold(monkeypatch):
    """A process tells one result, and whoever tells it keeps the word until the end. Here many tests share a process."""
    from ansible_collections.egress.kvm2.plugins.module_utils._host import ending
    monkeypatch.setattr(ending, "_LAST_WORD", threading.RLock())
