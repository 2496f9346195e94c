# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report that people read: everything that goes or needs a look, and counts of the rest."""

from __future__ import annotations

from ansible_collections.egress.kvm2.plugins.module_utils._policy.collect_report import lines
from ansible_collections.egress.kvm2.plugins.module_utils._policy.collection import Collection, Item

FULL = Collection(
    collected=[Item("domain", "edge.c", "it is not live"), Item("seed", "s.iso", "it goes with the instance edge.c", "default")],
    kept=[Item("domain", "edge.a", "it is live"), Item("domain", "edge.b", "it is on hold: wait"), Item("base", "b.qcow2", "it is used", "default")],
    skipped=[Item("domain", "web", "it carries no mark", others=True), Item("domain", "edge.x", "its mark names edge.y")],
    unreadable=[Item("domain", "edge.z", "<uid> is empty")],
    blocked=("pool off is not active",))


def test_a_run_that_did_something():
    assert lines(FULL, "edge", "hv1", False, ["Failed to delete instance edge.d: it is on hold"]) == [
        "Fleet edge on hv1: 1 domain, 1 seed collected, 2 domains, 1 base kept, 2 domains to look at; 1 of others left alone.",
        "Failed:",
        "  - Failed to delete instance edge.d: it is on hold",
        "Collected:",
        "  - domain edge.c: it is not live",
        "  - seed s.iso (pool default): it goes with the instance edge.c",
        "To look at, left as they are:",
        "  - domain edge.x: its mark names edge.y",
        "  - domain edge.z: <uid> is empty",
        "Could not be looked into, so what it may use stays:",
        "  - pool off is not active",
        "Instances that stay though they are not simply live:",
        "  - domain edge.b: it is on hold: wait"]


def test_a_prediction_says_so():
    found = lines(FULL, "edge", "", True)
    assert found[0].startswith("Fleet edge: 1 domain, 1 seed would go, ")
    assert found[1] == "Would be collected:"


def test_nothing_to_tell_is_one_line():
    assert lines(Collection(), "edge", "", False) == ["Fleet edge: nothing collected, nothing kept, nothing to look at."]
