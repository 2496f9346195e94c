# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.egress.kvm2.tests.unit.fake.hypervisor import FakeHypervisor
from ansible_collections.egress.kvm2.tests.unit.fake.machine import GIB
from ansible_collections.egress.kvm2.tests.unit.running import run_module

POOL = "/var/lib/libvirt/images"


@pytest.fixture
def hypervisor():
    return FakeHypervisor()


def check(hypervisor, **given):
    return run_module("pool_check", hypervisor, **given)


def by_name(result, start):
    return next(one for one in result.checks if one["name"].startswith(start))


def test_figures_over_a_remote_connection(hypervisor):
    hypervisor.machine.put_image(f"{POOL}/o", 10 * GIB, f"{POOL}/b", "qcow2")
    hypervisor.machine.put_image(f"{POOL}/b", 2 * GIB)
    done = check(hypervisor, need={"instances": 2, "capacity": "4GiB", "image": "1GiB"}, reserve="10GiB")
    assert not done.failed and not done.changed and hypervisor.writes == []
    space = done.space
    assert (space["needed"], space["reserve"], space["available_source"]) == (9 * GIB, 10 * GIB, "libvirt")
    assert 89 * GIB < space["available"] <= 90 * GIB and 9 * GIB < space["growth"] <= 10 * GIB


def test_what_is_there_already_needs_no_room(hypervisor):
    need = {"fleet": "edge", "overlays": [{"name": "one", "capacity": "60GiB"}, {"name": "two", "capacity": "60GiB"}]}
    failed = check(hypervisor, need=need)
    assert failed.failed and failed.error["kind"] == "quota" and failed.space["needed"] == 120 * GIB
    assert by_name(failed, "space")["status"] == "failed"
    assert not check(hypervisor, need=need, fail=False).failed


def test_all_that_is_missing_is_said_at_once(hypervisor):
    failed = check(hypervisor, need={"bytes": "1TiB"}, require={
        "virt_type": "kvm", "machine": "pdp11", "networks": ["nowhere"], "memory": "1TiB", "bridges": ["br0"]})
    assert {"machine", "network", "virt_type", "memory", "space"} == {
        one["name"].split()[0] for one in failed.checks if one["status"] == "failed"}
    assert by_name(failed, "bridge")["status"] == "skipped"
    for word in ("pdp11", "nowhere", "kvm", "needed"):
        assert word in failed.msg


def test_without_refresh_nothing_is_refreshed(hypervisor):
    check(hypervisor, refresh=False)
    assert "refresh_pool" not in {call.operation for call in hypervisor.calls}
    check(hypervisor)
    assert "refresh_pool" in {call.operation for call in hypervisor.calls}


def test_a_pool_that_is_not_autostarted_is_a_warning(hypervisor):
    hypervisor.machine.pools["default"].autostart = False
    done = check(hypervisor)
    assert not done.failed and any("not started together" in text for text in done.warnings)


@pytest.mark.parametrize("kind, words", [("netfs", "shared storage"), ("logical", "type logical")])
def test_pools_that_are_not_ours_to_use(hypervisor, kind, words):
    hypervisor.machine.pools["default"].type = kind
    failed = check(hypervisor)
    assert failed.error["kind"] == "permanent" and words in failed.msg
    assert check(hypervisor, exclusive=True).failed is (kind != "netfs")


@pytest.mark.parametrize("given, word", [
    ({"reserve": "5"}, "reserve"), ({"need": {"bytes": "5"}}, "need.bytes"), ({"overcommit_ratio": 0}, "overcommit_ratio"),
    ({"need": {"instances": -1, "capacity": "1GiB"}}, "need.instances"), ({"need": {"image": "1GiB", "key": "A"}}, "not a label"),
    ({"require": {"memory": "x"}}, "require.memory"), ({"require": {"vcpus": 0}}, "require.vcpus"),
    ({"need": {"fleet": "edge", "overlays": [{"name": "one", "capacity": "1GiB", "uid": "x"}]}}, "not a UUID"),
])
def test_wrong_options(hypervisor, given, word):
    failed = check(hypervisor, **given)
    assert failed.error["kind"] == "permanent" and word in failed.msg and hypervisor.calls == []
