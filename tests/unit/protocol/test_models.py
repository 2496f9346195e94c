# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The protocols hold in every interleaving, and each order that was rejected breaks in one: so the models can tell."""

from __future__ import annotations

import pytest

from ansible_collections.egress.kvm2.tests.unit.protocol import base_model
from ansible_collections.egress.kvm2.tests.unit.protocol.instance_model import OLD, YOUNG, Protocol, World, explore

STARTS = {
    "nothing there": World(),
    "running": World(frozenset((OLD,)), frozenset((OLD,)), OLD, OLD, False, frozenset((OLD,))),
    "off": World(frozenset((OLD,)), frozenset((OLD,)), OLD, None, False, frozenset((OLD,))),
    "defined, never started": World(frozenset((OLD,)), frozenset((OLD,)), OLD),
    "just defined, never started": World(frozenset((YOUNG,)), frozenset(), YOUNG),
    "deletion interrupted": World(frozenset((OLD,)), frozenset((OLD,)), OLD, None, True, frozenset((OLD,))),
    "old overlay left": World(frozenset((OLD,)), frozenset((OLD,))),
    "young overlay left": World(frozenset((YOUNG,))),
    "old written overlay left": World(frozenset((OLD,)), frozenset((OLD,)), written=frozenset((OLD,))),
}
RUNS = (
    "create collect", "create create", "create create create", "create create collect", "create delete", "create create delete",
    "create delete collect", "create collect collect", "create delete delete", "update delete", "update create", "update create delete",
    "replace collect", "replace delete", "replace create", "replace replace", "replace delete collect", "update replace collect",
    "restart delete", "restart create", "restart update", "restart restart", "restart replace", "restart replace collect", "restart delete create")


@pytest.mark.parametrize("creators", [1, 2, 3])
@pytest.mark.parametrize("collectors", [1, 2])
def test_a_creator_that_succeeds_keeps_its_base(creators, collectors):
    states, broken = base_model.explore(creators, collectors, put_back=False)
    assert broken is None
    assert states > 30


def test_a_record_that_is_put_back_costs_a_base():
    assert base_model.explore(1, 1, put_back=True)[1] is None
    assert base_model.explore(1, 2, put_back=True)[1] is not None


@pytest.mark.parametrize("runs", RUNS)
def test_the_protocol_of_instances_holds(runs):
    total = 0
    for name, start in STARTS.items():
        states, found = explore(runs.split(), start, Protocol())
        assert found == set(), name
        total += states
    assert total > 100


@pytest.mark.parametrize(("rejected", "runs", "start", "fault"), [
    (Protocol(declare=False), "create delete", "just defined, never started", "ends without its disk, and nobody said so"),
    (Protocol(define_over="any"), "create collect", "nothing there", "a collector deleted an overlay in use"),
    (Protocol(define_over="any"), "create collect", "nothing there", "guest data lost without a deletion"),
    (Protocol(define_over="any", take="any"), "create collect", "old overlay left", "ends without its disk, and nobody said so"),
    (Protocol(touch=False), "update replace collect", "running", "a collector deleted an overlay in use"),
])
def test_each_rejected_order_breaks(rejected, runs, start, fault):
    _states, found = explore(runs.split(), STARTS[start], rejected)
    assert fault in found
    assert explore(runs.split(), STARTS[start], Protocol())[1] == set()
