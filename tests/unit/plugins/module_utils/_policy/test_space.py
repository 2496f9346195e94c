# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Space is what a guest can really use, with the figures and how they were got."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy import names, space
from ansible_collections.egress.kvm2.plugins.module_utils._policy.model import Pool, Volume

GIB = 1024 ** 3
POOL = Pool("default", "p", "dir", True, "/pool", capacity=100 * GIB, allocation=20 * GIB, available=80 * GIB)
BASE = names.BaseName("deb", "0123456789abcdef", "00ff00", "qcow2")


def overlay(name="a", capacity=4 * GIB, allocation=GIB, fleet="edge"):
    text = str(names.InstanceVolumeName("overlay", fleet, name, names.derive_uid(fleet, name), "00000a"))
    return Volume("default", text, f"/pool/{text}", capacity=capacity, allocation=allocation, backing_path="/pool/base")


def by_name(checks):
    return {check.name.split(" ")[0]: check for check in checks}


def test_the_filesystem_is_believed_before_libvirt():
    seen = space.measure(POOL, (), 0, ("percent", 5), f_bavail=50 * GIB)
    assert (seen.available, seen.available_source, seen.reserve, seen.room) == (50 * GIB, "filesystem", 5 * GIB, 45 * GIB)


def test_libvirts_figure_loses_the_reserve():
    seen = space.measure(POOL, (), 0, ("bytes", 7 * GIB))
    assert (seen.available, seen.available_source, seen.reserve, seen.room) == (73 * GIB, "libvirt", 7 * GIB, 73 * GIB)


def test_growth_is_that_of_overlays_only():
    base = Volume("default", str(BASE), f"/pool/{BASE}", capacity=2 * GIB, allocation=GIB)
    full = overlay("b", 4 * GIB, 5 * GIB)
    assert space.growth([overlay(), base, full]) == 3 * GIB


@pytest.mark.parametrize(("need", "status"), [(0, "ok"), (45 * GIB, "ok"), (45 * GIB + 1, "failed"), (200 * GIB, "failed")])
def test_what_is_needed_must_fit_with_the_reserve_kept(need, status):
    seen = space.measure(POOL, (), need, ("percent", 5), f_bavail=50 * GIB)
    check = by_name(space.checks(seen, 1.0))["space"]
    assert (check.status, check.kind) == (status, "quota" if status == "failed" else "permanent")
    assert "50.0 GiB are free (as its filesystem says)" in check.message
    assert bool(check.hint) == (status == "failed")


def test_the_reserve_alone_can_fail():
    seen = space.measure(replace(POOL, available=GIB), (), 0, ("percent", 5))
    check = by_name(space.checks(seen, 1.0))["space"]
    assert check.status == "failed"
    assert "4.0 GiB are missing" in check.message


def test_growth_is_a_warning():
    overlays = [overlay(f"a{number}", 21 * GIB) for number in range(2)]
    seen = space.measure(POOL, overlays, 6 * GIB, ("percent", 5), f_bavail=50 * GIB)
    assert by_name(space.checks(seen, 1.0))["growth"].status == "warning"
    assert by_name(space.checks(seen, 1.0))["space"].status == "ok"
    fits = space.measure(POOL, overlays, 5 * GIB, ("percent", 5), f_bavail=50 * GIB)
    assert by_name(space.checks(fits, 1.0))["growth"].status == "ok"


@pytest.mark.parametrize(("ratio", "status"), [(1.0, "warning"), (1.19, "warning"), (1.2, "ok")])
def test_overcommit_is_a_warning(ratio, status):
    overlays = [overlay(f"a{number}", 21 * GIB) for number in range(3)]
    seen = space.measure(POOL, overlays, 40 * GIB, ("percent", 0), f_bavail=80 * GIB)
    assert seen.overcommit == 1.2
    check = by_name(space.checks(seen, ratio))["overcommit"]
    assert check.status == status
    assert "1.20 times the 100.0 GiB" in check.message


def test_what_is_returned():
    seen = space.measure(POOL, [overlay()], GIB, ("percent", 5), f_bavail=50 * GIB)
    assert seen.as_dict() == {
        "pool": "default", "path": "/pool", "capacity": 100 * GIB, "available": 50 * GIB, "available_source": "filesystem",
        "growth": 3 * GIB, "needed": GIB, "reserve": 5 * GIB, "overcommit": 0.24}


# -- what is needed


def test_needs_are_added_up():
    assert space.needed((), fixed=1, instances=3, capacity=10, image=100) == 131


def test_an_image_that_is_there_is_not_needed_again():
    volumes = [Volume("default", name, f"/pool/{name}") for name in (str(BASE), BASE.record)]
    assert space.needed(volumes, image=100, key="deb") == 0
    assert space.needed(volumes[:1], image=100, key="deb") == 100
    assert space.needed(volumes[1:], image=100, key="deb") == 100
    assert space.needed(volumes, image=100, key="debian") == 100
    assert space.needed(volumes, image=100) == 100


def test_overlays_that_are_there_are_not_needed_again():
    wanted = [(name, names.derive_uid("edge", name), 4 * GIB) for name in ("a", "b")]
    assert space.needed([overlay("a")], fleet="edge", overlays=wanted) == 4 * GIB
    assert space.needed([overlay("a", 3 * GIB), overlay("b")], fleet="edge", overlays=wanted) == GIB
    assert space.needed([overlay("a", 9 * GIB), overlay("b")], fleet="edge", overlays=wanted) == 0
    assert space.needed([overlay("a", fleet="edge-2")], fleet="edge", overlays=wanted) == 8 * GIB


sizes = st.integers(0, 2 ** 50)


@given(sizes, sizes, sizes, sizes, st.none() | sizes, st.one_of(st.tuples(st.just("bytes"), sizes), st.tuples(st.just("percent"), st.floats(0, 100))))
def test_figures_agree(capacity, allocation, available, need, f_bavail, reserve):
    pool = replace(POOL, capacity=capacity, allocation=allocation, available=available)
    seen = space.measure(pool, [overlay()], need, reserve, f_bavail)
    free = available if f_bavail is None else f_bavail
    assert seen.room == free - seen.reserve
    assert (by_name(space.checks(seen, 1.0))["space"].status == "ok") == (need + seen.reserve <= free)
