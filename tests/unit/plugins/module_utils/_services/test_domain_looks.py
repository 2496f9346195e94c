# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read once for a step of several instances is never older than that step, and the rest is read for each of them."""

from __future__ import annotations

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host.ending import EndedEarly
from ansible_collections.egress.kvm2.plugins.module_utils._policy import names
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error
from ansible_collections.egress.kvm2.plugins.module_utils._services import looks
from ansible_collections.egress.kvm2.tests.unit.domains import LOCAL, POOL, acts, domain, files, overlay
from ansible_collections.egress.kvm2.tests.unit.fake.hypervisor import FakeHypervisor

BOTH = [{"name": "one"}, {"name": "two"}]


def volumes(hypervisor, name):
    """The volumes of an instance, of which the last one was made last."""
    found = [volume for volume in files(hypervisor) if getattr(names.parse_instance_volume(volume), "name", None) == name]
    return sorted(found, key=lambda volume: names.parse_instance_volume(volume).nonce)


def overlay_of(hypervisor, name):
    return next(volume for volume in volumes(hypervisor, name) if volume.endswith(".qcow2"))


def use(hypervisor, volume):
    """Somebody else makes an overlay on it."""
    hypervisor.machine.put_image(f"{POOL}/clone.qcow2", backing_path=f"{POOL}/{volume}", backing_format="qcow2")


def errors(result):
    return {error["item"]: error["message"] for error in result.errors} if result.failed else {}


@pytest.fixture
def two(hypervisor):
    overlay(hypervisor, instances=BOTH)
    hypervisor.forget_calls()
    return hypervisor


# -- creation

@pytest.mark.parametrize("name", ["one", "two"])
def test_an_overlay_that_comes_into_use_before_the_last_seed_is_made_is_not_defined_over(two, name):
    used = overlay_of(two, name)
    two.hook("upload", lambda *_args: use(two, used), when="after", nth=2)
    failed = domain(two, instances=BOTH)
    assert set(errors(failed)) == {name} and "clone.qcow2" in failed.msg
    assert volumes(two, name) == [used] and [found.name for found in two.domains()] == [f"edge.{'two' if name == 'one' else 'one'}"]


@pytest.mark.parametrize(("change", "words"), [
    (lambda fake, volume: fake.machine.make_old(f"{POOL}/{volume}", 1801), "30 minutes old"),
    (lambda fake, volume: fake.machine.remove_file(f"{POOL}/{volume}"), "it is not there"),
    (lambda fake, _volume: domain(FakeHypervisor(fake.machine, LOCAL), instances=BOTH[1:]), "somebody else created it")])
def test_what_happens_to_an_instance_while_the_one_before_it_is_defined_is_seen(two, change, words):
    volume = overlay_of(two, "two")
    two.hook("define", lambda *_args: change(two, volume), when="after", nth=1)
    failed = domain(two, instances=BOTH)
    assert set(errors(failed)) == {"two"} and words in failed.msg
    # The seed that was made for it has gone, unless it is that of the one who was faster.
    assert len([name for name in volumes(two, "two") if name.endswith(".iso")]) == (1 if "somebody" in words else 0)


def test_a_run_that_ends_in_the_middle_leaves_no_seed(two):
    def end(*_args):
        raise KeyboardInterrupt
    two.hook("define", end, nth=2)
    with pytest.raises(KeyboardInterrupt):
        domain(two, instances=BOTH)
    assert len(volumes(two, "one")) == 2 and volumes(two, "two") == [overlay_of(two, "two")]


# -- removal

@pytest.mark.parametrize("name", ["one", "two"])
def test_a_volume_that_comes_into_use_before_all_are_off_stays(two, name):
    domain(two, instances=BOTH)
    had = volumes(two, name)
    stopped = []

    def look(*_args):
        stopped.append(1)
        if len(stopped) == 2:
            use(two, next(volume for volume in had if volume.endswith(".qcow2")))
    two.hook("destroy", look, when="after")
    failed = domain(two, instances=BOTH, state="absent", stop={"mode": "force"})
    assert set(errors(failed)) == {name} and "clone.qcow2" in failed.msg and volumes(two, name) == had
    assert [found.name for found in two.domains()] == [f"edge.{name}"]


