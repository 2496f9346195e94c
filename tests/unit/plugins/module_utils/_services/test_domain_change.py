# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restart, replacement and hold of instances."""

from __future__ import annotations

import pytest
from lxml import etree

from ansible_collections.egress.kvm2.plugins.module_utils._policy import domain_read, mark, names
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import TRANSIENT, Kvm2Error
from ansible_collections.egress.kvm2.plugins.module_utils._policy.xml import parse
from ansible_collections.egress.kvm2.tests.unit.domains import LOCAL, POOL, UID, acts, domain, files, overlay, own
from ansible_collections.egress.kvm2.tests.unit.fake import qcow2_bytes
from ansible_collections.egress.kvm2.tests.unit.fake.hypervisor import FakeHypervisor
from ansible_collections.egress.kvm2.tests.unit.fake.machine import GIB
from ansible_collections.egress.kvm2.tests.unit.running import run_module

RESTART = [("stop", "domain"), ("redefine", "domain"), ("start", "domain")]
RESEED = [("create", "seed"), ("stop", "domain"), ("redefine", "domain"), ("start", "domain")]
REPLACE = [("create", "seed"), ("stop", "domain"), ("replace", "domain"), ("start", "domain")]


@pytest.fixture
def newer(hypervisor, tmp_path):
    """A base of another image than the hypervisor's first one."""
    path = tmp_path / "newer.qcow2"
    path.write_bytes(bytes(qcow2_bytes.image(GIB)) + b"\1" * 70000)
    base = run_module("image", hypervisor, key="micro", src=str(path)).image["base"]
    assert base != hypervisor.base
    hypervisor.forget_calls()
    return base


def prepared(hypervisor, base, **given):
    done = overlay(hypervisor, base=base, replace=True, **given)
    assert not done.failed, done.msg
    return [{"name": one["name"], "overlay": one["overlay"]} for one in done.overlays]


def many(hypervisor, *which):
    """Instances of these names, running."""
    instances = [{"name": name} for name in which]
    overlay(hypervisor, instances=instances)
    assert not domain(hypervisor, instances=instances).failed
    hypervisor.forget_calls()
    return instances


def operations(hypervisor, *which):
    return [(call.operation, call.args[0]) for call in hypervisor.writes if call.operation in which]


def seed_of(hypervisor):
    path = domain_read.read_spec(hypervisor.domain(UID).xml).seed_path
    return hypervisor.machine.file(path)


# -- restart


def test_what_is_pending_is_followed_by_a_restart(hypervisor):
    made = domain(hypervisor).instances[0]
    domain(hypervisor, memory="256MiB")
    would = domain(hypervisor, check=True, memory="256MiB", on_change="restart")
    done = domain(hypervisor, memory="256MiB", on_change="restart")
    assert acts(would) == acts(done) == [("stop", "domain"), ("start", "domain")]
    assert done.instances[0]["drift"] == [] and done.instances[0]["overlay"] == made["overlay"] and done.instances[0]["seed"] == made["seed"]
    assert domain_read.read_spec(hypervisor.domain(UID).live_xml).memory == 256 * 1024 ** 2
    assert not domain(hypervisor, memory="256MiB", on_change="restart").changed


def test_a_change_is_defined_and_restarted_in_one_run(hypervisor):
    domain(hypervisor)
    hypervisor.forget_calls()
    assert acts(domain(hypervisor, check=True, memory="256MiB", on_change="restart")) == RESTART and hypervisor.writes == []
    done = domain(hypervisor, memory="256MiB", on_change="restart")
    assert acts(done) == RESTART and done.instances[0]["drift"] == []


def test_a_changed_seed_is_a_new_seed_with_another_instance_id_over_the_same_disk(hypervisor):
    made = domain(hypervisor, user_data="#cloud-config\n{a: 1}\n").instances[0]
    before = seed_of(hypervisor)
    assert f"instance-id: {UID}-{names.parse_instance_volume(made['seed']).nonce}".encode() in bytes(before.data)
    would = domain(hypervisor, check=True, user_data="#cloud-config\n{a: 2}\n", on_change="restart")
    done = domain(hypervisor, user_data="#cloud-config\n{a: 2}\n", on_change="restart")
    one = done.instances[0]
    assert acts(would) == acts(done) == RESEED
    assert one["seed"] != made["seed"] and one["overlay"] == made["overlay"] and one["drift"] == []
    after = seed_of(hypervisor)
    assert f"instance-id: {UID}-{names.parse_instance_volume(one['seed']).nonce}".encode() in bytes(after.data) and b"a: 2" in bytes(after.data)
    assert made["seed"] in own(hypervisor), "the old one is the collector's"
    assert not domain(hypervisor, user_data="#cloud-config\n{a: 2}\n", on_change="restart").changed


