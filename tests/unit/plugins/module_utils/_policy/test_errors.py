# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors as values: the message's form, and the kind of several."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy import errors
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import (
    CONFLICT,
    KINDS,
    PERMANENT,
    QUOTA,
    TRANSIENT,
    InvalidInput,
    Kvm2Error,
    kind_of_several,
)


def test_the_message_says_what_failed_why_and_what_to_do():
    error = Kvm2Error(QUOTA, "create", "volume a in pool default", "no space left.", "Free some space.", 38)
    assert str(error) == "Failed to create volume a in pool default: no space left. Free some space."
    assert error.as_dict() == {
        "kind": "quota", "code": 38, "act": "create", "object": "volume a in pool default", "hint": "Free some space.",
        "message": str(error)}


def test_without_a_hint_the_message_ends_after_the_cause():
    assert str(Kvm2Error(CONFLICT, "define", "domain a", "it is taken")) == "Failed to define domain a: it is taken."


def test_a_cause_may_be_an_exception():
    assert Kvm2Error(TRANSIENT, "open", "file a", OSError("gone.\n")).cause == "gone"


def test_bad_input_is_permanent():
    error = InvalidInput("vcpus 0", "a guest needs one", "Give 1.")
    assert isinstance(error, Kvm2Error)
    assert (error.kind, error.code) == (PERMANENT, None)
    assert str(error) == "Failed to read vcpus 0: a guest needs one. Give 1."


@pytest.mark.parametrize("kind", ["", "Transient", None, "fatal"])
def test_there_are_no_other_kinds(kind):
    with pytest.raises(ValueError, match="unknown kind of error"):
        raise Kvm2Error(kind, "a", "b", "c")


@given(st.lists(st.sampled_from(KINDS), min_size=1))
def test_several_are_transient_only_where_every_one_is(kinds):
    kind = kind_of_several(kinds)
    assert kind in kinds
    assert (kind == TRANSIENT) == (set(kinds) == {TRANSIENT})


@given(st.sampled_from(KINDS), st.text(), st.text(), st.text(), st.text())
def test_any_text_makes_an_error(kind, act, obj, cause, hint):
    error = errors.Kvm2Error(kind, act, obj, cause, hint)
    assert error.kind == kind
    assert str(error).startswith(f"Failed to {act} {obj}: ")
    assert str(error).endswith(hint or ".")