def test_what_came_into_use_before_the_last_one_was_undefined_is_not_swept_up(two):
    domain(two, instances=BOTH)
    left = "kvm2-edge.one-" + names.derive_uid("edge", "one") + "-ffffff.qcow2"
    two.machine.put_image(f"{POOL}/{left}", backing_path=f"{POOL}/{two.base}", backing_format="qcow2")
    two.hook("undefine", lambda *_args: use(two, left), when="after", nth=2)
    assert not domain(two, instances=BOTH, state="absent").failed
    assert volumes(two, "one") == [left] and volumes(two, "two") == []


def test_one_that_is_created_anew_while_another_is_removed_is_left_alone(two):
    domain(two, instances=BOTH)
    rival = FakeHypervisor(two.machine, LOCAL)

    def anew(*_args):
        assert not domain(rival, instances=BOTH[1:], state="absent").failed
        overlay(rival, instances=BOTH[1:], base=two.base)
        assert not domain(rival, instances=BOTH[1:]).failed
    two.hook("undefine", anew, nth=1)
    failed = domain(two, instances=BOTH, state="absent")
    assert set(errors(failed)) == {"two"} and "created it anew" in failed.msg
    assert len(volumes(two, "two")) == 2 and two.domain(names.derive_uid("edge", "two")).active


def test_one_that_is_started_meanwhile_is_looked_at_anew_once_it_is_off(two):
    domain(two, instances=BOTH)
    rival, uid, disk = FakeHypervisor(two.machine, LOCAL), names.derive_uid("edge", "two"), overlay_of(two, "two")

    def start(*_args):
        rival.start(uid)
        two.hook("destroy", lambda *_args: use(two, disk), when="after", nth=1)
    two.hook("undefine", start, nth=1)
    failed = domain(two, instances=BOTH, state="absent")
    assert set(errors(failed)) == {"two"} and "clone.qcow2" in failed.msg and disk in volumes(two, "two")


def test_nothing_is_deleted_over_a_look_from_before_a_guest_was_switched_off_again(hypervisor):
    three = [{"name": name} for name in ("one", "two", "xtra")]
    overlay(hypervisor, instances=three, base=hypervisor.base)
    domain(hypervisor, instances=three)
    rival = FakeHypervisor(hypervisor.machine, LOCAL)
    hypervisor.hook("undefine", lambda *_args: rival.start(names.derive_uid("edge", "two")), nth=1)
    hypervisor.forget_calls()
    assert not domain(hypervisor, instances=three, state="absent").failed
    made = [call.operation for call in hypervisor.calls]
    deletions = [number for number, call in enumerate(made) if call == "delete_volume"]
    assert made.count("destroy") == 1 and len(deletions) == 6 and made.index("destroy") < deletions[-1]
    for number in deletions:
        since_the_look = made[number - made[number::-1].index("domains"):number]
        assert "destroy" not in since_the_look


def test_what_was_done_until_the_run_ended_is_told(two):
    domain(two, instances=BOTH)
    ended = Kvm2Error("transient", "delete", "instances", "the time is over", "Run again.")

    def end(*_args):
        raise EndedEarly(ended)
    two.hook("undefine", end, nth=2)
    failed = domain(two, instances=BOTH, state="absent")
    assert failed.failed and failed.changed and "the time is over" in failed.msg
    assert acts(failed).count(("declare", "domain")) == 2 and acts(failed).count(("undefine", "domain")) == 1
    assert acts(failed).count(("delete", "overlay")) == 2 and acts(failed).count(("delete", "seed")) == 2


# -- replacement