def test_a_vanished_seed_is_made_anew(hypervisor):
    made = domain(hypervisor).instances[0]
    hypervisor.machine.remove_file(f"{POOL}/{made['seed']}")
    assert [(one["field"], one["needs"]) for one in domain(hypervisor).instances[0]["drift"]] == [("seed", "restart")]
    done = domain(hypervisor, on_change="restart")
    assert not done.failed and done.instances[0]["seed"] != made["seed"] and done.instances[0]["drift"] == []


def test_nothing_pending_is_no_restart(hypervisor):
    domain(hypervisor)
    for on_change in ("restart", "replace"):
        assert not domain(hypervisor, on_change=on_change).changed


@pytest.mark.parametrize("on_change", ["redefine", "restart"])
def test_autostart_follows_whatever_else_is_changed(hypervisor, on_change):
    domain(hypervisor)
    change = {"memory": "256MiB", "autostart": False, "on_change": on_change}
    would = domain(hypervisor, check=True, **change)
    done = domain(hypervisor, **change)
    assert acts(would) == acts(done)
    assert ("disable", "autostart") in acts(done)
    assert hypervisor.domain(UID).autostart is False
    assert not domain(hypervisor, **change).changed


@pytest.mark.parametrize("state, power", [("running", "running"), ("defined", "shutoff"), ("stopped", "shutoff")])
def test_an_instance_that_is_off_gets_its_seed_without_being_started_unasked(hypervisor, state, power):
    domain(hypervisor)
    domain(hypervisor, state="stopped")
    done = domain(hypervisor, user_data="#!a\n", on_change="restart", state=state)
    assert not done.failed and hypervisor.domain(UID).state == power and done.instances[0]["drift"] == []


def test_defined_leaves_the_power_state_as_it_was(hypervisor):
    domain(hypervisor)
    assert not domain(hypervisor, user_data="#!a\n", on_change="restart", state="defined").failed
    assert hypervisor.domain(UID).state == "running"


def test_a_guest_that_runs_undefined_is_defined_before_it_stops(hypervisor):
    domain(hypervisor)
    FakeHypervisor(hypervisor.machine, uri=LOCAL).undefine(UID)
    done = domain(hypervisor, memory="256MiB", on_change="restart")
    assert not done.failed, done.msg
    assert hypervisor.domain(UID).persistent and done.instances[0]["drift"] == []


# -- managed save


def test_a_saved_guest_resumes_where_nothing_changed(hypervisor):
    domain(hypervisor)
    hypervisor.machine.save("edge.one")
    done = domain(hypervisor)
    assert acts(done) == [("start", "domain")] and hypervisor.domain(UID).reason == "restored"


def test_a_saved_guest_goes_on_by_its_own_definition_until_a_restart_is_allowed(hypervisor):
    domain(hypervisor)
    hypervisor.machine.save("edge.one")
    changed = domain(hypervisor, memory="256MiB", state="defined")
    assert acts(changed) == [("redefine", "domain")] and hypervisor.domain(UID).managed_save
    assert [(one["field"], one["pending"]) for one in changed.instances[0]["drift"]] == [("memory", True)]
    hypervisor.forget_calls()
    dropped = domain(hypervisor, memory="256MiB", on_change="restart", state="defined")
    assert acts(dropped) == [("drop", "managed save"), ("start", "domain")] and hypervisor.domain(UID).reason == "booted"
    assert dropped.instances[0]["drift"] == []


def test_replace_drops_a_managed_save(hypervisor, newer):
    domain(hypervisor)
    hypervisor.machine.save("edge.one")
    done = domain(hypervisor, instances=prepared(hypervisor, newer), on_change="replace")
    assert ("drop", "managed save") in acts(done) and hypervisor.domain(UID).reason == "booted"


def test_a_saved_guest_never_resumes_over_another_disk(hypervisor, newer):
    made = domain(hypervisor).instances[0]
    hypervisor.machine.save("edge.one")
    (given,) = prepared(hypervisor, newer)
    hypervisor.define(hypervisor.domain(UID).xml.replace(made["overlay"], given["overlay"]))
    failed = domain(hypervisor)
    assert failed.error["kind"] == "conflict" and "managedsave-remove" in failed.msg and hypervisor.domain(UID).managed_save


