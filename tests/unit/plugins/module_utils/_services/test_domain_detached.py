# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances whose seed or overlay somebody took out of the definition."""

from __future__ import annotations

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._policy import domain_read
from ansible_collections.egress.kvm2.plugins.module_utils._policy.xml import parse, render
from ansible_collections.egress.kvm2.tests.unit.domains import POOL, UID, acts, domain, overlay


def detach(hypervisor, *targets):
    """What `virsh detach-disk --config` does."""
    tree = parse(hypervisor.domain(UID).xml)
    for target in targets:
        disk = tree.find(f"devices/disk/target[@dev='{target}']/..")
        disk.getparent().remove(disk)
    hypervisor.define(render(tree))


def seed_drift(needs):
    return {"field": "seed", "have": "no disk of ours", "want": "a disk in the definition", "needs": needs, "pending": False}


@pytest.mark.parametrize("on_change", ["redefine", "restart", "replace"])
@pytest.mark.parametrize("before", ["running", "paused", "saved", "stopped"])
def test_a_seed_that_was_detached_comes_back_with_the_definition(hypervisor, before, on_change):
    made = domain(hypervisor).instances[0]
    state = hypervisor.machine.domain_state("edge.one")
    if before == "paused":
        state.state, state.reason = "paused", "user"
    elif before == "saved":
        hypervisor.machine.save("edge.one")
    elif before == "stopped":
        hypervisor.destroy(UID)
    detach(hypervisor, "vdb")
    hypervisor.machine.advance(7200)
    hypervisor.forget_calls()
    refused = domain(hypervisor, on_change="report", state="running")
    told = domain(hypervisor, on_change="report", state="defined")
    assert told.instances[0]["drift"] == [seed_drift("redefine")]
    if before in ("saved", "stopped"):
        # Without it, the guest would take itself for another one.
        assert refused.error["kind"] == "conflict" and "its seed was detached" in refused.msg and "Set on_change to redefine" in refused.msg
        assert hypervisor.writes == []
    else:
        assert not refused.failed, refused.msg
    would = domain(hypervisor, check=True, on_change=on_change)
    done = domain(hypervisor, on_change=on_change)
    assert not done.failed, done.msg
    assert acts(would) == acts(done) == [("redefine", "domain"), *([("start", "domain")] if before in ("saved", "stopped") else [])]
    one = done.instances[0]
    assert one["drift"] == [] and (one["overlay"], one["seed"]) == (made["overlay"], made["seed"]) and hypervisor.domain(UID).active
    assert {domain_read.read_spec(text).seed_path for text in hypervisor.domain(UID).xmls} == {f"{POOL}/{made['seed']}"}
    assert not domain(hypervisor, on_change=on_change).changed


def test_a_seed_that_was_detached_comes_back_and_another_one_is_told_beside(hypervisor):
    made = domain(hypervisor).instances[0]
    detach(hypervisor, "vdb")
    done = domain(hypervisor, user_data="#!other\n")
    assert acts(done) == [("redefine", "domain")] and done.instances[0]["seed"] == made["seed"]
    assert [(one["field"], one["needs"]) for one in done.instances[0]["drift"]] == [("seed", "restart")]
    detach(hypervisor, "vdb")
    done = domain(hypervisor, user_data="#!other\n", on_change="restart")
    assert not done.failed and done.instances[0]["drift"] == [] and done.instances[0]["seed"] != made["seed"]


def test_a_seed_that_comes_back_is_read_first(hypervisor):
    made = domain(hypervisor, state="stopped").instances[0]
    detach(hypervisor, "vdb")
    file = hypervisor.machine.file(f"{POOL}/{made['seed']}")
    file.data[40000] ^= 1
    failed = domain(hypervisor)
    assert failed.error["kind"] == "conflict" and "holds something else" in failed.msg and not hypervisor.domain(UID).active
    assert domain_read.read_spec(hypervisor.domain(UID).xml).seed_path is None


@pytest.mark.parametrize("why", ["gone", "two of them", "another one is wanted"])
@pytest.mark.parametrize("state", ["running", "stopped"])
def test_a_seed_that_was_detached_is_made_anew_by_a_restart_where_none_can_come_back(hypervisor, state, why):
    made, given = domain(hypervisor, state="stopped").instances[0], {}
    if why == "two of them":
        # What a restart leaves behind, until it is collected.
        domain(hypervisor, user_data="#!other\n", state="stopped", on_change="restart")
        made = domain(hypervisor, state="stopped", on_change="restart").instances[0]
    elif why == "another one is wanted":
        given = {"user_data": "#!other\n"}
    detach(hypervisor, "vdb")
    if why == "gone":
        hypervisor.delete_volume("default", made["seed"])
    hypervisor.forget_calls()
    for on_change in ("report", "redefine"):
        kept = domain(hypervisor, on_change=on_change, state="defined", **given)
        assert not kept.changed and kept.instances[0]["drift"] == [seed_drift("restart")]
        failed = domain(hypervisor, on_change=on_change, **given)
        assert failed.error["kind"] == "conflict" and "Set on_change to restart" in failed.msg and hypervisor.writes == []
    given["state"] = state
    would = domain(hypervisor, check=True, on_change="restart", **given)
    done = domain(hypervisor, on_change="restart", **given)
    assert not done.failed, done.msg
    one = done.instances[0]
    assert acts(would) == acts(done) and ("create", "seed") in acts(done)
    assert one["drift"] == [] and one["overlay"] == made["overlay"] and one["seed"] not in (None, made["seed"])
    assert not domain(hypervisor, on_change="restart", **given).changed


def test_an_overlay_that_was_detached_is_drift_and_needs_another_one(hypervisor):
    made = domain(hypervisor).instances[0]
    domain(hypervisor, state="stopped")
    detach(hypervisor, "vda", "vdb")
    drift = domain(hypervisor, state="defined").instances[0]["drift"]
    assert [(one["field"], one["have"], one["needs"]) for one in drift] == [
        ("seed", "no disk of ours", "restart"), ("overlay", "no disk of ours", "replace")]
    hypervisor.forget_calls()
    for given in ({}, {"on_change": "restart"}, {"on_change": "replace", "state": "defined"}, {"memory": "256MiB"}):
        for check in (True, False):
            failed = domain(hypervisor, check=check, **given)
            assert "it names no disk of ours as its overlay" in failed.msg and "replace: true" in failed.msg and hypervisor.writes == [], given
    hypervisor.machine.advance(3600)
    given = [{"name": "one", "overlay": overlay(hypervisor, replace=True).overlays[0]["overlay"]}]
    done = domain(hypervisor, on_change="replace", instances=given)
    assert not done.failed, done.msg
    assert done.instances[0]["drift"] == [] and done.instances[0]["overlay"] == given[0]["overlay"] != made["overlay"]


@pytest.mark.parametrize("given", [{}, {"replace": True}])
def test_kvm2_overlay_tells_a_detached_overlay_from_one_that_has_gone(hypervisor, given):
    domain(hypervisor, state="stopped")
    detach(hypervisor, "vda")
    hypervisor.machine.advance(7200)
    done = overlay(hypervisor, check=True, **given)
    if given:
        assert "a replacement: it was detached from the domain" in [action.get("why") for action in done.actions]
    else:
        assert done.overlays[0]["drift"] == [{"field": "overlay", "have": "no disk of ours", "want": "a disk in the definition", "needs": "replace"}]
    refused = domain(hypervisor)
    assert "it names no disk of ours as its overlay. Where it was detached by hand, attach it again with virsh attach-disk" in refused.msg
