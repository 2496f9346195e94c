# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules themselves under the schedules of the models: they are stopped between any two calls while another one acts, and killed anywhere."""

from __future__ import annotations

import random

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._policy import mark, names
from ansible_collections.egress.kvm2.plugins.module_utils._policy.domain_read import overlay_path
from ansible_collections.egress.kvm2.plugins.module_utils._policy.model import Domain
from ansible_collections.egress.kvm2.plugins.module_utils._policy.xml import parse
from ansible_collections.egress.kvm2.plugins.module_utils._services import bases, converge, deletion
from ansible_collections.egress.kvm2.tests.unit.fake import qcow2_bytes
from ansible_collections.egress.kvm2.tests.unit.fake.calls import Killed
from ansible_collections.egress.kvm2.tests.unit.fake.hypervisor import FakeHypervisor
from ansible_collections.egress.kvm2.tests.unit.fake.kept_xml import sources
from ansible_collections.egress.kvm2.tests.unit.fake.machine import GIB, Machine
from ansible_collections.egress.kvm2.tests.unit.protocol.schedule import Segment, pauses, play, switches
from ansible_collections.egress.kvm2.tests.unit.running import run_module

LOCAL = "qemu:///system"
HOUR = 3600
UID = names.derive_uid("edge", "one")
INSTANCES = [{"name": "one"}]


# -- the runs


def make_overlay(hypervisor):
    return run_module("overlay", hypervisor, fleet="edge", base=base_of(hypervisor.machine), instances=INSTANCES)


def make_domain(hypervisor, **given):
    options = {"fleet": "edge", "memory": "128MiB", "networks": [{"network": "default"}], "instances": INSTANCES, **given}
    return run_module("domain", hypervisor, **options)


def create(hypervisor, later=0, state="running"):
    overlay = make_overlay(hypervisor)
    if overlay.failed:
        return overlay
    hypervisor.machine.advance(later)
    return make_domain(hypervisor, instances=[{"name": "one", "overlay": overlay.overlays[0]["overlay"]}], state=state)


def create_late(hypervisor):
    """The domain module comes two hours after the overlay module."""
    return create(hypervisor, 2 * HOUR)


def update(hypervisor):
    return make_domain(hypervisor, memory="256MiB", state="defined")


def delete(hypervisor):
    return run_module("domain", hypervisor, fleet="edge", instances=INSTANCES, state="absent")


def collect(hypervisor):
    """With the instance in the live set: only what it left behind may go."""
    return run_module("gc", hypervisor, fleet="edge", live=["one"])


def collect_all(hypervisor):
    return run_module("gc", hypervisor, fleet="edge", live=[], allow_empty_live=True, max_delete="100%")


def retire(hypervisor):
    return run_module("gc", hypervisor, fleet="edge", live=["one"], min_age="0s", keep_latest=False, collect=["bases"])


# -- where they start


def base_of(machine):
    return next(path.rpartition("/")[2] for path in sorted(machine.files) if names.parse_base(path.rpartition("/")[2]))


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A machine with a published base, three hours old."""
    image = tmp_path_factory.mktemp("image") / "micro.qcow2"
    image.write_bytes(qcow2_bytes.image(GIB))
    machine = Machine()
    machine.add_pool()
    machine.add_network()
    assert not run_module("image", FakeHypervisor(machine, LOCAL), key="micro", src=str(image)).failed
    machine.advance(3 * HOUR)
    return machine


def nothing(machine):
    return machine


def young_overlay(machine):
    assert not make_overlay(FakeHypervisor(machine, LOCAL)).failed
    return machine


def old_overlay(machine):
    young_overlay(machine).advance(3 * HOUR)
    return machine


def running(machine):
    assert not create(FakeHypervisor(machine, LOCAL)).failed
    machine.advance(3 * HOUR)
    return machine


def just_defined(machine):
    assert not create(FakeHypervisor(machine, LOCAL), state="defined").failed
    return machine


def off(machine):
    running(machine)
    FakeHypervisor(machine, LOCAL).destroy(UID)
    return machine


def declared(machine):
    """A deletion was killed right after it was declared."""
    killed = FakeHypervisor(running(machine), LOCAL)

    def kill(*_args):
        raise Killed
    killed.hook("set_metadata", kill, when="after")
    with pytest.raises(Killed):
        delete(killed)
    return machine


# -- what must hold


def is_declared(text):
    parsed = mark.of_tree(parse(text))
    return isinstance(parsed, mark.Mark) and parsed.deleting is not None


def watch_collector(hypervisor):
    """A collector deletes nothing that a domain uses, unless that domain's deletion was declared."""
    def look(pool, name):
        path = f"{hypervisor.machine.pools[pool].path}/{name}"
        for state in hypervisor.machine.domains.values():
            for text in (state.config, state.live):
                if text is not None and path in sources(text, hypervisor.machine):
                    assert is_declared(text), f"the collector deletes {name} in use"
    hypervisor.hook("delete_volume", look)


def job(run):
    # One that deletes instances sweeps up young volumes too, as any deleter does, and reports one that came into use meanwhile.
    return run, watch_collector if run in (collect, retire) else None