def test_no_disk_grows_under_a_saved_guest(hypervisor):
    domain(hypervisor)
    hypervisor.machine.save("edge.one")
    asked = overlay(hypervisor, capacity="2GiB")
    assert not asked.changed and [(one["field"], one["needs"]) for one in asked.overlays[0]["drift"]] == [("capacity", "start")]
    domain(hypervisor)
    assert overlay(hypervisor, capacity="2GiB").overlays[0]["capacity"] == 2 * GIB


# -- replacement


def test_replaced_by_a_prepared_overlay(hypervisor, newer):
    made = domain(hypervisor).instances[0]
    hypervisor.machine.advance(3 * 3600)
    would_make = overlay(hypervisor, check=True, base=newer, replace=True)
    would = domain(hypervisor, check=True, on_change="replace", instances=[{"name": "one", "overlay": would_make.overlays[0]["overlay"]}])
    instances = prepared(hypervisor, newer)
    done = domain(hypervisor, on_change="replace", instances=instances)
    assert not done.failed, done.msg
    one = done.instances[0]
    assert [one["status"] for one in would_make.overlays] == ["created"] and acts(would) == acts(done) == REPLACE
    assert one["overlay"] == instances[0]["overlay"] and one["base"] == newer and one["drift"] == []
    assert one["seed"] != made["seed"]
    found = mark.of_domain(hypervisor.domain(UID))
    assert found.base == newer and mark.why_not_ours(hypervisor.domain(UID), found) is None
    # The old ones are the collector's: young at first, since a run may still have the former definition in hand.
    for name in (made["overlay"], made["seed"]):
        assert hypervisor.machine.file(f"{POOL}/{name}").mtime == hypervisor.machine.now
    assert not domain(hypervisor, on_change="replace").changed
    assert overlay(hypervisor, base=newer, replace=True).overlays[0]["status"] == "present"
    hypervisor.machine.advance(2 * 3600)
    run_module("gc", hypervisor, fleet="edge", live=["one"])
    assert own(hypervisor) == sorted((one["overlay"], one["seed"]))


def test_without_replace_it_is_drift(hypervisor, newer):
    domain(hypervisor)
    (given,) = prepared(hypervisor, newer)
    for on_change in ("redefine", "restart"):
        kept = domain(hypervisor, instances=[given], on_change=on_change)
        assert not kept.changed and [(one["field"], one["needs"]) for one in kept.instances[0]["drift"]] == [("overlay", "replace")]


def test_a_changed_seed_gets_a_fresh_overlay_on_the_same_base(hypervisor):
    made = domain(hypervisor).instances[0]
    would = domain(hypervisor, check=True, user_data="#!a\n", on_change="replace")
    done = domain(hypervisor, user_data="#!a\n", on_change="replace")
    assert acts(would) == acts(done) == [("create", "overlay"), *REPLACE]
    one = done.instances[0]
    assert one["overlay"] != made["overlay"] and one["base"] == made["base"] and one["drift"] == []


def test_a_vanished_overlay_is_replaced(hypervisor):
    made = domain(hypervisor).instances[0]
    hypervisor.machine.remove_file(f"{POOL}/{made['overlay']}")
    failed = domain(hypervisor, on_change="replace")
    assert failed.failed and "kvm2_overlay with replace: true" in failed.msg and hypervisor.domain(UID).active
    done = domain(hypervisor, on_change="replace", instances=prepared(hypervisor, hypervisor.base))
    assert not done.failed, done.msg
    assert done.instances[0]["drift"] == [] and hypervisor.domain(UID).state == "running"


def test_an_overlay_that_cannot_be_seen_has_not_vanished(hypervisor):
    domain(hypervisor)
    hypervisor.machine.add_pool("second", "/srv/second")
    base = run_module("image", hypervisor, key="micro", src=hypervisor.image, pool="second").image["base"]
    hypervisor.machine.pools["default"].active = False
    hypervisor.forget_calls()
    for failed in (overlay(hypervisor, base=base, pool="second", replace=True), domain(hypervisor, pool="second", on_change="replace")):
        assert failed.error["kind"] == "permanent" and "no active pool" in failed.msg and hypervisor.writes == []


