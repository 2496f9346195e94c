# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a fleet: each instance once, with where it belongs and what is to be done about it."""

from __future__ import annotations

from ansible_collections.egress.kvm2.plugins.filter.fleet_report import FilterModule
from ansible_collections.egress.kvm2.plugins.module_utils._policy import fleet_report

FLEET = {"name": "edge", "instances": [
    {"name": "p1", "hypervisor": "hv1"}, {"name": "p2", "hypervisor": "hv1"}, {"name": "p3", "hypervisor": "hv2"},
    {"name": "p4", "hypervisor": "hv1"}, {"name": "p5", "hypervisor": "hv2"}]}
LIVE = "it is live"


def item(name, reason=LIVE, state="running", why=""):
    return {"what": "domain", "name": f"edge.{name}", "reason": reason, "instance": name, "state": state, "state_reason": why, "base": "b.qcow2"}


COLLECTION = {
    "collected": [item("old", "it is not live and its mark is 3 days old", "shutoff"), {"what": "seed", "name": "s.iso", "reason": "x"}],
    "kept": [item("p1"), item("p3"), item("p4", "it is on hold: wait", "paused", "I/O error"), item("new", "it is not live, but young")],
    "left_alone": [{"what": "domain", "name": "web", "reason": "it carries no mark of this collection"}], "unreadable": [],
    "report": ["Fleet edge on hv1: 1 domain, 1 seed would go."]}
DRIFT = {"field": "memory", "have": 1, "want": 2, "needs": "restart", "pending": False}
DOMAINS = [
    {"name": "p1", "primary_address": "192.0.2.7", "drift": [DRIFT]}, {"name": "p2", "primary_address": None, "drift": []},
    {"name": "p4", "primary_address": None, "drift": []}]


def test_the_whole():
    assert fleet_report.lines(FLEET, "hv1", COLLECTION, DOMAINS) == [
        "Fleet edge on hv1: 2 of 3 declared instances are there, 1 misplaced, 2 not declared.",
        "INSTANCE  STATE               ADDRESS    BASE     REMARK",
        "p1        running             192.0.2.7  b.qcow2  differs",
        "p2        absent              -          -        would be created",
        "p4        paused (I/O error)  -          b.qcow2  it is on hold: wait",
        "new       running             -          b.qcow2  not declared; it is not live, but young",
        "old       shutoff             -          b.qcow2  not declared; would be collected: it is not live and its mark is 3 days old",
        "p3        running             -          b.qcow2  misplaced, declared for hv2",
        "Differs from the definition:",
        "  - p1: memory is 1 where 2 is declared; its restart is needed",
        "Collection, as of now and without its limit:",
        "  Fleet edge on hv1: 1 domain, 1 seed would go."]


def test_without_what_provisioning_would_change():
    found = fleet_report.lines(FLEET, "hv1", COLLECTION, problem="no space")
    assert "What provisioning would change could not be told: no space" in found
    assert not any("differs" in line for line in found)


def test_a_hypervisor_with_nothing():
    empty = {"collected": [], "kept": [], "left_alone": [], "unreadable": [], "report": ["nothing"]}
    assert fleet_report.lines(FLEET, "hv9", empty) == [
        "Fleet edge on hv9: 0 of 0 declared instances are there, 0 misplaced, 0 not declared.",
        "Collection, as of now and without its limit:", "  nothing"]


def test_the_filter_is_the_function():
    assert FilterModule().filters() == {"fleet_report": fleet_report.lines}
