# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import classify
from ansible_collections.egress.kvm2.plugins.module_utils._policy import mark, names
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import PERMANENT, TRANSIENT, Kvm2Error
from ansible_collections.egress.kvm2.tests.unit.domains import LOCAL, POOL, UID, acts, domain, files, overlay, own
from ansible_collections.egress.kvm2.tests.unit.fake.calls import Killed, libvirt_error
from ansible_collections.egress.kvm2.tests.unit.fake.hypervisor import FakeHypervisor
from ansible_collections.egress.kvm2.tests.unit.fake.machine import Guest
from ansible_collections.egress.kvm2.tests.unit.running import run_module

CREATION = [("create", "seed"), ("define", "domain"), ("enable", "autostart"), ("start", "domain")]
DELETION = ["declare", "stop", "delete", "delete", "undefine"]


def test_created_kept_and_removed(hypervisor):
    predicted = domain(hypervisor, check=True)
    assert hypervisor.writes == []
    made = domain(hypervisor, wait={"for": "address"})
    assert not made.failed, made.msg
    assert acts(predicted) == acts(made) == CREATION
    one = made.instances[0]
    assert one["state"] == "running" and one["primary_address"] == "192.168.122.10" and one["base"] == hypervisor.base
    assert one["mac"] == names.mac_address(UID, 0) and one["drift"] == []
    again = domain(hypervisor)
    assert not again.changed and again.instances[0]["overlay"] == one["overlay"] and again.instances[0]["seed"] == one["seed"]
    assert not domain(hypervisor, check=True).changed
    would = domain(hypervisor, check=True, state="absent")
    gone = domain(hypervisor, state="absent")
    assert [action["act"] for action in gone.actions] == [action["act"] for action in would.actions] == DELETION
    assert own(hypervisor) == [] and "base-debian-13.qcow2" in files(hypervisor) and hypervisor.domains() == ()
    assert not domain(hypervisor, state="absent").changed
    assert {call.operation for call in hypervisor.writes if call.operation == "undefine"} == {"undefine"}


def test_an_update_never_undefines_and_keeps_mark_and_foreign_metadata(hypervisor):
    domain(hypervisor)
    xml = hypervisor.domain(UID).xml
    hypervisor.define(xml.replace("<metadata>", '<metadata><other:app xmlns:other="urn:other"><x>1</x></other:app>'))
    hypervisor.forget_calls()
    changed = domain(hypervisor, memory="256MiB")
    assert acts(changed) == [("redefine", "domain")] and not any(call.operation == "undefine" for call in hypervisor.calls)
    found = hypervisor.domain(UID)
    assert "urn:other" in found.xml and mark.why_not_ours(found, mark.of_domain(found)) is None
    assert changed.instances[0]["drift"] == [
        {"field": "memory", "have": 128 * 1024 ** 2, "want": 256 * 1024 ** 2, "needs": "restart", "pending": True}]
    assert not domain(hypervisor, memory="256MiB").changed


def test_report_changes_nothing(hypervisor):
    domain(hypervisor)
    hypervisor.forget_calls()
    reported = domain(hypervisor, memory="256MiB", on_change="report")
    assert not reported.changed and [one["field"] for one in reported.instances[0]["drift"]] == ["memory"] and hypervisor.writes == []


def test_a_changed_seed_is_drift_that_needs_a_restart(hypervisor):
    domain(hypervisor, user_data="#cloud-config\n{a: 1}\n")
    changed = domain(hypervisor, user_data="#cloud-config\n{a: 2}\n")
    assert not changed.changed and [(one["field"], one["needs"]) for one in changed.instances[0]["drift"]] == [("seed", "restart")]
    assert "a: 2" not in str(vars(changed))


def test_power_states(hypervisor):
    domain(hypervisor)
    assert acts(domain(hypervisor, state="stopped")) == [("stop", "domain")]
    assert not domain(hypervisor, state="stopped").changed
    assert not domain(hypervisor, state="defined").changed
    assert acts(domain(hypervisor)) == [("start", "domain")]
    hypervisor.machine.pause("edge.one")
    assert acts(domain(hypervisor)) == [("resume", "domain")]
    hypervisor.machine.pause("edge.one", "ioerror")
    hypervisor.machine.pools["default"].size = 0
    failed = domain(hypervisor)
    assert failed.error["kind"] == "quota" and "I/O error" in failed.msg


def test_a_guest_that_does_not_listen_is_forced_off(hypervisor):
    hypervisor.machine.guest = Guest(stops="never")
    domain(hypervisor)
    stopped = domain(hypervisor, state="stopped", stop={"timeout": "20s"})
    assert stopped.instances[0]["state"] == "stopped"
    assert [call.operation for call in hypervisor.writes if call.operation in ("shutdown", "destroy")] == ["shutdown", "shutdown", "destroy"]


