# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a schedule runs on one of two hypervisors after the fleet became smaller: the report tells what is left over and changes nothing, and the
collection's playbook takes exactly that."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from .collecting import clean_up

FLEET = Path(__file__).with_name("fleet.yml")
NAME = "gcfleet"
# Their addresses are given, so nobody waits for a boot.
NETWORKS = [{"network": "default", "subnet": "192.168.122.0/24", "gateway": "192.168.122.1", "first": "192.168.122.231"}]
LISTING = "virsh -q list --all --name | sort; virsh -q vol-list default | awk '{ print $1 }' | sort"


def play(hv1, name, count, *arguments, **variables):
    """Output of one of the collection's playbooks for a fleet of that many instances, on one line: long lines are folded."""
    change = {"name": NAME, "networks": NETWORKS, "hypervisors": ["hv1", "hv9"], "instances": {"count": count}}
    extra = {"test_change": change, "proxy_fleet_check": False, **variables}
    done = hv1.playbook(f"egress.kvm2.{name}", "--limit", "hv1", "-e", f"@{FLEET}", "-e", json.dumps(extra), *arguments)
    return " ".join(done.stdout.split())


def listing(hv1):
    return set(hv1.shell("hv1", LISTING).split())


@pytest.fixture
def before(hv1):
    found = listing(hv1)
    yield found
    # The image too, where it was not there.
    clean_up(hv1, rf"{NAME}\.", "|".join(map(re.escape, sorted(listing(hv1) - found))) or NAME)
    assert listing(hv1) == found


@pytest.mark.extended
def test_what_a_smaller_fleet_leaves_is_reported_and_collected(hv1, before):
    play(hv1, "provision", 4)
    full = listing(hv1)
    own = full - before

    def of(instance):
        return {name for name in own if f"{NAME}.{instance}" in name}

    # hv1's share, as a run over both hypervisors would place it: a domain, its overlay and its seed each.
    left_over, staying = of("proxy-03"), of("proxy-01")
    assert (len(left_over), len(staying)) == (3, 3)
    assert of("proxy-02") == of("proxy-04") == set()

    # As the schedule has it, the ages by default: all of it is young.
    assert f"Fleet {NAME} on hv1: nothing collected" in play(hv1, "gc", 2)
    assert listing(hv1) == full

    now = {"fleet_gc_min_age": "0s"}
    report = play(hv1, "report", 2, fleet_report_min_age="0s")
    assert f"{NAME}.proxy-03: it is not live" in report
    assert re.search(r"hv1 : ok=\d+ changed=0 ", report)
    predicted = play(hv1, "gc", 2, "--check", **now)
    assert listing(hv1) == full

    done = play(hv1, "gc", 2, **now)
    assert full - listing(hv1) == left_over
    for name in left_over:
        assert name in predicted
        assert name in done
    assert "it is not live" not in play(hv1, "report", 2, fleet_report_min_age="0s")

    # Another definition of the hypervisors places the rest elsewhere: that is for the operator to move, and is never collected.
    moved = {"name": NAME, "networks": NETWORKS, "hypervisors": ["hv9"], "instances": {"count": 1}}
    play(hv1, "gc", 1, test_change=moved, **now)
    assert listing(hv1) == full - left_over
