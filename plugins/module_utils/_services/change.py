# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restarting an instance with what waits for it, and replacing its overlay: what can be made and looked at before the guest stops is.

make → prepare → (the guest is stopped, together with others) → switch → (it is started). The overlay and seed that lose their domain are touched
right before the define: a run that still has the former definition in hand ends before a collector may take them.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import FrozenSet, Optional, Tuple

from .._policy import domain_read, domain_xml, mark
from .._policy.errors import CONFLICT, TRANSIENT, Kvm2Error
from . import clock, converge, overlay_making, seeds
from .instances import LIFT_HOLD
from .undoing import after_undoing, undone_by


@dataclass(frozen=True)
class Change:
    """job: the instance as it will be.  present: as it is, for a guest that runs undefined and is defined before it stops.

    act: restart or replace.  disks: paths of the overlays and seeds that its definitions named when this was planned.  defines: does the
    definition change?  new_overlay, new_seed: are job.overlay and job.seed others than it has?  base: the volume name of the published base
    that the new overlay is made on, with `capacity` bytes, None where it is there already.  left: (pool, name) of the volumes that lose
    their domain.  starts: is it started afterwards?
    """

    job: converge.Job
    present: converge.Job
    act: str
    disks: FrozenSet[str]
    defines: bool
    new_overlay: bool
    new_seed: bool
    base: Optional[str]
    capacity: int
    left: Tuple[Tuple[str, str], ...]
    starts: bool


def disks_of(domain):
    """Paths of the overlays and seeds in all definitions of a domain."""
    specs = [domain_read.read_spec(text) for text in domain.xmls]
    return frozenset(path for spec in specs for path in (spec.overlay_path, spec.seed_path) if path)


def make(hypervisor, change, did):
    """Make overlay and seed. The guest goes on meanwhile, here and in prepare."""
    job = change.job
    with _undone(hypervisor, change):
        if change.base is not None:
            overlay_making.create_checked(hypervisor, job.pool, job.overlay, change.base, change.capacity)
            did("create", "overlay")
        if change.new_seed:
            seeds.make(hypervisor, job.pool, job.seed, job.wanted)
            did("create", "seed")


def prepare(hypervisor, change, did, look, wall_clock):
    """Look at the domain afresh, and see that what it will start on can be read. look: a looks.shared_look() that is no older than what was made."""
    job = change.job
    with _undone(hypervisor, change):
        domain = _as_planned(hypervisor, change)
        if change.new_overlay:
            converge.still_definable(hypervisor, job, look, wall_clock)
        converge.check_chain(hypervisor, job, job.spec)
        converge.check_seed_there(hypervisor, job)
        if not domain.persistent:
            converge.redefine(hypervisor, change.present, did)


def switch(hypervisor, change, did, look, wall_clock):
    """Drop a managed save, touch what loses its domain, define, look back. The guest is off. look: a looks.shared_look() that is no older than that."""
    job = change.job
    with _undone(hypervisor, change):
        domain = _as_planned(hypervisor, change)
        if domain.active:
            raise _refused(change, TRANSIENT, "something started it again", "Run again.")
        if hypervisor.drop_managed_save(domain.uuid):
            did("drop", "managed save")
        if change.new_overlay:
            # The stop may have taken its time.
            converge.still_definable(hypervisor, job, look, wall_clock)
        for pool, name in change.left:
            clock.touch(hypervisor, pool, name)
        if change.defines:
            if not change.new_seed:
                converge.attach_seed_again(hypervisor, job, domain)
            parsed = mark.of_domain(domain)
            fresh = replace(job.mark, created_at=parsed.created_at, hold=parsed.hold, run=parsed.run)
            hypervisor.define(domain_xml.update(domain.xml, job.spec, mark.to_element(fresh)))
    if not change.defines:
        return
    did("replace" if change.new_overlay else "redefine", "domain")
    settled = converge.settle(hypervisor, job)
    if (settled.overlay_path, settled.seed_path) != (job.spec.overlay_path, job.spec.seed_path):
        raise after_undoing(
            _refused(change, CONFLICT, "another run started it at the same time; the guest of that run was kept", "Run again."),
            lambda: undo(hypervisor, change))
    if change.new_seed:
        seeds.check(hypervisor, job.pool, job.seed, job.wanted)


def _undone(hypervisor, change):
    """What was made is taken back after a failure; where the run ends in the middle, who changes some together does so for all of them."""
    return undone_by(lambda: undo(hypervisor, change), also_ended=False)


def undo(hypervisor, change):
    """Delete what this call made and no definition names. A define whose answer got lost may have happened: then they are in use and stay."""
    domain = hypervisor.domain(change.job.instance.uid)
    named = frozenset() if domain is None else disks_of(domain)
    spec = change.job.spec
    with ExitStack() as both:
        # One that cannot be deleted keeps nothing from the other.
        for made, path, name in (
                (change.new_seed, spec.seed_path, change.job.seed), (change.base is not None, spec.overlay_path, change.job.overlay)):
            if made and path not in named:
                both.callback(hypervisor.delete_volume, change.job.pool, name)


def _as_planned(hypervisor, change):
    """The domain as it is now; an error where it is not any more what the change was planned for."""
    domain = converge.fresh(hypervisor, change.job)
    if domain is None:
        raise _refused(change, CONFLICT, "it has gone", "Something removed it; run again.")
    parsed = mark.of_domain(domain)
    if parsed.deleting is not None:
        raise _refused(change, CONFLICT, "its deletion was declared meanwhile", "Run again.")
    if parsed.hold:
        raise on_hold(change.act, change.job.instance, parsed.hold)
    if not disks_of(domain) <= change.disks:
        raise _refused(change, CONFLICT, "something gave it another disk meanwhile", "Stop whatever else manages it, then run again.")
    return domain


def _refused(change, kind, cause, hint):
    return Kvm2Error(kind, change.act, f"domain {change.job.instance.domain}", cause, hint)


def on_hold(act, instance, reason):
    return Kvm2Error(
        CONFLICT, act, f"instance {instance.domain}", f"it is on hold: {reason}", LIFT_HOLD)
