# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything that acts on an instance at once on a real daemon: no round ends broken in silence, and one quiet replacement mends it."""

from __future__ import annotations

import json

import pytest

from .living import living, output


def race(hypervisors, host, rounds):
    with living(hypervisors, host):
        seen = json.loads(output(hypervisors, host, f"python3 racers.py {rounds}"))
    print(seen["counts"], *seen["errors"], sep="\n")
    assert seen["broken"] == []
    counts = seen["counts"]
    # All sides met, and each had its way at times.
    assert all(counts[f"{kind} succeeded"] > rounds / 15 for kind in ("create", "redefine", "replace", "delete", "collect"))
    assert counts["create failed"] and counts["replace failed"] and counts["volumes collected"] > rounds / 3
    return counts


def test_rounds_of_everything_at_once(hv1):
    race(hv1, "hv1", 30)


@pytest.mark.extended
def test_hundreds_of_rounds(hv1):
    race(hv1, "hv1", 300)


@pytest.mark.extended
def test_rounds_on_the_other_releases(other_release):
    race(*other_release, 60)