def test_an_error_of_a_stop_that_happened_all_the_same_is_none(hypervisor):
    domain(hypervisor)
    rival = FakeHypervisor(hypervisor.machine, uri=LOCAL)

    def lost(*_args):
        rival.destroy(UID)
        raise Kvm2Error(TRANSIENT, "destroy", "domain edge.one", "the answer was lost")
    hypervisor.hook("destroy", lost)
    stopped = domain(hypervisor, state="stopped", stop={"mode": "force"})
    assert not stopped.failed and stopped.instances[0]["state"] == "stopped"


def test_an_error_of_a_stop_that_did_not_happen_is_told(hypervisor):
    domain(hypervisor)
    hypervisor.fail_at("destroy", 1, Kvm2Error(TRANSIENT, "destroy", "domain edge.one", "QEMU does not react"))
    failed = domain(hypervisor, state="stopped", stop={"mode": "force"})
    assert "QEMU does not react" in failed.msg and failed.instances[0]["state"] in ("running", "provisioning")


def ended_by_somebody(code=classify.INTERNAL_ERROR):
    """What libvirt says of a guest that somebody destroys while it is started, and of one that QEMU cannot start."""
    return libvirt_error("start", "start", "domain edge.one", code, "internal error: process exited while connecting to monitor")


def test_a_guest_that_somebody_switched_off_while_it_was_starting_is_started_again(hypervisor):
    domain(hypervisor, state="defined")
    hypervisor.forget_calls()
    hypervisor.fail_at("start", 1, ended_by_somebody())
    assert acts(domain(hypervisor)) == [("start", "domain")]
    assert [call.operation for call in hypervisor.writes] == ["start", "start"]


def test_a_guest_that_cannot_be_started_is_tried_twice(hypervisor):
    domain(hypervisor, state="defined")
    hypervisor.forget_calls()
    hypervisor.hook("start", lambda *_args: hypervisor.fail_at("start", 1, ended_by_somebody()), nth=1)
    hypervisor.fail_at("start", 1, ended_by_somebody())
    failed = domain(hypervisor)
    assert failed.error["kind"] == PERMANENT and [call.operation for call in hypervisor.writes] == ["start", "start"]


@pytest.mark.parametrize("code", [classify.INTERNAL_ERROR, classify.SYSTEM_ERROR])
@pytest.mark.parametrize("words", ["it was removed meanwhile", "its file has gone", "its deletion is finished"])
def test_a_start_that_fails_because_of_a_deletion_is_no_fault_of_the_host(hypervisor, code, words):
    """Another run declares it, has removed the disk as well, or has finished it."""
    domain(hypervisor, state="defined")
    rival = FakeHypervisor(hypervisor.machine, uri=LOCAL)

    def delete(*_args):
        if words == "its deletion is finished":
            assert not domain(rival, state="absent").failed
        elif words == "its file has gone":
            for volume in own(hypervisor):
                rival.delete_volume("default", volume)
        else:
            rival.hook("set_metadata", stop, when="after")
            with pytest.raises(Killed):
                domain(rival, state="absent")
        raise ended_by_somebody(code)

    def stop(*_args):
        raise Killed("now")
    hypervisor.hook("start", delete, nth=1)
    failed = domain(hypervisor)
    assert failed.error["kind"] == "conflict", failed.msg
    assert words.replace("its deletion is finished", "it was removed meanwhile") in failed.msg


def test_a_start_over_a_definition_that_somebody_changed_is_a_conflict(hypervisor):
    overlay = domain(hypervisor, state="defined").instances[0]["overlay"]

    def change(*_args):
        hypervisor.define(hypervisor.domain(UID).xml.replace(overlay, "other.qcow2"))
        raise ended_by_somebody()
    hypervisor.hook("start", change, nth=1)
    failed = domain(hypervisor)
    assert failed.error["kind"] == "conflict" and "another disk" in failed.msg


@pytest.mark.parametrize("state", ["paused", "pmsuspended", "crashed"])
def test_a_guest_that_cannot_hear_is_switched_off_without_being_asked(hypervisor, state):
    domain(hypervisor)
    hypervisor.machine.domain_state("edge.one").state = state
    hypervisor.forget_calls()
    assert domain(hypervisor, state="stopped").instances[0]["state"] == "stopped"
    assert [call.operation for call in hypervisor.writes] == ["destroy"]


