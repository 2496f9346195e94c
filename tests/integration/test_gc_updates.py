# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replaced overlays, superseded seeds and old bases leave by collection: nothing piles up, however often an instance is updated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .collecting import clean_up
from .shipping import run_long, ship

FOLDER = "/srv/gcupdates"
TEAR_DOWN = f"virsh -q pool-destroy gcupdates; virsh -q pool-undefine gcupdates; rm -rf {FOLDER} {FOLDER}-code {FOLDER}-image.qcow2"


@pytest.fixture
def ground(hv1):
    hv1.shell("hv1", TEAR_DOWN)
    hv1.shell("hv1", f"set -e; mkdir {FOLDER}; virsh -q pool-define-as gcupdates dir --target {FOLDER}; virsh -q pool-start gcupdates")
    ship(hv1, f"{FOLDER}-code", Path(__file__).parent / "racing" / "updates.py")
    yield
    clean_up(hv1, "gcupdates", "kvm2-gcupdates")
    hv1.shell("hv1", TEAR_DOWN)


def test_nothing_piles_up_over_a_hundred_updates(hv1, ground):
    run_long(hv1, f"{FOLDER}-code", "python3 updates.py > seen")
    seen = json.loads(hv1.shell("hv1", f"cat {FOLDER}-code/output >&2; test -s {FOLDER}-code/seen && cat {FOLDER}-code/seen"))
    # Overlay, seed, base and its record; an old base and its record go one collection after the last overlay on them.
    assert seen["counts"] == [4, 4] + [6, 4] * 9
    own = [path.rpartition("/")[2] for path in (seen["overlay"], seen["seed"])]
    assert seen["left"] == sorted([*own, seen["base"], f"{seen['base']}.json"])
