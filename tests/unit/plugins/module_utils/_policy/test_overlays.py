# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which overlay is an instance's, as tables: what is taken, what is left, what grows, what is drift and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy import overlays
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import CONFLICT, PERMANENT, Kvm2Error
from ansible_collections.egress.kvm2.plugins.module_utils._policy.model import Volume
from ansible_collections.egress.kvm2.plugins.module_utils._policy.overlays import YOUNG, Candidate, Drift, choose, keep, same_base, wanted_capacity

GIB = 1024 ** 3
BASE = "kvm2-base-a-0123456789abcdef-aaaaaa.qcow2"
EQUAL = "kvm2-base-a-0123456789abcdef-bbbbbb.qcow2"
NEWER = "kvm2-base-a-fedcba9876543210-aaaaaa.qcow2"
UNPINNED, UNPINNED_TOO = "kvm2-base-a-u123456789abcdef-aaaaaa.qcow2", "kvm2-base-a-u123456789abcdef-bbbbbb.qcow2"
FIT = Candidate(Volume("p", "fit", "/p/fit", capacity=GIB), age=5.0, written=False, complete=True, right_base=True)


def named(name, **changes):
    capacity = changes.pop("capacity", GIB)
    return replace(FIT, volume=Volume("p", name, f"/p/{name}", capacity=capacity), **changes)


def test_a_fit_one_is_taken():
    found = choose((FIT,), GIB, "new", "x")
    assert (found.status, found.name, found.grow_to, found.drift) == ("taken", "fit", None, ())


@pytest.mark.parametrize("unfit", [
    {"age": YOUNG}, {"age": YOUNG + 1}, {"age": -1}, {"age": None}, {"written": True}, {"written": None}, {"complete": False}, {"right_base": False},
    {"capacity": GIB - 1}])
def test_one_fault_is_enough_to_leave_it_alone(unfit):
    found = choose((named("odd", **unfit),), GIB, "new", "x")
    assert (found.status, found.name) == ("created", None) and "none of 1 unreferenced overlays is fit" in found.why
    # Beside a fit one it is no matter.
    assert choose((named("odd", **unfit), FIT), GIB, "new", "x").name == "fit"


def test_without_any_and_without_a_known_capacity_a_new_one_is_made():
    assert choose((), GIB, "new", "x").why == "no overlay is there"
    assert choose((FIT,), None, "new", "x").status == "created"


def test_the_youngest_is_taken_and_a_larger_one_does():
    assert choose((named("old", age=9), named("young", age=1, capacity=2 * GIB), named("older", age=99)), GIB, "new", "x").name == "young"
    assert choose((named("b", age=1), named("a", age=1)), GIB, "new", "x").name == "a"


def test_stale_ones_are_refused_only_where_that_is_asked_for():
    stale = (named("b", written=True, age=9999.0), named("a", written=True, complete=False), FIT)
    assert choose(stale, GIB, "new", "x").name == "fit"
    with pytest.raises(Kvm2Error, match="written to a, b, which no domain references") as caught:
        choose(stale, GIB, "fail", "overlay of edge.one")
    assert (caught.value.kind, caught.value.object) == (CONFLICT, "overlay of edge.one")
    # What cannot be told is not called stale.
    assert choose((named("odd", written=None),), GIB, "fail", "x").status == "created"