@pytest.mark.parametrize(("xml", "hint"), [
    ("<domain type='qemu'><name>edge.one</name><memory>65536</memory><os><type>hvm</type></os></domain>", "Rename the instance, or that domain."),
    (f"<domain type='qemu'><name>other</name><uuid>{UID}</uuid><memory>65536</memory><os><type>hvm</type></os></domain>",
     "Give the instance an uid of its own.")])
@pytest.mark.parametrize("state", ["running", "absent"])
def test_a_foreign_domain_is_left_alone(hypervisor, xml, hint, state):
    before = hypervisor.define(xml)
    hypervisor.forget_calls()
    failed = domain(hypervisor, state=state)
    assert failed.error["kind"] == "conflict" and before.name in failed.msg and before.uuid in failed.msg
    assert failed.msg.endswith(f"Nothing was changed. {hint}")
    assert hypervisor.writes == [] and hypervisor.domain(before.uuid) == before


@pytest.mark.parametrize("state", ["stopped", "absent"])
def test_a_renamed_domain_is_told_how_to_get_its_name_back(hypervisor, state):
    domain(hypervisor, state="stopped")
    xml = hypervisor.domain(UID).xml
    hypervisor.undefine(UID)
    before = hypervisor.define(xml.replace("<name>edge.one</name>", "<name>edge.nine</name>"))
    hypervisor.forget_calls()
    failed = domain(hypervisor, state=state)
    assert failed.error["kind"] == "conflict" and failed.msg.endswith("Give it its name back: virsh domrename edge.nine edge.one.")
    assert hypervisor.writes == [] and hypervisor.domain(UID) == before


def test_a_shared_volume_stops_the_deletion_before_it_is_declared(hypervisor):
    domain(hypervisor)
    disk = next(path for path in hypervisor.machine.files if path.endswith(".qcow2") and names.parse_instance_volume(path.rpartition("/")[2]))
    hypervisor.machine.put_image(f"{POOL}/clone.qcow2", backing_path=disk, backing_format="qcow2")
    hypervisor.forget_calls()
    failed = domain(hypervisor, state="absent")
    assert failed.error["kind"] == "conflict" and "clone.qcow2" in failed.msg and hypervisor.writes == []


def test_missing_host_side_is_said_all_at_once_before_anything_is_made(hypervisor):
    failed = domain(hypervisor, machine="pdp11", networks=[{"network": "nowhere"}], cpu_mode="host-passthrough")
    assert failed.error["kind"] == "permanent" and "nowhere" in failed.msg and "pdp11" in failed.msg and hypervisor.writes == []


def test_without_an_overlay_nothing_is_made(hypervisor):
    failed = domain(hypervisor, instances=[{"name": "two"}])
    assert failed.error["kind"] == "transient" and "kvm2_overlay" in failed.msg and hypervisor.writes == []
    assert not domain(hypervisor, check=True, instances=[{"name": "two"}]).failed


def test_an_overlay_that_got_old_is_not_used(hypervisor):
    name = own(hypervisor)[0]
    hypervisor.machine.make_old(f"{POOL}/{name}", 1801)
    failed = domain(hypervisor, instances=[{"name": "one", "overlay": name}])
    assert failed.error["kind"] == "transient" and "30 minutes" in failed.msg and own(hypervisor) == [name]


@pytest.mark.parametrize("operation, nth", [("create_volume", 1), ("upload", 1), ("download", 1), ("define", 1)])
def test_a_failure_before_the_define_leaves_no_seed(hypervisor, operation, nth):
    before = own(hypervisor)
    hypervisor.fail_at(operation, nth, Kvm2Error(TRANSIENT, "do", "it", "no"))
    assert domain(hypervisor).failed and own(hypervisor) == before


def test_somebody_else_creates_it_meanwhile(hypervisor):
    rival = FakeHypervisor(hypervisor.machine, uri=LOCAL)
    hypervisor.hook("create_volume", lambda *args: domain(rival), when="after", nth=1)
    failed = domain(hypervisor)
    assert failed.error["kind"] == "conflict" and "somebody else created it" in failed.msg
    assert not domain(FakeHypervisor(hypervisor.machine, uri=LOCAL)).changed and len(own(hypervisor)) == 2


def run_and_kill(machine, nth, when, **given):
    hypervisor = FakeHypervisor(machine, uri=LOCAL)

    def kill(*args):
        raise Killed("now")
    hypervisor.hook("*", kill, when=when, nth=nth)
    with pytest.raises(Killed):
        domain(hypervisor, **given)