@pytest.mark.parametrize("nth", [1, 2])
def test_a_run_that_ends_before_its_change_takes_back_what_it_made(two, nth):
    domain(two, instances=BOTH)
    had = files(two)
    ended = Kvm2Error("transient", "restart", "instances", "the time is over", "Run again.")

    def end(*_args):
        raise EndedEarly(ended)
    two.hook("upload", end, nth=nth)
    failed = domain(two, instances=BOTH, on_change="restart", max_parallel="100%", user_data="#cloud-config\nhostname: other\n")
    assert failed.failed and "the time is over" in failed.msg and files(two) == had


def test_what_could_not_be_taken_back_is_told_and_hides_nothing(two):
    domain(two, instances=BOTH)
    had = files(two)

    def end(*_args):
        raise EndedEarly(Kvm2Error("transient", "restart", "instances", "the time is over", "Run again."))

    def refuse(*_args):
        raise Kvm2Error("transient", "delete", "a seed", "the daemon is busy")
    two.hook("destroy", end, nth=1)
    two.hook("delete_volume", refuse, nth=1)
    failed = domain(
        two, instances=BOTH, on_change="restart", max_parallel="100%", stop={"mode": "force"}, user_data="#cloud-config\nhostname: other\n")
    assert "the time is over" in failed.msg and "Left behind for the collector: Failed to delete a seed: the daemon is busy" in failed.msg
    # The one that could not be deleted; the other one's has gone.
    assert len(set(files(two)) - set(had)) == 1


def test_a_replacement_that_comes_into_use_while_the_guests_stop_is_not_switched_to(two):
    domain(two, instances=BOTH)
    for volume in volumes(two, "one") + volumes(two, "two"):
        two.machine.make_old(f"{POOL}/{volume}", 7200)
    given = [
        {"name": one, "overlay": f"kvm2-edge.{one}-{names.derive_uid('edge', one)}-fffff{number}.qcow2"} for number, one in enumerate(("one", "two"))]
    for one in given:
        two.machine.put_image(f"{POOL}/{one['overlay']}", backing_path=f"{POOL}/{two.base}", backing_format="qcow2")
    two.hook("destroy", lambda *_args: use(two, given[1]["overlay"]), when="after", nth=2)
    failed = domain(two, instances=given, on_change="replace", max_parallel="100%", stop={"mode": "force"})
    assert set(errors(failed)) == {"two"} and "clone.qcow2" in failed.msg
    assert failed.instances[0]["overlay"] == given[0]["overlay"] and given[1]["overlay"] in files(two)


# -- how much is read

def looked(hypervisor, run):
    """How often everything was read in that run."""
    hypervisor.forget_calls()
    done = run()
    assert not done.failed, done.msg
    return sum(call.operation == "domains" for call in hypervisor.calls)


@pytest.mark.parametrize("state", ["defined", "running"])
def test_many_instances_need_no_more_looks_than_one(hypervisor, state):
    found = []
    for number in (1, 12):
        instances = [{"name": f"many{number}x{index}"} for index in range(number)]
        overlay(hypervisor, instances=instances, base=hypervisor.base)
        found.append([
            looked(hypervisor, lambda given=given, them=instances: domain(hypervisor, instances=them, **given))
            for given in ({"state": state}, {"state": state}, {"state": "absent"})])
    assert found[0] == found[1]


def test_a_group_has_a_look_of_its_own(hypervisor, monkeypatch):
    monkeypatch.setattr(looks, "TOGETHER", 2)
    instances = [{"name": f"i{number}"} for number in range(5)]
    overlay(hypervisor, instances=instances, base=hypervisor.base)
    used = overlay_of(hypervisor, "i2")
    # The last one of the first group.
    hypervisor.hook("define", lambda *_args: use(hypervisor, used), when="after", nth=2)
    hypervisor.forget_calls()
    failed = domain(hypervisor, instances=instances, state="defined")
    assert set(errors(failed)) == {"i2"} and "clone.qcow2" in failed.msg
    assert sum(call.operation == "domains" for call in hypervisor.calls) == 1 + 3
    assert acts(failed).count(("define", "domain")) == 4