def test_a_prepared_overlay_is_not_prepared_twice(hypervisor, newer):
    domain(hypervisor)
    first, second = prepared(hypervisor, newer), prepared(hypervisor, newer)
    assert first == second


def test_a_replacement_is_no_smaller_unless_asked_for(hypervisor, newer):
    overlay(hypervisor, capacity="3GiB")
    domain(hypervisor)
    overlay(hypervisor, capacity="3GiB")
    kept = overlay(hypervisor, check=True, base=newer, replace=True)
    assert kept.overlays[0]["capacity"] == 3 * GIB
    assert overlay(hypervisor, check=True, base=newer, replace=True, capacity="2GiB").overlays[0]["capacity"] == 2 * GIB


@pytest.mark.parametrize("spoil, word", [
    (lambda machine, path: machine.make_old(path, 1801), "30 minutes"), (lambda machine, path: machine.remove_file(path), "is not there"),
    (lambda machine, path: machine.file(path).data.__setitem__(0, 0), "half-made")])
def test_an_overlay_that_cannot_be_used_leaves_the_guest_running(hypervisor, newer, spoil, word):
    made = domain(hypervisor).instances[0]
    instances = prepared(hypervisor, newer)
    spoil(hypervisor.machine, f"{POOL}/{instances[0]['overlay']}")
    failed = domain(hypervisor, on_change="replace", instances=instances)
    assert failed.error["kind"] == "transient" and word in failed.msg
    found = hypervisor.domain(UID)
    assert found.active and made["overlay"] in found.xml and [name for name in own(hypervisor) if name.endswith(".iso")] == [made["seed"]]


def test_a_define_that_fails_leaves_nothing_half_made(hypervisor):
    made = domain(hypervisor).instances[0]
    hypervisor.fail_at("define", 1, Kvm2Error(TRANSIENT, "define", "it", "no"))
    failed = domain(hypervisor, user_data="#!a\n", on_change="replace")
    assert failed.failed and own(hypervisor) == sorted((made["overlay"], made["seed"]))
    assert failed.instances[0]["state"] == "stopped" and failed.instances[0]["overlay"] == made["overlay"]
    assert not domain(hypervisor, user_data="#!a\n", on_change="replace").failed


@pytest.mark.parametrize("operation", ["create_volume", "upload", "shutdown", "drop_managed_save", "define", "start"])
def test_something_takes_its_disk_away_meanwhile(hypervisor, newer, operation):
    """Another run replaces it first: this one says so, whenever that happens, and a quiet one mends it."""
    domain(hypervisor)
    mine, theirs = prepared(hypervisor, newer), []

    def rival(*_args):
        if not theirs:
            theirs.append(domain(FakeHypervisor(hypervisor.machine, uri=LOCAL), on_change="replace", user_data="#!b\n"))
    if operation == "drop_managed_save":
        hypervisor.machine.save("edge.one")
    hypervisor.hook(operation, rival)
    done = domain(hypervisor, on_change="replace", instances=mine)
    assert theirs and (done.failed or theirs[0].failed)
    quiet = FakeHypervisor(hypervisor.machine, uri=LOCAL)
    mended = domain(quiet, on_change="replace", instances=prepared(quiet, newer))
    assert not mended.failed, mended.msg
    assert mended.instances[0]["drift"] == [] and quiet.domain(UID).active


# -- one at a time


def test_one_at_a_time(hypervisor):
    instances = many(hypervisor, "one", "two", "three")
    done = domain(hypervisor, instances=instances, memory="256MiB", on_change="restart")
    assert not done.failed, done.msg
    assert [operation for operation, _uid in operations(hypervisor, "shutdown", "start")] == ["shutdown", "start"] * 3


@pytest.mark.parametrize("limit, steps", [("2", ["shutdown"] * 2 + ["start"] * 2 + ["shutdown", "start"]), ("100%", ["shutdown"] * 3 + ["start"] * 3)])
def test_several_at_a_time(hypervisor, limit, steps):
    instances = many(hypervisor, "one", "two", "three")
    domain(hypervisor, instances=instances, memory="256MiB", on_change="restart", max_parallel=limit)
    assert [operation for operation, _uid in operations(hypervisor, "shutdown", "start")] == steps