@pytest.mark.parametrize("given", [{}, {"memory": "256MiB"}, {"state": "absent"}], ids=["create", "redefine", "delete"])
def test_killed_anywhere_it_converges_and_leaves_nothing_after_removal(hypervisor, given):
    if given:
        domain(hypervisor)
    start = hypervisor.machine.copy()
    counting = FakeHypervisor(start.copy(), uri=LOCAL)
    assert not domain(counting, **given).failed
    kills = 0
    for when in ("before", "after"):
        for nth in range(1, len(counting.calls) + 1):
            machine = start.copy()
            run_and_kill(machine, nth, when, **given)
            kills += 1
            survivor = FakeHypervisor(machine, uri=LOCAL)
            again = domain(survivor, **given)
            if again.failed and again.error["kind"] == "transient":
                # The overlay went with the interrupted deletion: a role makes it anew.
                run_module("overlay", survivor, fleet="edge", base=hypervisor.base, instances=[{"name": "one"}])
                again = domain(survivor, **given)
            assert not again.failed, (when, nth, again.msg)
            assert not domain(survivor, **given).changed
            if given.get("state") != "absent":
                assert again.instances[0]["state"] in ("running", "provisioning")
            assert not domain(survivor, state="absent").failed
            assert own(survivor) == [] and survivor.domains() == ()
    assert kills > 20


def test_present_over_a_declared_deletion_finishes_it_and_creates_anew(hypervisor):
    first = domain(hypervisor).instances[0]
    rival = FakeHypervisor(hypervisor.machine, uri=LOCAL)
    rival.fail_at("shutdown", 1, Killed("now"))
    with pytest.raises(Killed):
        domain(rival, state="absent")
    assert mark.of_domain(hypervisor.domain(UID)).deleting is not None
    failed = domain(hypervisor)
    assert failed.failed and failed.error["kind"] == "transient" and own(hypervisor) == []
    run_module("overlay", hypervisor, fleet="edge", base=hypervisor.base, instances=[{"name": "one"}])
    second = domain(hypervisor).instances[0]
    assert second["overlay"] != first["overlay"] and second["seed"] != first["seed"]


def test_something_that_starts_it_in_the_middle_of_its_deletion(hypervisor):
    domain(hypervisor)
    rival = FakeHypervisor(hypervisor.machine, uri=LOCAL)
    hypervisor.hook("delete_volume", lambda *args: rival.start(UID), when="before", nth=1)
    done = domain(hypervisor, state="absent")
    assert not done.failed, done.msg
    assert hypervisor.domains() == () and own(hypervisor) == []


@pytest.mark.parametrize(("times", "gone"), [(12, True), (1000, False)])
def test_something_that_starts_it_each_time_it_is_off(hypervisor, times, gone):
    """It is gone in the end; where it is started for ever, its volumes are there still and the next run removes it."""
    domain(hypervisor)
    volumes, rival, left = own(hypervisor), FakeHypervisor(hypervisor.machine, uri=LOCAL), [times]

    def start(*_args):
        if left[0] and UID in hypervisor.machine.domains and hypervisor.machine.domains[UID].live is None:
            left[0] -= 1
            rival.start(UID)
    hypervisor.hook("domain", start, when="after")
    done = domain(hypervisor, state="absent")
    if not gone:
        assert done.error["kind"] == TRANSIENT and "something starts it again and again" in done.msg
        assert own(hypervisor) == volumes
        left[0] = 0
        done = domain(hypervisor, state="absent")
    assert not done.failed, done.msg
    assert hypervisor.domains() == () and own(hypervisor) == []


def test_one_bad_instance_does_not_stop_the_others(hypervisor):
    failed = domain(hypervisor, instances=[{"name": "one"}, {"name": "two"}])
    assert [error["item"] for error in failed.errors] == ["two"]
    assert {one["name"]: one["state"] for one in failed.instances}["one"] in ("running", "provisioning")


