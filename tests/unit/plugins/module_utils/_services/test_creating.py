# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A volume whose creation fails, or is made while its answer is lost, over a fake hypervisor."""

from __future__ import annotations

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import classify
from ansible_collections.egress.kvm2.plugins.module_utils._host.ending import EndedEarly
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error
from ansible_collections.egress.kvm2.plugins.module_utils._services import clock, creating
from ansible_collections.egress.kvm2.tests.unit.domains import LOCAL, domain, files, overlay, own
from ansible_collections.egress.kvm2.tests.unit.fake.calls import libvirt_error
from ansible_collections.egress.kvm2.tests.unit.fake.hypervisor import FakeHypervisor

LOST = Kvm2Error("transient", "create", "volume x", "End of file", "The connection was lost; try again once the hypervisor answers.", 38)
XML = "<volume><name>x.raw</name><capacity>512</capacity></volume>"


def fail_after(hypervisor, error):
    def fail(*_arguments):
        raise error
    hypervisor.hook("create_volume", fail, when="after", nth=1)


@pytest.mark.parametrize("make", [
    domain, lambda hypervisor: overlay(hypervisor, instances=[{"name": "two"}]),
    lambda hypervisor: domain(hypervisor, user_data="#!a\n", on_change="replace")], ids=["seed", "overlay", "replace"])
def test_what_was_made_while_its_answer_was_lost_goes_again(hypervisor, make, request):
    if "replace" in request.node.name:
        domain(hypervisor)
    before = own(hypervisor)
    fail_after(hypervisor, LOST)
    failed = make(hypervisor)
    assert failed.error["kind"] == "transient" and "The connection was lost" in failed.msg and own(hypervisor) == before
    assert not make(hypervisor).failed and own(hypervisor) != before


def test_the_probe_of_a_clock_goes_too(hypervisor):
    far = FakeHypervisor(hypervisor.machine, uri="qemu+ssh://root@h/system")
    before = files(far)
    fail_after(far, LOST)
    with pytest.raises(Kvm2Error) as caught:
        clock.probed(far, "default", (), lambda: 0.0)
    assert caught.value is LOST and files(far) == before
    assert clock.probed(far, "default", (), lambda: 0.0) == far.machine.now and files(far) == before


def test_also_where_the_work_has_to_end(hypervisor):
    before = files(hypervisor)
    fail_after(hypervisor, EndedEarly(LOST))
    with pytest.raises(EndedEarly):
        creating.create_volume(hypervisor, "default", "x.raw", XML)
    assert files(hypervisor) == before


def test_a_volume_that_was_there_already_stays():
    hypervisor = FakeHypervisor(uri=LOCAL)
    creating.create_volume(hypervisor, "default", "x.raw", XML)
    with pytest.raises(Kvm2Error) as caught:
        creating.create_volume(hypervisor, "default", "x.raw", XML)
    assert caught.value.code == classify.STORAGE_VOL_EXIST and files(hypervisor) == ["x.raw"]
    assert [call.operation for call in hypervisor.writes] == ["create_volume"] * 2


def test_the_first_failure_is_told_where_the_deletion_fails_too():
    hypervisor = FakeHypervisor(uri=LOCAL)
    full = libvirt_error("create-volume", "create", "volume x.raw", classify.SYSTEM_ERROR, "No space left on device", 28)
    hypervisor.fail_at("create_volume", 1, full)
    hypervisor.fail_at("delete_volume", 1, LOST)
    with pytest.raises(Kvm2Error) as caught:
        creating.create_volume(hypervisor, "default", "x.raw", XML)
    assert caught.value.code == full.code and caught.value.kind == full.kind == "quota"
    assert caught.value.cause == f"{full.cause}. Left behind for the collector: {LOST.message}".rstrip(".")


@pytest.mark.parametrize(("make", "fails"), [
    (domain, "upload"), (lambda hypervisor: domain(hypervisor, user_data="#!a\n", on_change="replace"), "upload"),
    (lambda hypervisor: domain(hypervisor, user_data="#!a\n", on_change="replace"), "create_volume"),
], ids=["seed", "seed of a replacement", "overlay of a replacement"])
def test_a_deletion_that_fails_hides_no_failure_and_is_told_once(hypervisor, make, fails, request):
    if "replacement" in request.node.name:
        assert not domain(hypervisor).failed
    hypervisor.forget_calls()
    hypervisor.fail_at(fails, 1, Kvm2Error("permanent", "write", "the volume", "this went wrong first", "Mend it."))
    for nth in range(1, 9):
        hypervisor.fail_at("delete_volume", nth, LOST)
    failed = make(hypervisor)
    assert failed.error["kind"] == "permanent" and "this went wrong first" in failed.msg
    assert failed.msg.count("Left behind for the collector") == failed.msg.count("End of file") == 1


@pytest.mark.parametrize("operation", ["upload", "download", "define"])
def test_a_change_that_ends_in_the_middle_is_taken_back_by_its_run_alone(hypervisor, operation):
    domain(hypervisor)
    before = own(hypervisor)
    hypervisor.forget_calls()

    def end(*_arguments):
        raise EndedEarly(LOST)
    hypervisor.hook(operation, end, when="before", nth=1)
    failed = domain(hypervisor, user_data="#!a\n", on_change="replace")
    assert failed.failed and own(hypervisor) == before
    gone = [call.args[1] for call in hypervisor.calls if call.operation == "delete_volume"]
    # Whoever was making a seed deletes it at once, and the run all that there is.
    assert gone and max(gone.count(name) for name in gone) == (2 if operation == "upload" else 1)