candidates = st.lists(st.builds(
    lambda number, age, written, complete, right, capacity: named(
        f"v{number}", age=age, written=written, complete=complete, right_base=right, capacity=capacity),
    st.integers(0, 9), st.none() | st.floats(-100, 2000), st.sampled_from((True, False, None)), st.booleans(), st.booleans(),
    st.sampled_from((GIB // 2, GIB, 2 * GIB))), max_size=6, unique_by=lambda one: one.volume.name).map(tuple)


@given(candidates)
def test_whatever_is_there_only_a_fit_one_is_ever_taken(found):
    decision = choose(found, GIB, "new", "x")
    fit = [one for one in found if one.written is False and one.complete and one.right_base and one.age is not None and 0 <= one.age < YOUNG
           and one.volume.capacity >= GIB]
    assert (decision.status == "taken") == bool(fit)
    assert decision.name in [one.volume.name for one in fit] or (not fit and decision.name is None)


# -- the overlay that a domain has

HAS = Volume("p", "has", "/p/has", capacity=2 * GIB, backing_path=f"/p/{BASE}")


@pytest.mark.parametrize(("capacity", "asked", "saved", "grow", "drift"), [
    (2 * GIB, 2 * GIB, False, None, ()), (3 * GIB, 3 * GIB, False, 3 * GIB, ()), (3 * GIB, None, False, 3 * GIB, ()),
    # Left out means at least as large as the base: a larger one stays as it is.
    (GIB, None, False, None, ()), (None, None, False, None, ()),
    (3 * GIB, 3 * GIB, True, None, (Drift("capacity", 2 * GIB, 3 * GIB, "start"),)), (2 * GIB, 2 * GIB, True, None, ())])
def test_its_capacity(capacity, asked, saved, grow, drift):
    found = keep(HAS, "/p/has", capacity, asked, BASE, BASE, {}, "x", saved=saved)
    assert (found.status, found.name, found.grow_to, found.drift) == ("present", "has", grow, drift)


def test_it_is_never_made_smaller():
    with pytest.raises(Kvm2Error, match=f"it has {2 * GIB} bytes and {GIB} are wanted") as caught:
        keep(HAS, "/p/has", GIB, GIB, BASE, BASE, {}, "overlay of edge.one")
    assert caught.value.kind == PERMANENT and "never made smaller" in caught.value.hint


@pytest.mark.parametrize(("have", "wanted", "drift"), [
    (BASE, BASE, ()), (EQUAL, BASE, ()), (BASE, NEWER, (Drift("base", BASE, NEWER, "replace"),)),
    ("foreign.qcow2", BASE, (Drift("base", "foreign.qcow2", BASE, "replace"),)),
    # Without a base, or with one that cannot be named, what the file itself says is shown.
    ("", BASE, (Drift("base", f"/p/{BASE}", BASE, "replace"),))])
def test_another_base_is_drift_and_an_equal_one_is_not(have, wanted, drift):
    found = keep(HAS, "/p/has", 2 * GIB, None, wanted, have, {}, "x")
    assert (found.status, found.grow_to, found.drift) == ("present", None, drift)


def test_a_file_that_has_gone_is_drift():
    found = keep(None, "/p/has", 2 * GIB, 2 * GIB, BASE, None, {}, "x")
    assert (found.status, found.name, found.drift) == ("missing", None, (Drift("overlay", "/p/has", "a file that exists", "replace"),))


@pytest.mark.parametrize(("one", "other", "digests", "same"), [
    (BASE, BASE, {}, True), (BASE, EQUAL, {}, True), (BASE, NEWER, {}, False), (BASE, BASE.replace("-a-", "-b-"), {}, False),
    (BASE, BASE.replace("qcow2", "raw"), {}, False),
    # Without a pinned digest only what is stored tells.
    (UNPINNED, UNPINNED_TOO, {}, False), (UNPINNED, UNPINNED_TOO, {UNPINNED: "d", UNPINNED_TOO: "d"}, True), (UNPINNED, UNPINNED, {}, True),
    (BASE, EQUAL, {BASE: "d", EQUAL: "e"}, False), (BASE, EQUAL, {BASE: "d"}, True), (BASE, UNPINNED, {BASE: "d", UNPINNED: "d"}, True),
    ("foreign.qcow2", BASE, {}, False), (None, BASE, {}, False), ("", BASE, {}, False)])
def test_the_same_base(one, other, digests, same):
    assert [same_base(*names, digests) for names in ((one, other), (other, one))] == [same, same]


@pytest.mark.parametrize(("asked", "virtual", "capacity"), [(None, GIB, GIB), (None, None, None), (GIB, GIB, GIB), (2 * GIB, GIB, 2 * GIB), (5, None, 5)])
def test_the_wanted_capacity(asked, virtual, capacity):
    assert wanted_capacity(asked, virtual, "x", BASE) == capacity


def test_less_than_the_base_is_refused_with_both_sizes():
    with pytest.raises(Kvm2Error, match=f"{GIB - 1} bytes is smaller than the {GIB} bytes of the base {BASE}") as caught:
        wanted_capacity(GIB - 1, GIB, "overlay of edge.one", BASE)
    assert caught.value.kind == PERMANENT


def test_an_overlay_is_defined_over_for_longer_than_it_is_taken():
    # Who takes one at the last moment has time to define a domain over it, and the collector waits longer than both.
    assert overlays.YOUNG < overlays.DEFINABLE < 3600