def test_a_failure_stops_the_rest_and_says_how_they_are(hypervisor):
    instances = many(hypervisor, "one", "two", "three")
    hypervisor.fail_at("start", 2, Kvm2Error(TRANSIENT, "start", "domain edge.two", "QEMU has died"))
    failed = domain(hypervisor, instances=instances, memory="256MiB", on_change="restart")
    assert [error["item"] for error in failed.errors] == ["two", "three"]
    assert "left as it is (running)" in failed.errors[1]["message"]
    assert {one["name"]: one["state"] for one in failed.instances} == {"one": "provisioning", "two": "stopped", "three": "running"}
    assert [one["field"] for one in failed.instances[2]["drift"]] == ["memory"] and failed.instances[2]["actions"] == []
    again = domain(hypervisor, instances=instances, memory="256MiB", on_change="restart")
    assert not again.failed and all(one["drift"] == [] for one in again.instances)


def test_a_guest_that_does_not_come_back_stops_the_rest(hypervisor):
    instances = many(hypervisor, "one", "two")
    hypervisor.machine.domain_state("edge.one").guest.addresses = ()
    failed = domain(
        hypervisor, instances=instances, memory="256MiB", on_change="restart", wait={"for": "address", "timeout": "5s"})
    assert [error["item"] for error in failed.errors] == ["one", "two"] and len(operations(hypervisor, "shutdown")) == 1


def test_a_refusal_stops_nobody_else(hypervisor):
    instances = many(hypervisor, "one", "two")
    domain(hypervisor, instances=[{"name": "one", "hold": "being looked at"}])
    failed = domain(hypervisor, instances=instances, memory="256MiB", on_change="restart")
    assert [error["item"] for error in failed.errors] == ["one"] and "being looked at" in failed.msg
    assert [one["name"] for one in failed.instances if not one["drift"]] == ["two"]


def test_an_overlay_that_waits_for_its_turn_stays_usable(hypervisor, newer, monkeypatch):
    instances = many(hypervisor, "one", "two", "three")
    given = prepared(hypervisor, newer, instances=instances)
    monkeypatch.setattr("ansible_collections.egress.kvm2.plugins.module_utils._services.domain.KEPT_YOUNG", -1)
    hypervisor.hook("start", lambda *args: hypervisor.machine.advance(1200))
    done = domain(hypervisor, instances=given, on_change="replace")
    assert not done.failed, done.msg


# -- hold


def hold_of(hypervisor):
    found = hypervisor.domain(UID)
    return [text.partition("hold>")[2].partition("<")[0] for text in (found.xml, found.live_xml) if text is not None]


def test_hold_is_set_kept_and_lifted_in_both_marks(hypervisor):
    domain(hypervisor)
    would = domain(hypervisor, check=True, hold="forensics")
    held = domain(hypervisor, hold="forensics")
    assert acts(would) == acts(held) == [("hold", "domain")] and hold_of(hypervisor) == ["forensics"] * 2
    assert would.instances[0]["hold"] == held.instances[0]["hold"] == "forensics"
    assert not domain(hypervisor).changed and not domain(hypervisor, hold="forensics").changed
    assert acts(domain(hypervisor, memory="256MiB")) == [("redefine", "domain")] and hold_of(hypervisor) == ["forensics"] * 2
    lifted = domain(hypervisor, hold="", memory="256MiB")
    assert acts(lifted) == [("release", "domain")] and hold_of(hypervisor) == [""] * 2 and lifted.instances[0]["hold"] == ""


def test_an_instance_can_be_made_with_a_hold(hypervisor):
    assert domain(hypervisor, instances=[{"name": "one", "hold": "do not touch"}]).instances[0]["hold"] == "do not touch"
    assert hold_of(hypervisor) == ["do not touch"] * 2


@pytest.mark.parametrize("given", [
    {"state": "absent"}, {"on_change": "restart", "memory": "256MiB"}, {"on_change": "replace", "user_data": "#!a\n"}])
def test_a_hold_keeps_it_from_removal_restart_and_replacement(hypervisor, given):
    domain(hypervisor, hold="forensics")
    hypervisor.forget_calls()
    for check in (True, False):
        failed = domain(hypervisor, check=check, **given)
        assert failed.error["kind"] == "conflict" and "forensics" in failed.msg and hypervisor.writes == []
    assert overlay(hypervisor, state="absent").error["kind"] == "conflict"
    collected = run_module("gc", hypervisor, fleet="edge", live=["other"], min_age="0s", max_delete="100%")
    assert not collected.changed


