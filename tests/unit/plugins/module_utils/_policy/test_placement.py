# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Placement: balanced by weight, the same every time, and still while instances come and go at the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy.placement import place

WEIGHTS = st.dictionaries(st.sampled_from([f"hv{number}" for number in range(9)]), st.integers(1, 20), min_size=1)
COUNTS = st.integers(0, 60)


def free(count):
    return [(f"proxy-{number:02d}", None) for number in range(1, count + 1)]


def where(placed):
    return {name: hypervisor for hypervisor, names in placed.items() for name in names}


def test_two_instances_are_on_two_hypervisors():
    assert place(free(2), {"hv1": 1, "hv2": 1}) == {"hv1": ["proxy-01"], "hv2": ["proxy-02"]}


def test_weight_counts_in_proportion():
    assert {name: len(share) for name, share in place(free(12), {"hv1": 1, "hv2": 2, "hv3": 3}).items()} == {"hv1": 2, "hv2": 4, "hv3": 6}


def test_wanted_hypervisor_is_kept_and_counts_as_load():
    assert place([("a", "hv1"), ("b", "hv1"), ("c", None), ("d", None)], {"hv1": 1, "hv2": 1}) == {"hv1": ["a", "b"], "hv2": ["c", "d"]}


def test_hypervisor_without_an_instance_is_there():
    assert place([], {"hv2": 1, "hv1": 5}) == {"hv1": [], "hv2": []}


@given(COUNTS, WEIGHTS)
def test_every_instance_is_placed_once(count, weights):
    placed = place(free(count), weights)
    assert set(placed) == set(weights)
    assert sorted(name for share in placed.values() for name in share) == [name for name, wanted in free(count)]


@given(COUNTS, WEIGHTS)
def test_no_hypervisor_could_take_one_more_and_be_less_loaded(count, weights):
    loads = {name: len(share) for name, share in place(free(count), weights).items()}
    for busy in weights:
        for other in weights:
            assert (loads[busy] - 1) / weights[busy] < (loads[other] + 1) / weights[other]


@given(COUNTS, WEIGHTS)
def test_adding_one_at_the_end_moves_none(count, weights):
    before, after = where(place(free(count), weights)), where(place(free(count + 1), weights))
    assert before == {name: after[name] for name in before}


@given(COUNTS, WEIGHTS, st.randoms())
def test_the_order_of_the_hypervisors_does_not_matter(count, weights, random):
    names = list(weights)
    random.shuffle(names)
    assert place(free(count), {name: weights[name] for name in names}) == place(free(count), weights)