@pytest.mark.parametrize("given, word", [
    ({"fleet": "Edge"}, "not a label"), ({"memory": "128"}, "unit"), ({"memory": None}, "not given"), ({"vcpus": 0}, "at least one"),
    ({"networks": None}, "not given"),
    ({"networks": [{"network": "default", "mac": "01:00:00:00:00:00"}]}, "MAC"), ({"user_data": "hello"}, "cloud-init would ignore"),
    ({"networks": [{"network": "default", "mac": "00:00:00:00:00:00"}]}, "MAC"),
    ({"meta_data": "instance-id: x"}, "instance-id"), ({"meta_data": "---\nfoo: b"}, "meta_data of instance one: together with"), ({"hold": " "}, "blank"),
    ({"max_parallel": "0"}, "max_parallel"), ({"max_parallel": "few"}, "max_parallel"),
    ({"max_requests": 0}, "max_requests 0: it is not from 1 to 64"), ({"max_requests": 65}, "max_requests 65"),
    ({"wait": {"for": "address", "timeout": "soon"}}, "wait.timeout"),
    ({"networks": [{"bridge": "br0"}], "wait": {"for": "address", "source": "lease"}}, "no leases"),
    ({"networks": [], "wait": {"for": "address"}}, "networks of instance one: they are empty, so wait.for address could only time out. Give at least"),
    ({"instances": [{"name": "one"}, {"name": "two", "networks": []}], "wait": {"for": "address"}}, "networks of instance two: they are empty"),
])
def test_wrong_options(hypervisor, given, word):
    failed = domain(hypervisor, **given)
    assert failed.failed and failed.error["kind"] == "permanent" and word in failed.msg and hypervisor.calls == []


@pytest.mark.parametrize("given", [
    {"wait": {"for": "running"}}, {"wait": {"for": "address"}, "state": "defined"}, {"wait": {"for": "address"}, "state": "absent"}])
def test_what_waits_for_no_address_needs_no_network(hypervisor, given):
    assert not domain(hypervisor, networks=[], **given).failed


def test_an_instance_in_another_pool_than_asked_for_is_kept_where_it_is(hypervisor):
    made = domain(hypervisor).instances[0]
    hypervisor.machine.add_pool("second", "/srv/second")
    changed = domain(hypervisor, pool="second", memory="256MiB")
    assert not changed.failed and acts(changed) == [("redefine", "domain")]
    assert changed.instances[0]["overlay"] == made["overlay"]
    assert acts(domain(hypervisor, pool="second", memory="256MiB", state="stopped")) == [("stop", "domain")]
    assert acts(domain(hypervisor, pool="second", memory="256MiB")) == [("start", "domain")]


def live_mark(hypervisor, old, new):
    """Change the running guest's own XML, as virsh metadata without --config does."""
    state = hypervisor.machine.domain_state("edge.one")
    assert old in state.live
    state.live = state.live.replace(old, new)


def test_a_hold_on_the_running_guest_alone_counts(hypervisor):
    domain(hypervisor)
    live_mark(hypervisor, "</kvm2:instance>", "<kvm2:hold>do not touch</kvm2:hold></kvm2:instance>")
    hypervisor.forget_calls()
    failed = domain(hypervisor, state="absent")
    assert failed.error["kind"] == "conflict" and "do not touch" in failed.msg and hypervisor.writes == []
    collected = run_module("gc", hypervisor, fleet="edge", live=["other"], min_age="0s", max_delete="100%")
    assert not collected.changed and any("on hold" in item["reason"] for item in collected.kept)


def test_a_damaged_mark_of_the_running_guest_is_not_believed_and_its_repair_is_told(hypervisor):
    domain(hypervisor)
    live_mark(hypervisor, "<kvm2:managed>true<", "<kvm2:managed>yes<")
    hypervisor.forget_calls()
    failed = domain(hypervisor, state="absent")
    assert failed.error["kind"] == "conflict" and "virsh metadata" in failed.msg and hypervisor.writes == []


def test_a_guest_that_runs_undefined_is_defined_again(hypervisor):
    made = domain(hypervisor).instances[0]
    FakeHypervisor(hypervisor.machine, uri=LOCAL).undefine(UID)
    assert not hypervisor.domain(UID).persistent
    reported = domain(hypervisor, on_change="report")
    assert [one["field"] for one in reported.instances[0]["drift"]] == ["definition"] and not reported.changed
    failed = domain(hypervisor, on_change="report", state="stopped")
    assert failed.error["kind"] == "conflict" and hypervisor.domain(UID).active
    stopped = domain(hypervisor, state="stopped")
    assert stopped.instances[0]["state"] == "stopped" and stopped.instances[0]["overlay"] == made["overlay"]
    assert not domain(hypervisor, state="stopped").changed


@pytest.mark.parametrize("module", ["domain", "gc"])
def test_volumes_in_an_inactive_pool_stop_the_deletion(hypervisor, module):
    domain(hypervisor)
    hypervisor.machine.pools["default"].active = False
    hypervisor.machine.add_pool("second", "/srv/second")
    hypervisor.forget_calls()
    if module == "domain":
        failed = domain(hypervisor, state="absent", pool="second")
        assert failed.error["kind"] == "conflict" and "in no active pool" in failed.msg
    else:
        done = run_module("gc", hypervisor, fleet="edge", live=["other"], min_age="0s", max_delete="100%")
        assert any("in no active pool" in item["reason"] for item in done.left_alone)
    assert [call for call in hypervisor.writes if call.operation != "create_volume"] == [] and hypervisor.domain(UID).active


