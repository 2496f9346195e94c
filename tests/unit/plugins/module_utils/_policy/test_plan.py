# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans: changed, diff and the returned actions come from the same actions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy.plan import Action, Plan

words = st.text("abcdef", min_size=1, max_size=6)
values = st.none() | words | st.dictionaries(words, st.integers(), max_size=3)
actions = st.builds(
    Action, act=words, what=words, name=words, why=st.just("") | words, instance=st.none() | words, before=values, after=values,
    payload=st.none() | st.just({"secret": "do not show"}), changes=st.booleans())
plans = st.lists(actions, max_size=6).map(tuple).map(Plan)


def test_an_empty_plan_changes_nothing():
    assert not Plan().changed
    assert Plan().as_list() == []
    assert Plan().diff() == {"before": "", "after": ""}


@given(plans)
def test_changed_says_whether_any_action_changes(plan):
    assert plan.changed == any(action.changes for action in plan.actions)


@given(plans)
def test_a_plan_that_changes_nothing_shows_no_difference(plan):
    quiet = Plan(tuple(action for action in plan.actions if not action.changes))
    assert quiet.diff() == {"before": "", "after": ""}


@given(plans)
def test_the_payload_is_never_shown(plan):
    assert "do not show" not in f"{plan.as_list()}{plan.diff()}"


@given(plans)
def test_actions_keep_their_order(plan):
    assert [(one["act"], one["what"], one["name"]) for one in plan.as_list()] == [(one.act, one.what, one.name) for one in plan.actions]


@given(plans, words)
def test_the_part_of_one_instance(plan, instance):
    assert plan.of(instance).actions == tuple(action for action in plan.actions if action.instance == instance)


def test_actions_as_operators_see_them():
    action = Action("create", "overlay", "kvm2-a", why="there is none", instance="p1", payload={"capacity": 1})
    assert action.as_dict() == {"act": "create", "what": "overlay", "name": "kvm2-a", "instance": "p1", "why": "there is none"}
    assert Action("refresh", "pool", "default").as_dict() == {"act": "refresh", "what": "pool", "name": "default"}


def test_the_difference_is_readable_text():
    plan = Plan((
        Action("create", "overlay", "o1"),
        Action("redefine", "domain", "edge.p1", before={"vcpus": 1, "memory": 5}, after={"vcpus": 2, "memory": 5}),
        Action("delete", "seed", "s1", before="there", after=None),
        Action("touch", "overlay", "o1", changes=False)))
    assert plan.diff() == {
        "before": "domain edge.p1: memory: 5\ndomain edge.p1: vcpus: 1\nseed s1: there\n",
        "after": "create overlay o1\ndomain edge.p1: memory: 5\ndomain edge.p1: vcpus: 2\n"}
