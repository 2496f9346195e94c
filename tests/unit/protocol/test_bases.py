# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Importers, makers of overlays and collectors of one base, all of them the project's own steps, under the schedules of the model."""

from __future__ import annotations

import random

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._policy import names
from ansible_collections.egress.kvm2.plugins.module_utils._services import bases
from ansible_collections.egress.kvm2.tests.unit.fake import qcow2_bytes
from ansible_collections.egress.kvm2.tests.unit.fake.hypervisor import FakeHypervisor
from ansible_collections.egress.kvm2.tests.unit.fake.machine import GIB
from ansible_collections.egress.kvm2.tests.unit.protocol.modules import check_overlays, job, retire, with_base
from ansible_collections.egress.kvm2.tests.unit.protocol.schedule import Segment, pauses, play, switches
from ansible_collections.egress.kvm2.tests.unit.running import run_module


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    image = tmp_path_factory.mktemp("image") / "micro.qcow2"
    image.write_bytes(qcow2_bytes.image(GIB))
    return image


@pytest.fixture(scope="module")
def published(source):
    """A machine with a published base, three hours old."""
    return with_base(source)


def importer(source):
    def import_and_make(hypervisor):
        """What the role does: the image, then an overlay on what that returned."""
        image = run_module("image", hypervisor, key="micro", src=str(source))
        if image.failed:
            return image
        return run_module("overlay", hypervisor, fleet="edge", base=image.image["base"], instances=[{"name": "one"}])
    return import_and_make


def retire_for_good(hypervisor):
    """As long as it finds something: what one call had to leave, another one may take."""
    return [retire(hypervisor) for _round in range(2)][-1]


def check_ends(machine, runs):
    """No success without its base, every record tells the truth, and whatever was left the next import and overlay succeed."""
    check_overlays(machine, runs)
    for run in runs:
        for error in run.result.errors if run.result.failed else ():
            assert error["kind"] in ("transient", "conflict"), error
    for path, file in machine.files.items():
        name = names.parse_record(path.rpartition("/")[2])
        if name is not None:
            base = machine.files.get(path[:-len(".json")])
            assert base is None or f'"size": {base.size}'.encode() in bytes(file.data) or f'"size":{base.size}'.encode() in bytes(file.data)


def check_next(source, machine):
    hypervisor = FakeHypervisor(machine, "qemu:///system")
    done = importer(source)(hypervisor)
    assert not done.failed, done.msg
    assert done.overlays[0]["path"] in machine.files


@pytest.mark.parametrize("other", [retire, retire_for_good])
def test_import_and_collection(source, published, other):
    jobs = [job(importer(source)), job(other)]
    played = 0
    for first, second in ((0, 1), (1, 0)):
        for segments in switches(published.copy, jobs, first, second):
            machine = published.copy()
            check_ends(machine, play(machine, jobs, segments))
            check_next(source, machine)
            played += 1
    assert played > 10


def test_two_imports_and_a_collector_that_takes_what_they_found(source, published):
    """Each place of an importer: the base is retired there, a second importer publishes anew, then all go on."""
    jobs = [job(importer(source)), job(retire), job(importer(source))]
    for calls in pauses(published.copy, jobs, 0):
        for order in ((1, 2), (2, 1)):
            machine = published.copy()
            check_ends(machine, play(machine, jobs, [Segment(0, calls=calls), *(Segment(number) for number in order)]))
            check_next(source, machine)


@pytest.mark.parametrize("number", range(60))
def test_importers_and_collectors_in_random_turns(source, published, number):
    dice = random.Random(number)
    machine = published.copy()
    jobs = [job(importer(source)), job(importer(source)), job(retire_for_good), job(retire_for_good)]
    segments = [Segment(dice.randrange(4), calls=dice.choice((1, 1, 2, 3, 5, 8))) for _turn in range(80)]
    check_ends(machine, play(machine, jobs, segments))
    check_next(source, machine)


@pytest.mark.parametrize("victim", ["import", "collector"])
def test_killed_anywhere_nothing_bad_is_published_and_the_next_run_succeeds(source, published, victim):
    jobs = [job(importer(source) if victim == "import" else retire)]
    for calls in pauses(published.copy, jobs, 0):
        machine = published.copy()
        play(machine, jobs, [Segment(0, calls=calls, kill=True)])
        (run,) = play(machine, [job(retire)], [])
        assert not run.result.failed, run.result.msg
        check_next(source, machine)


def test_an_import_that_trusts_a_base_without_its_record_is_found_out(source, published, monkeypatch):
    """The guard of the whole: an overlay on a base whose record has gone is no success."""
    monkeypatch.setattr(bases, "is_published", lambda *args: True)
    with pytest.raises(AssertionError, match="success on a base that is gone"):
        test_import_and_collection(source, published, retire)