def test_a_change_that_the_host_cannot_run_is_refused_before_it_is_defined(hypervisor):
    domain(hypervisor)
    hypervisor.forget_calls()
    for given in ({"networks": [{"network": "nowhere"}]}, {"memory": "8000TiB"}, {"vcpus": 3000}):
        failed = domain(hypervisor, **given)
        assert failed.error["kind"] == "permanent" and hypervisor.writes == [], given


def test_a_vanished_disk_is_no_passing_condition_and_nothing_is_redefined(hypervisor):
    made = domain(hypervisor).instances[0]
    hypervisor.machine.remove_file(f"{POOL}/{made['overlay']}")
    hypervisor.forget_calls()
    failed = domain(hypervisor, memory="256MiB")
    assert failed.error["kind"] == "conflict" and "state: absent" in failed.msg
    assert not failed.changed and hypervisor.writes == []


def test_a_vanished_seed_is_said_before_the_start(hypervisor):
    made = domain(hypervisor).instances[0]
    domain(hypervisor, state="stopped")
    hypervisor.machine.remove_file(f"{POOL}/{made['seed']}")
    failed = domain(hypervisor)
    assert failed.error["kind"] == "conflict" and made["seed"] in failed.msg and "on_change to restart" in failed.msg


def test_an_interface_whose_mac_was_given_goes_when_it_is_asked_for_no_more_and_an_attached_one_stays(hypervisor):
    domain(hypervisor, networks=[{"network": "default", "mac": "52:54:00:aa:bb:cc"}])
    xml = hypervisor.domain(UID).xml
    theirs = "<interface type='network'><mac address='52:54:00:11:22:33'/><source network='default'/><model type='virtio'/></interface>"
    hypervisor.define(xml.replace("</devices>", f"{theirs}</devices>"))
    assert not domain(hypervisor, networks=[{"network": "default", "mac": "52:54:00:aa:bb:cc"}]).changed
    changed = domain(hypervisor)
    assert acts(changed) == [("redefine", "domain")]
    found = hypervisor.domain(UID).xml
    assert "52:54:00:aa:bb:cc" not in found and "52:54:00:11:22:33" in found and names.mac_address(UID, 0) in found
    assert not domain(hypervisor).changed


THEIRS = "<domain type='qemu'><name>theirs</name><memory>65536</memory><os><type>hvm</type></os><devices>{}</devices></domain>"
INTERFACE = "<interface type='network'><mac address='{}'/><source network='default'/></interface>"


@pytest.mark.parametrize("check", [True, False])
def test_a_mac_address_of_another_domain_is_given_to_no_instance(hypervisor, check):
    mac = names.mac_address(UID, 0)
    theirs = hypervisor.define(THEIRS.format(INTERFACE.format(mac.upper())))
    hypervisor.forget_calls()
    failed = domain(hypervisor, check=check)
    assert failed.error["kind"] == "conflict" and f"its MAC address {mac} is that of domain theirs too" in failed.msg and hypervisor.writes == []
    given = {"networks": [{"network": "default", "mac": "52:54:00:aa:bb:cc"}]}
    assert not domain(hypervisor, **given).failed
    # Nor where it is there already: as an interface, or as a device.
    for other in ({}, {**given, "xml_extra": [INTERFACE.format(mac).replace("52:54:00", "52:54:01")]}):
        hypervisor.define(THEIRS.replace("<name>", f"<uuid>{theirs.uuid}</uuid><name>").format(
            INTERFACE.format(mac) + INTERFACE.format(mac.replace("52:54:00", "52:54:01"))))
        hypervisor.forget_calls()
        failed = domain(hypervisor, check=check, **other)
        assert failed.error["kind"] == "conflict" and "is that of domain theirs too" in failed.msg and hypervisor.writes == []
        assert not domain(hypervisor, on_change="report", **other).failed


def test_a_mac_address_that_somebody_takes_from_an_instance_changes_nothing_for_it(hypervisor):
    domain(hypervisor)
    hypervisor.define(THEIRS.format(INTERFACE.format(names.mac_address(UID, 0))))
    assert acts(domain(hypervisor, memory="256MiB")) == [("redefine", "domain")]


def test_instances_of_one_call_may_change_their_mac_addresses_with_each_other(hypervisor):
    overlay(hypervisor, instances=[{"name": "two"}])

    def both(first, second):
        return domain(hypervisor, instances=[
            {"name": name, "networks": [{"network": "default", "mac": f"52:54:00:aa:bb:{mac}"}]} for name, mac in (("one", first), ("two", second))],
            state="defined", network_config="version: 2\n")
    assert not both("01", "02").failed
    changed = both("02", "01")
    assert not changed.failed and acts(changed) == [("redefine", "domain")] * 2