def check_end(machine, runs, kinds, began_with):
    asked_for_deletion = set(kinds) & {delete, collect_all}
    succeeded = not any(run.killed or run.result.failed for run in runs)
    for state in machine.domains.values():
        used = [path for text in (state.config, state.live) if text is not None for path in sources(text, machine)]
        if succeeded:
            assert all(path in machine.files for path in used), "ends without its disk, and nobody said so"
            if state.live is not None and state.config is not None:
                assert overlay_path(state.live) == overlay_path(state.config), "ends on another disk than configured, and nobody said so"
    if not asked_for_deletion:
        assert began_with <= set(machine.files), "guest data lost without a deletion"
    for run, kind in zip(runs, kinds, strict=True):
        if kind in (create, create_late) and not run.killed and not run.result.failed and not asked_for_deletion:
            assert UID in machine.domains
            assert machine.domains[UID].active
    check_model(machine)


def check_model(machine):
    """Whatever happened, domains of ours are recognised as ours: no define lost a mark."""
    for state in machine.domains.values():
        domain = Domain(state.name, state.uuid, state.state, xml=state.config, live_xml=state.live)
        assert mark.why_not_ours(domain, mark.of_domain(domain)) is None


def check_recovery(machine):
    """A next run of create succeeds, at the second try at the latest, and then delete leaves nothing of the instance."""
    hypervisor = FakeHypervisor(machine, LOCAL)
    tries = [create(hypervisor)]
    if tries[-1].failed:
        gone = delete(hypervisor)
        assert not gone.failed, gone.msg
        tries.append(create(hypervisor))
    assert not tries[-1].failed, [done.msg for done in tries]
    assert machine.domains[UID].active
    gone = delete(hypervisor)
    assert not gone.failed, gone.msg
    assert machine.domains == {}
    assert [path for path in machine.files if names.parse_instance_volume(path.rpartition("/")[2])] == []
    assert f"/var/lib/libvirt/images/{base_of(machine)}" in machine.files


def shape(machine):
    """An end without its names: recovery from another one of the same shape is the same."""
    domains = tuple(
        (state.config is not None, state.live is not None, is_declared(state.config or state.live),
         tuple(path in machine.files for text in (state.config, state.live) if text is not None for path in sources(text, machine)))
        for state in machine.domains.values())
    volumes = (names.parse_instance_volume(path.rpartition("/")[2]) for path in machine.files)
    return domains, tuple(sorted(volume.kind for volume in volumes if volume is not None))


def guest_data(machine):
    """Files that a guest has written to."""
    return {
        path for path, file in machine.files.items() for state in machine.domains.values()
        if any(file is held for held, writable in state.open_files.values() if writable)}


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
                check_recovery(machine)
    return played


@pytest.mark.parametrize(("kinds", "start"), [
    pytest.param(kinds, start, id=f"{kinds[0].__name__} {kinds[1].__name__} {start.__name__}")
    for kinds, starts in PAIRS.items() for start in starts])
def test_two_runs(published, kinds, start):
    template = start(published.copy())
    assert check_two(template, kinds, guest_data(template) if start is not declared else set())


def undefine_first(hypervisor, doomed, _clock, done):
    """The rejected order of a deletion."""
    hypervisor.undefine(doomed.uid)
    hypervisor.destroy(doomed.uid)
    sweep_only(hypervisor, doomed, done)


def sweep_only(hypervisor, doomed, _done):
    """The end of a deletion without the last look."""
    inventory, found = deletion.inventory_and_references(hypervisor)
    for volume in deletion.own_volumes(inventory, doomed.uid):
        if not found.users_of(volume.path):
            hypervisor.delete_volume(volume.pool, volume.name)


@pytest.mark.parametrize(("module", "guard", "without", "kinds", "start"), [
    (converge, "_still_definable", lambda *args: None, (create_late, collect), nothing),
    (deletion, "_finish", undefine_first, (create, delete), just_defined),
    (deletion, "_sweep", sweep_only, (create, delete), young_overlay),
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
}
NEXT = {create: (create, collect_all), delete: (create, delete, collect_all), collect_all: (delete,), update: (delete,)}


@pytest.mark.parametrize(("kind", "start"), [
    pytest.param(kind, start, id=f"{kind.__name__} {start.__name__}") for kind, starts in KILLED.items() for start in starts])
def test_killed_anywhere(published, kind, start):
    """Whoever comes next finishes or starts anew, and nothing is left behind in the end."""
    template = start(published.copy())
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
def test_three_runs_in_random_turns(published, number):
    dice = random.Random(number)
    start = dice.choice((nothing, young_overlay, old_overlay, running, off, declared))
    kinds = [dice.choice((create, create, update, delete, collect, collect_all)) for _run in range(3)]
    template = start(published.copy())
    machine = template.copy()
    segments = [Segment(dice.randrange(3), calls=dice.choice((1, 2, 3, 5, 8, 13))) for _turn in range(60)]
    check_end(machine, play(machine, [job(kind) for kind in kinds], segments), kinds, set() if start is declared else guest_data(template))
    check_recovery(machine)


# -- bases


def check_overlays(machine, runs):
    for run in runs:
        for overlay in getattr(run.result, "overlays", ()):
            assert overlay["path"] in machine.files
            backing = qcow2_bytes.backing(machine.files[overlay["path"]].data)[0]
            assert backing in machine.files, "success on a base that is gone"


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