def test_a_hold_that_appears_meanwhile_counts(hypervisor):
    domain(hypervisor)
    rival = FakeHypervisor(hypervisor.machine, uri=LOCAL)
    hypervisor.hook("create_volume", lambda *args: domain(rival, hold="wait"), nth=1)
    failed = domain(hypervisor, user_data="#!a\n", on_change="restart")
    assert failed.error["kind"] == "conflict" and "wait" in failed.msg and hypervisor.domain(UID).active


def test_a_hold_is_set_even_where_it_is_what_refuses_the_rest(hypervisor):
    domain(hypervisor)
    failed = domain(hypervisor, hold="stay", memory="256MiB", on_change="restart")
    assert failed.failed and "stay" in failed.msg and hold_of(hypervisor) == ["stay"] * 2 and hypervisor.domain(UID).active
    lifted = domain(hypervisor, hold="", memory="256MiB", on_change="restart")
    assert not lifted.failed and lifted.instances[0]["drift"] == []


# -- removal


def test_what_is_dropped_is_said(hypervisor):
    domain(hypervisor)
    hypervisor.machine.save("edge.one")
    hypervisor.machine.domain_state("edge.one").snapshots = 2
    would = domain(hypervisor, check=True, state="absent")
    gone = domain(hypervisor, state="absent")
    said = [action["name"] for action in gone.actions if action["act"] == "undefine"]
    assert said == ["edge.one (dropped: managed save, 2 snapshots, console log)"] and would.actions == gone.actions


@pytest.mark.parametrize("missing", ["domain", "overlay", "seed", "both volumes", "file behind libvirt"])
def test_absent_from_every_half_deleted_state(hypervisor, missing):
    made = domain(hypervisor).instances[0]
    aside = FakeHypervisor(hypervisor.machine, uri=LOCAL)
    if missing == "domain":
        aside.destroy(UID)
        aside.undefine(UID)
    elif missing == "file behind libvirt":
        hypervisor.machine.remove_file(f"{POOL}/{made['overlay']}")
    else:
        for name in {"overlay": [made["overlay"]], "seed": [made["seed"]], "both volumes": [made["overlay"], made["seed"]]}[missing]:
            aside.delete_volume("default", name)
    gone = domain(hypervisor, state="absent")
    assert not gone.failed and own(hypervisor) == [] and hypervisor.domains() == ()
    assert not domain(hypervisor, state="absent").changed


def test_what_an_operator_attached_stays(hypervisor):
    domain(hypervisor)
    for name in ("tools.iso", "shared.img", "kvm2-edge.two-00000000-0000-5000-8000-000000000000-aaaaaa.qcow2"):
        hypervisor.machine.put_file(f"{POOL}/{name}", b"theirs")
    attached = "".join(
        f"<disk type='file' device='{device}'><source file='{POOL}/{name}'/><target dev='sd{letter}' bus='sata'/></disk>"
        for device, name, letter in (
            ("cdrom", "tools.iso", "a"), ("disk", "shared.img", "b"),
            ("disk", "kvm2-edge.two-00000000-0000-5000-8000-000000000000-aaaaaa.qcow2", "c")))
    hypervisor.define(hypervisor.domain(UID).xml.replace("</devices>", attached + "</devices>"))
    assert not domain(hypervisor, state="absent").failed
    assert [name for name in own(hypervisor) if "edge.one" in name] == []
    left = {path.rpartition("/")[2] for path in hypervisor.machine.files}
    assert {"tools.iso", "shared.img", "kvm2-edge.two-00000000-0000-5000-8000-000000000000-aaaaaa.qcow2"} <= left


@pytest.mark.parametrize("hold", [None, ""])
def test_present_over_a_declared_deletion_takes_the_overlay_made_for_it(hypervisor, hold):
    first = domain(hypervisor).instances[0]
    state = hypervisor.machine.domain_state("edge.one")
    declared = mark.to_metadata(mark.Mark("edge", "one", UID, 1.7e9, deleting=1.8e9, hold="" if hold is None else "old"))
    hypervisor.set_metadata(UID, mark.PREFIX, mark.URI, declared)
    assert state.live is not None
    (one,) = overlay(hypervisor).overlays
    done = domain(hypervisor, instances=[{"name": "one", "overlay": one["overlay"]}], hold=hold)
    assert not done.failed, done.msg
    assert done.instances[0]["overlay"] == one["overlay"] != first["overlay"] and len(own(hypervisor)) == 2
    assert done.instances[0]["hold"] == ""