@pytest.mark.parametrize(("state", "was"), [("stopped", "running"), ("stopped", "paused"), ("stopped", "crashed"), ("running", "crashed")])
@pytest.mark.parametrize("check", [True, False])
def test_what_runs_undefined_is_not_ended_where_it_may_not_be_defined(hypervisor, state, was, check):
    domain(hypervisor)
    found = hypervisor.machine.domain_state("edge.one")
    found.config, found.state = None, was
    hypervisor.forget_calls()
    failed = domain(hypervisor, check=check, state=state, on_change="report")
    assert failed.error["kind"] == "conflict" and "would lose it" in failed.msg and hypervisor.writes == []
    assert hypervisor.machine.domain_state("edge.one").live is not None


@pytest.mark.parametrize(("given", "was", "hooked"), [
    ({"state": "stopped"}, "running", "domain"), ({}, "crashed", "volume"),
    ({"on_change": "restart", "user_data": "#!other"}, "running", "volume")])
def test_what_is_undefined_meanwhile_is_not_ended(hypervisor, given, was, hooked):
    domain(hypervisor)
    found = hypervisor.machine.domain_state("edge.one")
    found.state = was

    def undefine(*_args):
        found.config = None
    hypervisor.hook(hooked, undefine)
    failed = domain(hypervisor, **given)
    assert failed.error["kind"] == "conflict" and found.live is not None and found.state == was
    assert not {"shutdown", "destroy"} & {call.operation for call in hypervisor.calls}
    assert len(own(hypervisor)) == 2


def test_what_crashed_and_is_defined_is_started_anew(hypervisor):
    domain(hypervisor)
    hypervisor.machine.domain_state("edge.one").state = "crashed"
    shown = domain(hypervisor, state="defined")
    assert not shown.changed and shown.instances[0]["state"] == "crashed"
    assert acts(domain(hypervisor)) == [("start", "domain")] and hypervisor.domain(UID).state == "running"


@pytest.mark.parametrize(("on_change", "refused"), [("report", True), ("redefine", True), ("restart", False)])
def test_a_mac_address_that_another_guest_of_the_call_keeps_is_given_to_none(hypervisor, on_change, refused):
    mac = "52:54:00:aa:bb:cc"
    had = [{"name": "one", "networks": [{"network": "default", "mac": mac}]}]
    assert not domain(hypervisor, instances=had).failed
    overlay(hypervisor, instances=[{"name": "two"}], base=hypervisor.base)
    moved = [{"name": "one"}, {"name": "two", "networks": [{"network": "default", "mac": mac}]}]
    done = domain(hypervisor, instances=moved, on_change=on_change)
    assert done.failed is refused
    if refused:
        assert f"edge.two: its MAC address {mac} is that of domain edge.one too" in done.msg
    assert sum(found.active and mac in found.live_xml for found in hypervisor.domains()) == 1


def test_check_mode_tells_that_the_overlay_has_gone(hypervisor):
    made = domain(hypervisor).instances[0]
    hypervisor.machine.remove_file(f"{POOL}/{made['overlay']}")
    hypervisor.forget_calls()
    for on_change in ("redefine", "restart"):
        would = domain(hypervisor, check=True, memory="72MiB", on_change=on_change)
        done = domain(hypervisor, memory="72MiB", on_change=on_change)
        assert would.error == done.error and would.error["kind"] == "conflict" and f"its overlay {POOL}/{made['overlay']} has gone" in would.msg
        assert would.actions == [] and hypervisor.writes == [] and hypervisor.domain(UID).active


def test_an_overlay_outside_of_every_pool_is_not_said_to_have_gone(hypervisor):
    made = domain(hypervisor).instances[0]
    domain(hypervisor, state="stopped")
    hypervisor.define(hypervisor.domain(UID).xml.replace(f"{POOL}/{made['overlay']}", "/srv/f3.qcow2"))
    drift = domain(hypervisor, state="defined").instances[0]["drift"]
    assert ("overlay", "/srv/f3.qcow2", "a file in an active pool") in [(one["field"], one["have"], one["want"]) for one in drift]
    for given in ({}, {"memory": "72MiB"}, {"on_change": "replace"}):
        failed = domain(hypervisor, **given)
        assert "/srv/f3.qcow2 is in no active pool, so it cannot be seen" in failed.msg and "has gone" not in failed.msg, given


