# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of the modules for the schedules to play, the states of a hypervisor they start from, and what must hold at their end."""

from __future__ import annotations

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._policy import mark, names
from ansible_collections.egress.kvm2.plugins.module_utils._policy.model import Domain
from ansible_collections.egress.kvm2.plugins.module_utils._policy.xml import parse
from ansible_collections.egress.kvm2.tests.unit.fake import qcow2_bytes
from ansible_collections.egress.kvm2.tests.unit.fake.calls import Killed
from ansible_collections.egress.kvm2.tests.unit.fake.hypervisor import FakeHypervisor
from ansible_collections.egress.kvm2.tests.unit.fake.kept_xml import sources
from ansible_collections.egress.kvm2.tests.unit.fake.machine import Machine
from ansible_collections.egress.kvm2.tests.unit.running import run_module

LOCAL = "qemu:///system"
HOUR = 3600
UID = names.derive_uid("edge", "one")
INSTANCES = ({"name": "one"},)
BOTH = ({"name": "one"}, {"name": "two"})


# -- the runs


def make_overlay(hypervisor, instances=INSTANCES):
    return run_module("overlay", hypervisor, fleet="edge", base=base_of(hypervisor.machine), instances=list(instances))


def make_domain(hypervisor, **given):
    options = {"fleet": "edge", "memory": "128MiB", "networks": [{"network": "default"}], "instances": list(INSTANCES), **given}
    return run_module("domain", hypervisor, **options)


def create(hypervisor, later=0, state="running", instances=INSTANCES):
    overlay = make_overlay(hypervisor, instances)
    if overlay.failed:
        return overlay
    hypervisor.machine.advance(later)
    return make_domain(hypervisor, instances=_over(overlay), state=state)


def _over(made):
    """The instances over the overlays that were made for them."""
    return [{"name": one["name"], "overlay": one["overlay"]} for one in made.overlays]


def create_both(hypervisor):
    return create(hypervisor, instances=BOTH)


def create_late(hypervisor):
    """The domain module comes two hours after the overlay module."""
    return create(hypervisor, 2 * HOUR)


def restart(hypervisor):
    """More memory and another seed, at once."""
    return make_domain(hypervisor, memory="256MiB", user_data="#!restarted\n", on_change="restart")


def replace(hypervisor, instances=INSTANCES):
    """On the newest base and with another seed, all at the same time."""
    base = newest_base_of(hypervisor.machine)
    overlay = run_module("overlay", hypervisor, fleet="edge", base=base, instances=list(instances), replace=True)
    if overlay.failed:
        return overlay
    return make_domain(hypervisor, instances=_over(overlay), user_data="#!replaced\n", on_change="replace", max_parallel="100%")


def replace_both(hypervisor):
    return replace(hypervisor, BOTH)


def update(hypervisor):
    return make_domain(hypervisor, memory="256MiB", state="defined")


def delete(hypervisor, instances=INSTANCES):
    return run_module("domain", hypervisor, fleet="edge", instances=list(instances), state="absent")


def delete_both(hypervisor):
    return delete(hypervisor, BOTH)


def collect(hypervisor):
    """With the instance in the live set: only what it left behind may go."""
    return run_module("gc", hypervisor, fleet="edge", live=["one"])


def collect_all(hypervisor):
    return run_module("gc", hypervisor, fleet="edge", live=[], allow_empty_live=True, max_delete="100%")


def retire(hypervisor):
    return run_module("gc", hypervisor, fleet="edge", live=["one"], min_age="0s", keep_latest=False, collect=["bases"])


# -- where they start


def base_of(machine):
    """The base that was published first."""
    return _bases(machine)[0]


def newest_base_of(machine):
    """The one published last, which a replacement puts an instance on."""
    return _bases(machine)[-1]


def _bases(machine):
    named = {path.rpartition("/")[2]: file.mtime for path, file in machine.files.items()}
    return sorted((name for name in named if names.parse_base(name)), key=lambda name: (named[name], name))


def with_base(*images):
    """A Machine with bases published from these files, the last one three hours ago."""
    machine = Machine()
    machine.add_pool()
    machine.add_network()
    for image in images:
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


def both_running(machine):
    assert not create_both(FakeHypervisor(machine, LOCAL)).failed
    machine.advance(3 * HOUR)
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
    asked_for_deletion = set(kinds) & {delete, delete_both, collect_all, replace, replace_both}
    succeeded = not any(run.killed or run.result.failed for run in runs)
    for state in machine.domains.values():
        used = [path for text in (state.config, state.live) if text is not None for path in sources(text, machine)]
        if succeeded:
            assert all(path in machine.files for path in used), "ends without its disk, and nobody said so"
            if state.live is not None and state.config is not None:
                assert sources(state.live, machine) == sources(state.config, machine), "ends on other disks than configured, and nobody said so"
    if not asked_for_deletion:
        assert began_with <= set(machine.files), "guest data lost without a deletion"
    # Two that finish one deletion: the slower one may stop or undefine what the faster one has created already, and says so.
    undone = any(
        not run.killed and run.result.failed and ("created it anew while" in run.result.msg or "is not there" in run.result.msg) for run in runs)
    for run, kind in zip(runs, kinds, strict=True):
        if kind in (create, create_late) and not run.killed and not run.result.failed and not asked_for_deletion and not undone:
            assert UID in machine.domains
            assert machine.domains[UID].active
    check_model(machine)


def check_model(machine):
    """Whatever happened, domains of ours are recognised as ours: no define lost a mark."""
    for state in machine.domains.values():
        domain = Domain(state.name, state.uuid, state.state, xml=state.config, live_xml=state.live)
        assert mark.why_not_ours(domain, mark.of_domain(domain)) is None


def check_recovery(machine, instances=INSTANCES):
    """A next run of create succeeds, at the second try at the latest, and then delete leaves nothing of the instances."""
    hypervisor = FakeHypervisor(machine, LOCAL)
    tries = [create(hypervisor, instances=instances)]
    if tries[-1].failed:
        gone = delete(hypervisor, instances)
        assert not gone.failed, gone.msg
        tries.append(create(hypervisor, instances=instances))
    assert not tries[-1].failed, [done.msg for done in tries]
    assert all(machine.domains[names.derive_uid("edge", one["name"])].active for one in instances)
    gone = delete(hypervisor, instances)
    assert not gone.failed, gone.msg
    assert machine.domains == {}
    assert [path for path in machine.files if names.parse_instance_volume(path.rpartition("/")[2])] == []
    assert f"/var/lib/libvirt/images/{base_of(machine)}" in machine.files


def check_mended(machine):
    """One quiet replacement mends whatever there is."""
    done = replace(FakeHypervisor(machine, LOCAL))
    assert not done.failed, done.msg
    assert machine.domains[UID].active
    assert done.instances[0]["drift"] == []
    assert done.instances[0]["base"] == newest_base_of(machine)


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


def check_overlays(machine, runs):
    for run in runs:
        for overlay in getattr(run.result, "overlays", ()):
            assert overlay["path"] in machine.files
            backing = qcow2_bytes.backing(machine.files[overlay["path"]].data)[0]
            assert backing in machine.files, "success on a base that is gone"