# -- overlays on their own


def detach(hypervisor, live):
    """The overlay is no disk of the definition any more, and of the running guest neither where `live`."""
    state = hypervisor.machine.domain_state("edge.one")
    for which in ("config", "live") if live else ("config",):
        tree = parse(getattr(state, which))
        tree.find("devices").remove(domain_read.find_disk(tree, "overlay"))
        setattr(state, which, etree.tostring(tree, encoding="unicode"))


# What the domain is like, and whether its overlays may go.
@pytest.mark.parametrize(("how", "goes"), [
    ("none", True), ("running", False), ("stopped", False), ("detached", False), ("detached for good", False), ("another overlay", False),
    ("deletion declared", False), ("deletion declared and detached", True)])
def test_overlays_of_an_instance_with_a_domain_stay(hypervisor, newer, how, goes):
    if how == "none":
        overlay(hypervisor)
    else:
        domain(hypervisor, state="stopped" if how == "stopped" else "running")
    if "detached" in how:
        detach(hypervisor, live=how != "detached")
    if "declared" in how:
        hypervisor.set_metadata(UID, mark.PREFIX, mark.URI, mark.to_metadata(mark.Mark("edge", "one", UID, 1.7e9, deleting=1.8e9)))
    if how == "another overlay":
        prepared(hypervisor, newer)
    overlay(hypervisor, instances=[{"name": "two"}])
    before, both = [name for name in files(hypervisor) if "edge.one-" in name], [{"name": "one"}, {"name": "two"}]
    would = run_module("overlay", hypervisor, check=True, fleet="edge", state="absent", instances=both)
    done = run_module("overlay", hypervisor, fleet="edge", state="absent", instances=both)
    assert would.failed == done.failed == (not goes) and would.actions == done.actions
    assert [one["name"] for one in done.overlays] == (["one", "two"] if goes else ["two"])
    assert [name for name in files(hypervisor) if "edge.one-" in name] == ([name for name in before if not name.endswith(".qcow2")] if goes else before)
    if not goes:
        assert [(error["item"], error["kind"]) for error in done.errors] == [("one", "conflict")]
        assert "domain edge.one" in done.msg and ("is in use" if "declared" in how else "kvm2_domain with state absent") in done.msg
    assert not run_module("overlay", hypervisor, fleet="edge", state="absent", instances=[{"name": "two"}]).changed


def test_an_overlay_that_comes_into_use_stays_or_is_reported(hypervisor):
    rival = FakeHypervisor(hypervisor.machine, uri=LOCAL)
    looks = []

    def use(*_args):
        looks.append(1)
        if len(looks) == 2:
            domain(rival)
    hypervisor.hook("domains", use)
    failed = overlay(hypervisor, state="absent")
    assert failed.error["kind"] == "conflict" and "domain edge.one is there" in failed.msg and rival.domain(UID).active and len(own(hypervisor)) == 2
    late = FakeHypervisor(hypervisor.machine, uri=LOCAL)
    domain(rival, state="absent")
    overlay(hypervisor)
    late.base = hypervisor.base
    late.hook("delete_volume", lambda pool, name: rival.define(
        "<domain type='qemu'><name>x</name><memory>65536</memory><os><type>hvm</type></os><devices><disk type='file'>"
        f"<source file='{POOL}/{name}'/><target dev='vda' bus='virtio'/></disk></devices></domain>"), when="before", nth=1)
    reported = overlay(late, state="absent")
    assert reported.error["kind"] == "conflict" and "while it was deleted" in reported.msg


# -- an operator's external snapshot

def snapshotted(hypervisor, running=True):
    """What virsh snapshot-create-as --disk-only leaves: a new file over the overlay, in all definitions. Returns the names (base, overlay, snapshot)."""
    overlay(hypervisor)
    made = domain(hypervisor, state="running" if running else "stopped").instances[0]
    had, taken = made["overlay"], made["overlay"].replace(".qcow2", ".s1")
    hypervisor.machine.put_image(f"{POOL}/{taken}", backing_path=f"{POOL}/{had}", backing_format="qcow2")
    tree = parse(hypervisor.domain(UID).xml)
    disk = tree.find("devices/disk")
    disk.find("source").set("file", f"{POOL}/{taken}")
    below, store = disk.find("backingStore"), etree.Element("backingStore", type="file")
    disk.replace(below, store)
    etree.SubElement(store, "format", type="qcow2")
    etree.SubElement(store, "source", file=f"{POOL}/{had}")
    store.append(below)
    hypervisor.define(etree.tostring(tree, encoding="unicode"))
    if running:
        hypervisor.destroy(UID)
        hypervisor.start(UID)
    return made["base"], had, taken


