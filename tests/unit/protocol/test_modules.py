# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules themselves under the schedules of the models: stopped between any two calls while another one acts, and killed anywhere."""

from __future__ import annotations

import random

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._policy import names
from ansible_collections.egress.kvm2.plugins.module_utils._services import bases, converge, deletion
from ansible_collections.egress.kvm2.plugins.module_utils._services.pools import look_around
from ansible_collections.egress.kvm2.tests.unit.fake import qcow2_bytes
from ansible_collections.egress.kvm2.tests.unit.fake.machine import GIB
from ansible_collections.egress.kvm2.tests.unit.protocol.modules import (
    BOTH,
    HOUR,
    both_running,
    check_end,
    check_mended,
    check_model,
    check_overlays,
    check_recovery,
    collect,
    collect_all,
    create,
    create_both,
    create_late,
    declared,
    delete,
    delete_both,
    guest_data,
    job,
    just_defined,
    make_overlay,
    nothing,
    off,
    old_overlay,
    replace,
    replace_both,
    restart,
    retire,
    running,
    shape,
    update,
    with_base,
    young_overlay,
)
from ansible_collections.egress.kvm2.tests.unit.protocol.schedule import Segment, pauses, play, switches


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A machine with a published base, three hours old."""
    image = tmp_path_factory.mktemp("image") / "micro.qcow2"
    image.write_bytes(qcow2_bytes.image(GIB))
    return with_base(image)


@pytest.fixture(scope="module")
def with_newer(tmp_path_factory):
    """A machine with a base, and one of a newer image."""
    folder = tmp_path_factory.mktemp("image")
    for number in range(2):
        (folder / str(number)).write_bytes(bytes(qcow2_bytes.image(GIB)) + bytes([number]) * 512)
    return with_base(folder / "0", folder / "1")


PAIRS = {
    (create, create): (nothing, young_overlay, declared),
    (create, delete): (nothing, just_defined, running, declared),
    (create, collect): (nothing, old_overlay),
    (create_late, collect): (nothing,),
    (create, collect_all): (off, declared),
    (delete, delete): (running, declared),
    (delete, collect_all): (running, declared),
    (collect_all, collect_all): (declared, old_overlay),
    (update, delete): (running, off),
    (update, create): (off,),
    (update, collect): (off,),
}


CHANGES = {
    (replace, create): (running,),
    (replace, delete): (running, off),
    (replace, collect): (off,),
    (replace, replace): (running,),
    (replace, update): (running,),
    (restart, create): (running,),
    (restart, delete): (running,),
    (restart, replace): (running,),
    (restart, restart): (running,),
    (restart, collect): (running,),
}


# Of these every run of the tests makes sure: each of the orders that the protocol is made of is played. The others take minutes.
USUAL = {
    (create, create, nothing), (create, delete, just_defined), (create, collect, old_overlay), (create_late, collect, nothing),
    (delete, delete, declared), (delete, collect_all, declared), (update, delete, off), (update, collect, off), (replace, collect, off)}


def pairs(all_pairs):
    return [
        pytest.param(
            kinds, start, id=f"{kinds[0].__name__} {kinds[1].__name__} {start.__name__}",
            marks=[] if (*kinds, start) in USUAL else [pytest.mark.extended])
        for kinds, starts in all_pairs.items() for start in starts]


def check_two(template, kinds, began_with):
    """Play all switches between two runs of these kinds; returns how many there were."""
    jobs = [job(kind) for kind in kinds]
    played, shapes = 0, set()
    for first, other in ((0, 1), (1, 0)) if kinds[0] is not kinds[1] else ((0, 1),):
        for segments in switches(template.copy, jobs, first, other):
            machine = template.copy()
            check_end(machine, play(machine, jobs, segments), kinds, began_with)
            played += 1
            if shape(machine) not in shapes:
                shapes.add(shape(machine))
                check_mended(machine.copy())
                check_recovery(machine)
    return played


@pytest.mark.parametrize(("kinds", "start"), pairs(PAIRS))
def test_two_runs(published, kinds, start):
    template = start(published.copy())
    assert check_two(template, kinds, guest_data(template) if start is not declared else set())


@pytest.mark.parametrize(("kinds", "start"), pairs(CHANGES))
def test_two_runs_of_which_one_restarts_or_replaces(with_newer, kinds, start):
    template = start(with_newer.copy())
    assert check_two(template, kinds, guest_data(template))


def undefine_first(hypervisor, wanted, _errors, _done):
    """The rejected order of a deletion."""
    for doomed in wanted:
        hypervisor.undefine(doomed.uid)
        hypervisor.destroy(doomed.uid)
        inventory, found = look_around(hypervisor)
        for volume in deletion.own_volumes(inventory, doomed.uid):
            if not found.users_of(volume.path):
                hypervisor.delete_volume(volume.pool, volume.name)


@pytest.mark.parametrize(("module", "guard", "without", "kinds", "start"), [
    (converge, "still_definable", lambda *args: None, (create_late, collect), nothing),
    (deletion, "_finish", undefine_first, (create, delete), just_defined),
    (deletion, "_look_again", lambda *args: None, (create, delete), young_overlay),
], ids=["age", "order", "last look"])
def test_a_protocol_without_one_of_its_guards_is_found_out(published, monkeypatch, module, guard, without, kinds, start):
    monkeypatch.setattr(module, guard, without)
    with pytest.raises(AssertionError):
        check_two(start(published.copy()), kinds, set())


KILLED = {
    create: (nothing, young_overlay, old_overlay, off, declared),
    delete: (running, off, declared),
    collect_all: (running, old_overlay),
    update: (off,),
    replace: (running, off),
    restart: (running,),
}
NEXT = {
    create: (create, collect_all), delete: (create, delete, collect_all), collect_all: (delete,), update: (delete,), replace: (replace, delete),
    restart: (restart, replace, delete)}


@pytest.mark.parametrize(("kind", "start"), [
    pytest.param(kind, start, id=f"{kind.__name__} {start.__name__}") for kind, starts in KILLED.items() for start in starts])
def test_killed_anywhere(published, with_newer, kind, start):
    """Whoever comes next finishes or starts anew, and nothing is left behind in the end."""
    template = start((with_newer if kind in (replace, restart) else published).copy())
    jobs, shapes = [job(kind)], set()
    for calls in pauses(template.copy, jobs, 0):
        machine = template.copy()
        play(machine, jobs, [Segment(0, calls=calls, kill=True)])
        check_model(machine)
        if shape(machine) in shapes:
            continue
        shapes.add(shape(machine))
        for following in NEXT[kind]:
            another = machine.copy()
            (run,) = play(another, [job(following)], [])
            if following is replace:
                check_mended(another.copy())
            if following is not create:
                assert not run.result.failed, run.result.msg
            check_end(another, [run], [following], set())
            check_recovery(another)
    assert shapes


@pytest.mark.parametrize("late", [False, True])
def test_a_killed_run_meets_the_collector_later(published, late):
    """What a killed creator left is collected once it is old, and not before."""
    for calls in pauses(published.copy, [job(create)], 0):
        machine = published.copy()
        before = set(machine.files)
        play(machine, [job(create)], [Segment(0, calls=calls, kill=True)])
        domains = set(machine.domains)
        machine.advance(3 * HOUR if late else 600)
        kept = set(machine.files)
        (run,) = play(machine, [job(collect_all)], [])
        assert not run.result.failed, run.result.msg
        if late:
            assert set(machine.files) == before
            assert machine.domains == {}
        else:
            assert set(machine.files) == kept
            assert set(machine.domains) == domains


@pytest.mark.parametrize("number", range(40))
def test_three_runs_in_random_turns(with_newer, number):
    dice = random.Random(number)
    start = dice.choice((nothing, young_overlay, old_overlay, running, off, declared))
    kinds = [dice.choice((create, create, update, restart, replace, delete, collect, collect_all)) for _run in range(3)]
    template = start(with_newer.copy())
    machine = template.copy()
    segments = [Segment(dice.randrange(3), calls=dice.choice((1, 2, 3, 5, 8, 13))) for _turn in range(60)]
    check_end(machine, play(machine, [job(kind) for kind in kinds], segments), kinds, set() if start is declared else guest_data(template))
    check_recovery(machine)


# -- several instances, which share what is read for a step of theirs


@pytest.mark.parametrize("number", [*range(12), *(pytest.param(number, marks=pytest.mark.extended) for number in range(12, 60))])
def test_runs_of_two_instances_in_random_turns(with_newer, number):
    dice = random.Random(number)
    start = dice.choice((nothing, both_running, both_running))
    kinds = [dice.choice((create_both, replace_both, delete_both, delete_both, collect, collect_all, create, delete)) for _run in range(3)]
    template = start(with_newer.copy())
    machine = template.copy()
    segments = [Segment(dice.randrange(3), calls=dice.choice((1, 2, 3, 5, 8, 13, 21))) for _turn in range(60)]
    # A collection with one instance in its live set takes the other one.
    deletes = set(kinds) & {delete, delete_both, replace_both, collect, collect_all}
    check_end(machine, play(machine, [job(kind) if kind is not collect else (kind, None) for kind in kinds], segments), kinds,
              set() if deletes else guest_data(template))
    check_recovery(machine, BOTH)


@pytest.mark.parametrize("kind", [create_both, delete_both, pytest.param(replace_both, marks=pytest.mark.extended)])
def test_two_instances_killed_anywhere(with_newer, kind):
    template = nothing(with_newer.copy()) if kind is create_both else both_running(with_newer.copy())
    shapes = set()
    for calls in pauses(template.copy, [job(kind)], 0):
        machine = template.copy()
        play(machine, [job(kind)], [Segment(0, calls=calls, kill=True)])
        check_model(machine)
        if shape(machine) not in shapes:
            shapes.add(shape(machine))
            (run,) = play(machine, [job(delete_both)], [])
            assert not run.result.failed, run.result.msg
            check_recovery(machine, BOTH)
    assert len(shapes) > 5


# -- bases


def check_bases(published, kinds):
    jobs = [job(kind) for kind in kinds]
    played = 0
    for first, other in ((0, 1), (1, 0)):
        for segments in switches(published.copy, jobs, first, other):
            machine = published.copy()
            runs = play(machine, jobs, segments)
            check_overlays(machine, runs)
            played += 1
            if make_overlay not in kinds:
                assert not any(names.parse_base(path.rpartition("/")[2]) for path in machine.files)
    return played


@pytest.mark.parametrize("kinds", [(make_overlay, retire), (retire, retire), (make_overlay, make_overlay)], ids=lambda kinds: " ".join(
    kind.__name__ for kind in kinds))
def test_overlays_keep_their_base(published, kinds):
    assert check_bases(published, kinds) > 5


def test_a_creator_that_does_not_look_twice_is_found_out(published, monkeypatch):
    monkeypatch.setattr(bases, "is_published", lambda *args: True)
    with pytest.raises(AssertionError, match="success on a base that is gone"):
        check_bases(published, (make_overlay, retire))


@pytest.mark.parametrize("number", range(60))
def test_creators_and_two_collectors_of_one_base(published, number):
    """Two collectors at once are what a record that is put back would lose a base to."""
    dice = random.Random(number)
    machine = published.copy()
    jobs = [job(kind) for kind in (make_overlay, retire, retire)]
    segments = [Segment(dice.randrange(3), calls=dice.choice((1, 1, 2, 3, 5))) for _turn in range(60)]
    check_overlays(machine, play(machine, jobs, segments))