NOWHERE = {"networks": [{"network": "nowhere"}]}


@pytest.mark.parametrize("lacking, says", [
    (NOWHERE, "There is no network nowhere"), ({"memory": "8000TiB"}, "are needed and the host has"), ({"machine": "none-such"}, "no machine none-such"),
    ({"networks": [{"network": "default", "nwfilter": "mine"}]}, "network filter")])
def test_what_one_instance_cannot_have_here_fails_that_one_alone(hypervisor, lacking, says):
    names_of = ("one", "two", "three")
    overlay(hypervisor, instances=[{"name": name} for name in names_of])
    instances = [{"name": "one"}, {"name": "two", **lacking}, {"name": "three"}]
    would, done = domain(hypervisor, check=True, instances=instances), domain(hypervisor, instances=instances)
    for result in (would, done):
        assert [(error["item"], error["object"]) for error in result.errors] == [("two", "instance edge.two")] and says in result.msg
        assert [one["name"] for one in result.instances] == ["one", "three"]
    assert sorted(one.name for one in hypervisor.domains()) == ["edge.one", "edge.three"]


def test_what_no_instance_can_have_here_is_said_once(hypervisor):
    overlay(hypervisor, instances=[{"name": "one"}, {"name": "two"}])
    hypervisor.forget_calls()
    failed = domain(hypervisor, instances=[{"name": "one"}, {"name": "two", "memory": "8000TiB"}], **NOWHERE)
    assert [error["object"] for error in failed.errors] == [f"hypervisor {LOCAL}"] and hypervisor.writes == []
    assert "There is no network nowhere" in failed.msg and "7.8 PiB are needed" in failed.msg


@pytest.mark.parametrize("given", [{"state": "absent"}, {"memory": "144MiB", "on_change": "redefine"}])
def test_check_mode_tells_what_is_done_for_the_others_where_one_fails(hypervisor, given):
    both = [{"name": "one"}, {"name": "two"}]
    overlay(hypervisor, instances=both)
    domain(hypervisor, instances=both)
    found = hypervisor.domain(names.derive_uid("edge", "two"))
    hypervisor.define(re.sub("<metadata>.*</metadata>", "", found.xml, flags=re.DOTALL))
    hypervisor.destroy(found.uuid)
    before = files(hypervisor)
    predicted = domain(hypervisor, check=True, instances=both, **given)
    assert files(hypervisor) == before
    done = domain(hypervisor, instances=both, **given)
    assert predicted.failed and done.failed and predicted.changed and done.changed
    assert [error["item"] for error in predicted.errors] == [error["item"] for error in done.errors] == ["two"]
    assert sorted(acts(predicted)) == sorted(acts(done)) != []


@pytest.mark.parametrize("on_change", ["report", "redefine", "restart", "replace"])
@pytest.mark.parametrize("before", ["running", "saved", "stopped"])
@pytest.mark.parametrize("change", [
    {"memory": "256MiB"}, {"vcpus": 2}, {"user_data": "#!other\n"}, {"host": "hv9"}, {"networks": []}, {"memory": "256MiB", "user_data": "#!other\n"}])
def test_check_mode_tells_the_drift_that_the_run_leaves(hypervisor, on_change, before, change):
    domain(hypervisor)
    if before == "saved":
        hypervisor.machine.save("edge.one")
    elif before == "stopped":
        hypervisor.destroy(UID)
    for state in ("defined", "running"):
        given = dict(change, on_change=on_change, state=state, wait={"for": "none"})
        told = domain(hypervisor, check=True, **given)
        done = domain(hypervisor, **given)
        assert not done.failed, done.msg
        assert told.instances[0]["drift"] == done.instances[0]["drift"] and [one["act"] for one in told.actions] == [one["act"] for one in done.actions]


@pytest.mark.parametrize("on_change", ["report", "redefine"])
@pytest.mark.parametrize("given", [{}, {"memory": "256MiB"}])
def test_a_guest_whose_seed_has_gone_is_not_started_and_check_mode_tells(hypervisor, on_change, given):
    seed = domain(hypervisor, state="stopped").instances[0]["seed"]
    hypervisor.machine.remove_file(f"{POOL}/{seed}")
    hypervisor.forget_calls()
    told = domain(hypervisor, check=True, on_change=on_change, **given)
    failed = domain(hypervisor, on_change=on_change, **given)
    assert told.failed and told.msg == failed.msg and f"its seed {POOL}/{seed} has gone. Set on_change to restart" in failed.msg
    assert hypervisor.writes == []
    assert not domain(hypervisor, on_change="restart", **given).failed and hypervisor.domain(UID).active
