# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Space is what a guest can really use, with the figures and how they were got."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy import names, space, space_checks
from ansible_collections.egress.kvm2.plugins.module_utils._policy.model import Filesystem, Pool, Volume
from ansible_collections.egress.kvm2.plugins.module_utils._policy.need import Needed

GIB = 1024 ** 3
POOL = Pool("default", "p", "dir", True, "/pool", capacity=100 * GIB, allocation=20 * GIB, available=80 * GIB)
BASE = names.BaseName("deb", "0123456789abcdef", "00ff00", "qcow2")


def overlay(name="a", capacity=4 * GIB, allocation=GIB, fleet="edge"):
    text = str(names.InstanceVolumeName("overlay", fleet, name, names.derive_uid(fleet, name), "00000a"))
    return Volume("default", text, f"/pool/{text}", capacity=capacity, allocation=allocation, backing_path="/pool/base")


def measured(volumes=(), needed=0, reserve=("percent", 5), f_bavail=None, pool=POOL, later=0, **more):
    """The Space; f_bavail makes it one whose filesystem is seen, of the pool's size."""
    seen = None if f_bavail is None else Filesystem(pool.capacity, pool.available, f_bavail, 1000, 500)
    return space.measure(pool, volumes, Needed(needed, later, 4, "as the test asks"), reserve, filesystem=seen, **more)


def by_name(checks):
    return {check.name.split(" ")[0]: check for check in checks}


def test_the_filesystem_is_believed_before_libvirt():
    seen = measured(f_bavail=50 * GIB)
    assert (seen.available, seen.available_source, seen.reserve, seen.room) == (50 * GIB, "filesystem", 5 * GIB, 45 * GIB)


def test_libvirts_figure_loses_the_reserve():
    seen = measured(reserve=("bytes", 7 * GIB))
    assert (seen.available, seen.available_source, seen.reserve, seen.room) == (73 * GIB, "libvirt", 7 * GIB, 73 * GIB)


def test_growth_is_that_of_overlays_only():
    base = Volume("default", str(BASE), f"/pool/{BASE}", capacity=2 * GIB, allocation=GIB)
    full = overlay("b", 4 * GIB, 5 * GIB)
    assert space.growth([overlay(), base, full]) == 3 * GIB


@pytest.mark.parametrize(("need", "status"), [(0, "ok"), (45 * GIB, "ok"), (45 * GIB + 1, "fail"), (200 * GIB, "fail")])
def test_what_is_needed_must_fit_with_the_reserve_kept(need, status):
    seen = measured(needed=need, f_bavail=50 * GIB)
    check = by_name(space_checks.checks(seen, 1.0))["space"]
    assert (check.status, check.kind) == (status, "quota" if status == "fail" else "permanent")
    assert "50.0 GiB are free (as its filesystem says)" in check.message
    assert bool(check.hint) == (status == "fail")


def test_the_reserve_alone_can_fail():
    seen = measured(pool=replace(POOL, available=GIB))
    check = by_name(space_checks.checks(seen, 1.0))["space"]
    assert check.status == "fail"
    assert "4.0 GiB are missing" in check.message


def test_growth_is_a_warning():
    overlays = [overlay(f"a{number}", 21 * GIB) for number in range(2)]
    seen = measured(overlays, 6 * GIB, f_bavail=50 * GIB)
    assert by_name(space_checks.checks(seen, 1.0))["growth"].status == "warn"
    assert by_name(space_checks.checks(seen, 1.0))["space"].status == "ok"
    fits = measured(overlays, 5 * GIB, f_bavail=50 * GIB)
    assert by_name(space_checks.checks(fits, 1.0))["growth"].status == "ok"


@pytest.mark.parametrize(("ratio", "status"), [(1.0, "warn"), (1.19, "warn"), (1.2, "ok")])
def test_overcommit_is_a_warning(ratio, status):
    overlays = [overlay(f"a{number}", 21 * GIB) for number in range(3)]
    seen = measured(overlays, 40 * GIB, ("percent", 0), f_bavail=80 * GIB)
    assert seen.overcommit == 1.2
    check = by_name(space_checks.checks(seen, ratio))["overcommit"]
    assert check.status == status
    assert "1.20 times the 100.0 GiB" in check.message


def test_what_is_kept_for_root_is_no_room_for_disks():
    """20 GiB are used and 40 of the 80 that are free are root's: the pool holds 60."""
    seen = measured([overlay(capacity=41 * GIB)], f_bavail=40 * GIB, reserve=("bytes", 0))
    assert (seen.usable, seen.growth, seen.overcommit) == (60 * GIB, 40 * GIB, 1.0)
    assert by_name(space_checks.checks(seen, 1.0))["overcommit"].status == "ok"
    assert by_name(space_checks.checks(replace(seen, growth=40 * GIB + 1), 1.0))["overcommit"].status == "warn"