def chain(hypervisor):
    found, ends = domain_read.read_chain(domain_read.find_disk(parse(hypervisor.domain(UID).xml), "overlay"))
    assert ends
    return [path.rpartition("/")[2] for path, volume_format in found]


@pytest.mark.parametrize(("running", "on_change"), [(True, "restart"), (False, "redefine"), (True, "redefine"), (True, "report")])
def test_a_snapshot_of_an_operator_keeps_all_files_below_it(hypervisor, running, on_change):
    base, had, taken = snapshotted(hypervisor, running)
    state = "running" if running else "stopped"
    assert domain(hypervisor, on_change="report", state=state).instances[0]["drift"] == []
    done = domain(hypervisor, on_change=on_change, state=state, memory="144MiB")
    assert not done.failed and done.instances[0]["base"] == base and done.instances[0]["overlay"] == taken
    assert [one["field"] for one in done.instances[0]["drift"]] == ([] if on_change == "restart" or not running else ["memory"])
    assert chain(hypervisor) == [had, base]
    assert mark.of_domain(hypervisor.domain(UID)).base == base
    assert not domain(hypervisor, on_change=on_change, state="running").failed


def test_a_replacement_of_one_with_a_snapshot_is_made_on_its_base(hypervisor):
    base, _had, taken = snapshotted(hypervisor)
    # Something of it is to be replaced for.
    done = domain(hypervisor, on_change="replace", user_data="#cloud-config\nhostname: other\n")
    assert not done.failed and done.instances[0]["overlay"] != taken and done.instances[0]["base"] == base
    assert chain(hypervisor) == [base]
    # Somebody else's file stays, and what it needs.
    assert taken in files(hypervisor)


def test_a_removal_of_one_with_a_snapshot_says_how_to_merge_it(hypervisor):
    _base, had, taken = snapshotted(hypervisor)
    failed = domain(hypervisor, state="absent")
    assert failed.failed and "external snapshot (merge it: virsh blockcommit edge.one vda --active --shallow --pivot --delete)" in failed.msg
    assert {had, taken} <= set(files(hypervisor)) and hypervisor.domain(UID).active


def moved_below(hypervisor, folder):
    """The overlay below a snapshot lies in another folder."""
    base, had, taken = snapshotted(hypervisor, running=False)
    hypervisor.machine.remove_file(f"{POOL}/{taken}")
    hypervisor.machine.put_image(f"{POOL}/{taken}", backing_path=f"{folder}/{had}", backing_format="qcow2")
    hypervisor.machine.put_image(f"{folder}/{had}", backing_path=f"{POOL}/{base}", backing_format="qcow2")
    hypervisor.define(hypervisor.domain(UID).xml.replace(f"{POOL}/{had}", f"{folder}/{had}"))
    return base, had


@pytest.mark.parametrize(("pool", "error"), [
    ("active", None), ("gone", ("transient", "its backing file /srv/second/{0} has gone from pool second")),
    ("inactive", ("permanent", "its backing file /srv/second/{0} is in no active pool, so it cannot be seen. Start its pool")),
    ("none", ("permanent", "its backing file /srv/second/{0} is in no active pool"))])
def test_a_file_below_its_disk_is_seen_in_whichever_pool_it_lies(hypervisor, pool, error):
    if pool != "none":
        hypervisor.machine.add_pool("second", "/srv/second")
    base, had = moved_below(hypervisor, "/srv/second")
    if pool == "gone":
        hypervisor.machine.remove_file(f"/srv/second/{had}")
    hypervisor.machine.pools.get("second", hypervisor.machine.pools["default"]).active = pool != "inactive"
    assert not domain(hypervisor, on_change="report", state="defined", memory="144MiB").changed
    for given in ({"on_change": "redefine", "state": "defined"}, {"on_change": "restart"}):
        done = domain(hypervisor, memory="144MiB", **given)
        assert done.failed is (error is not None), getattr(done, "msg", "")
        if error is not None:
            assert done.error["kind"] == error[0] and error[1].format(had) in done.msg
        assert chain(hypervisor) == [had, base] and hypervisor.domain(UID).active is (error is None and given["on_change"] == "restart")
