# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creation, change, replacement and removal killed at every step: the next converge ends whole, and the removal leaves nothing. Nor does one during which
something starts the guest again."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from .living import living, output

# At least so many places of each run make a difference.
LEAST = {"create": 8, "redefine": 2, "restart": 7, "replace": 9, "delete": 6}


def killed(hypervisors, host, which):
    """How many places of each run it was killed at."""
    with living(hypervisors, host):
        done = output(hypervisors, host, f"python3 killing.py {which} {' '.join(LEAST)}")
    counts = Counter(name for name, at in json.loads(done) if at)
    print(dict(counts))
    return counts


def test_killed_after_every_step(hv1):
    counts = killed(hv1, "hv1", "after")
    assert all(counts[name] >= least for name, least in LEAST.items())


@pytest.mark.extended
def test_killed_before_and_after_every_step_on_the_other_releases(other_release):
    hypervisors, host = other_release
    counts = killed(hypervisors, host, "both")
    assert all(counts[name] >= least for name, least in LEAST.items()) and sum(counts.values()) > 1.5 * sum(LEAST.values())


def test_started_at_every_step_of_its_removal(hv1):
    with living(hv1, "hv1"):
        started = json.loads(output(hv1, "hv1", "python3 starting.py"))
    print(started)
    assert started["after virDomain.destroy 1"] and started["before virStorageVol.delete 1"]
    # Without its disk there is nothing to start.
    assert not started["after virDomain.undefineFlags 1"]