def test_overcommit_fails_only_above_its_limit():
    seen = measured([overlay(capacity=101 * GIB)], f_bavail=80 * GIB)
    assert seen.overcommit == 1.2
    statuses = [by_name(space_checks.checks(seen, 1.0, limit))["overcommit"].status for limit in (None, 1.2, 1.19)]
    assert statuses == ["warn", "warn", "fail"]
    failed = by_name(space_checks.checks(seen, 1.0, 1.1))["overcommit"]
    assert failed.kind == "quota" and "1.1 is the limit" in failed.message and "overcommit_limit" in failed.hint


@pytest.mark.parametrize("f_bavail, need, status", [
    (50 * GIB, 40 * GIB, "ok"), (50 * GIB, 40 * GIB + 1, "warn"), (50 * GIB, 45 * GIB, "warn"), (50 * GIB, 45 * GIB + 1, "fail"),
    (None, 70 * GIB, "ok"), (None, 70 * GIB + 1, "warn"), (None, 75 * GIB, "warn"), (None, 75 * GIB + 1, "fail")])
def test_two_thresholds_for_what_stays_free(f_bavail, need, status):
    seen = measured(needed=need, f_bavail=f_bavail, warn_reserve=("percent", 10))
    check = by_name(space_checks.checks(seen, 9.0))["space"]
    assert (check.status, bool(check.hint)) == (status, status != "ok")


def test_growth_of_others_and_of_new_disks_counts():
    seen = measured([overlay()], 10 * GIB, ("bytes", 0), 20 * GIB, growth_beside=5 * GIB, later=2 * GIB)
    check = by_name(space_checks.checks(seen, 9.0))["growth"]
    assert (seen.to_come, check.status) == (10 * GIB, "ok")
    check = by_name(space_checks.checks(replace(seen, growth_beside=5 * GIB + 1), 9.0))["growth"]
    assert check.status == "warn" and "3.0 GiB, other disks beside them by 5.0 GiB, the new disks by 2.0 GiB" in check.message


def test_disks_that_are_no_overlays_grow_when_a_domain_writes_to_them():
    disks = [Volume("default", name, f"/pool/{name}", capacity=9 * GIB, allocation=GIB) for name in ("mine", "idle")]
    assert space.other_growth([*disks, overlay()], {"/pool/mine", overlay().path}) == 8 * GIB


@pytest.mark.parametrize("inodes, free, status", [(1000, 3, "fail"), (1000, 4, "warn"), (1000, 13, "warn"), (1000, 14, "ok"), (None, None, "ok")])
def test_inodes(inodes, free, status):
    seen = replace(measured(f_bavail=50 * GIB), inodes=inodes, inodes_available=free)
    check = by_name(space_checks.checks(seen, 1.0))["inodes"]
    assert (check.status, bool(check.hint)) == (status, status != "ok")
    assert by_name(space_checks.checks(measured(), 1.0))["inodes"].status == "skipped"


def test_what_is_returned():
    seen = measured([overlay()], GIB, f_bavail=50 * GIB, warn_reserve=("bytes", GIB))
    assert seen.as_dict() == {
        "pool": "default", "path": "/pool", "capacity": 100 * GIB, "used": 20 * GIB, "available": 50 * GIB, "available_source": "filesystem",
        "growth": 3 * GIB, "growth_beside": 0, "needed": GIB, "later": 0, "reserve": 5 * GIB, "warn_reserve": GIB, "room": 45 * GIB,
        "overcommit": 0.343, "inodes_available": 500, "inodes_needed": 4, "sources": seen.sources}
    figures = {"capacity", "used", "available", "growth", "growth_beside", "needed", "later", "reserve", "warn_reserve"}
    assert set(seen.sources) == figures and "f_bavail" in seen.sources["available"]
    assert (seen.sources["needed"], seen.sources["reserve"], seen.sources["warn_reserve"]) == ("as the test asks", "5 % of the capacity", "as asked")
    remote = measured(refreshed=False)
    assert "last refresh" in remote.sources["available"] and "without the reserve" in remote.sources["available"]


sizes = st.integers(0, 2 ** 50)


@given(sizes, sizes, sizes, sizes, st.none() | sizes, st.one_of(st.tuples(st.just("bytes"), sizes), st.tuples(st.just("percent"), st.floats(0, 100))))
def test_figures_agree(capacity, allocation, available, need, f_bavail, reserve):
    pool = replace(POOL, capacity=capacity, allocation=allocation, available=available)
    seen = measured([overlay()], need, reserve, f_bavail, pool)
    free = available if f_bavail is None else f_bavail
    assert seen.room == free - seen.reserve
    assert (by_name(space_checks.checks(seen, 1.0))["space"].status == "ok") == (need + seen.reserve <= free)
