# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creating and redefining one instance's domain: a fresh look before every define, and a look back after it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Optional

from .._policy import domain_read, domain_xml, mark, overlays, qcow2
from .._policy.domain_xml import DomainSpec
from .._policy.errors import CONFLICT, PERMANENT, TRANSIENT, InvalidInput, Kvm2Error
from .._policy.specification import Wanted
from .._policy.xml import parse
from . import clock, seeds
from .instances import Instance, domain_of
from .undoing import after_undoing, undone_by

REPLACE = (
    "Run kvm2_overlay with replace: true, then kvm2_domain with the overlay it returns and on_change: replace; "
    "or delete the instance (state: absent) and create it again.")

NEW_SEED = "Set on_change to restart: then it gets a new one."


@dataclass(frozen=True)
class Job:
    """An instance to be defined. overlay and seed are volume names in the pool; created_at in seconds since the epoch."""

    instance: Instance
    wanted: Wanted
    spec: DomainSpec
    mark: mark.Mark
    pool: str
    overlay: str
    seed: Optional[str]
    autostart: bool


def make_seed(hypervisor, job, did):
    """The first step of a creation; returns the seed's model.Volume."""
    made = seeds.make(hypervisor, job.pool, job.seed, job.wanted)
    did("create", "seed")
    return made


def drop_seed(hypervisor, job, made):
    """A define whose answer got lost may have happened: then the seed is in use and stays."""
    domain = hypervisor.domain(job.instance.uid)
    if domain is None or not any(made.path in text for text in domain.xmls):
        hypervisor.delete_volume(job.pool, made.name)


def create(hypervisor, job, made, did, look, wall_clock):
    """Over its seed that was just made: observe again → define → read back → see the chain and the seed. look: a looks.shared_look() that is no older
    than the seed. Starting is the caller's, together with the others."""
    with undone_by(lambda: drop_seed(hypervisor, job, made)):
        _nobody_else(hypervisor, job)
        still_definable(hypervisor, job, look, wall_clock)
        hypervisor.define(domain_xml.render(job.spec, mark.to_element(job.mark)))
    did("define", "domain")
    settled = settle(hypervisor, job)
    if settled.seed_path != made.path:
        # Whoever started the guest did so with a seed of its own; the one made here serves nobody.
        raise after_undoing(Kvm2Error(
            CONFLICT, "create", f"domain {job.instance.domain}",
            "another run created and started it at the same time; the guest of that run was kept", "Run again."),
            lambda: hypervisor.delete_volume(job.pool, made.name))
    seeds.check(hypervisor, job.pool, job.seed, job.wanted)


def redefine(hypervisor, job, did):
    """A fresh look → define over the same UUID, everything unmanaged kept → look back."""
    domain = fresh(hypervisor, job)
    if domain is None:
        raise Kvm2Error(CONFLICT, "redefine", f"domain {job.instance.domain}", "it has gone", "Something removed it; run again.")
    parsed = mark.of_domain(domain)
    if parsed.deleting is not None:
        raise Kvm2Error(CONFLICT, "redefine", f"domain {job.instance.domain}", "its deletion was declared meanwhile", "Run again.")
    if job.spec.overlay_path not in [domain_read.overlay_path(text) for text in domain.xmls]:
        raise Kvm2Error(CONFLICT, "redefine", f"domain {job.instance.domain}", "something gave it another disk meanwhile", "Run again.")
    check_chain(hypervisor, job, job.spec)
    attach_seed_again(hypervisor, job, domain)
    kept = replace(job.mark, created_at=parsed.created_at, hold=parsed.hold, run=parsed.run)
    hypervisor.define(domain_xml.update(domain.xml or domain.live_xml, job.spec, mark.to_element(kept)))
    did("redefine", "domain")
    settle(hypervisor, job)


def settle(hypervisor, job):
    """Read back what was defined: where a guest runs or is saved, its overlay and seed win over the configured ones. The whole chain must be readable.

    Returns the DomainSpec as it is defined now.
    """
    domain = fresh(hypervisor, job)
    if domain is None or domain.xml is None:
        raise vanished(job)
    spec = domain_read.read_spec(domain.xml)
    if domain.guest_xml is not None:
        live = domain_read.read_spec(domain.guest_xml)
        if (live.overlay_path, live.seed_path) != (spec.overlay_path, spec.seed_path):
            spec = replace(job.spec, overlay_path=live.overlay_path, overlay_chain=live.overlay_chain, seed_path=live.seed_path)
            kept, started_with = mark.of_domain(domain), mark.of_tree(parse(domain.guest_xml))
            if isinstance(started_with, mark.Mark):
                kept = replace(kept, base=started_with.base, seed=started_with.seed)
            hypervisor.define(domain_xml.update(domain.xml, spec, mark.to_element(kept)))
    check_chain(hypervisor, job, spec)
    return spec


def check_chain(hypervisor, job, spec):
    """The overlay and all below it are there, readable and of the formats they should have: an unfinished one is never booted."""
    path = spec.overlay_path
    name = os.path.basename(path or "")
    volume = hypervisor.volume(job.pool, name)
    obj = f"overlay {name} of {job.instance.domain}"
    if volume is None or volume.path != path:
        raise Kvm2Error(CONFLICT, "use", obj, "its file has gone", REPLACE)
    try:
        header = qcow2.overlay_header(b"".join(hypervisor.download(job.pool, name, 0, qcow2.HEAD)), obj)
    except InvalidInput as error:
        raise Kvm2Error(TRANSIENT, "use", obj, error.cause, "It is still being made, or was left half-made; run again.") from error
    below = spec.overlay_chain or ((None, None),)
    for level, (path, volume_format) in enumerate(below, 1):
        if header.backing_file != path or header.backing_format not in (None, volume_format):
            raise Kvm2Error(
                CONFLICT, "use", obj, f"its backing file is {header.backing_file} ({header.backing_format}) and not {path} ({volume_format})",
                "Something changed it meanwhile; run again.")
        last = level == len(below)
        base = _below(hypervisor, job, obj, path, "base" if last else "backing file")
        if base.format != volume_format:
            raise Kvm2Error(
                TRANSIENT, "use", obj, f"its {'base' if last else 'backing file'} {path} is {base.format} and not {volume_format}",
                "Run kvm2_image, then kvm2_overlay and kvm2_domain again.")
        head = b"".join(hypervisor.download(base.pool, base.name, 0, 512 if last else qcow2.HEAD))
        if not last:
            header = qcow2.overlay_header(head, obj)


def _below(hypervisor, job, obj, path, what):
    """The model.Volume at the path of a file below an overlay: mostly in the instance's own pool, but an operator's may be in any."""
    folder, name = os.path.split(path or "")
    own = hypervisor.volume(job.pool, name)
    if own is not None and own.path == path:
        return own
    pools = [pool for pool in hypervisor.pools() if pool.active and pool.path and os.path.normpath(pool.path) == folder]
    for pool in pools:
        volume = hypervisor.volume(pool.name, name)
        if volume is not None and volume.path == path:
            return volume
    if not pools:
        raise Kvm2Error(
            PERMANENT, "use", obj, f"its {what} {path} is in no active pool, so it cannot be seen", "Start its pool, or define one for its folder.")
    raise Kvm2Error(
        TRANSIENT, "use", obj, f"its {what} {path} has gone from pool {', '.join(pool.name for pool in pools)}",
        "Run kvm2_image, then kvm2_overlay and kvm2_domain again." if what == "base" else REPLACE)


def attach_seed_again(hypervisor, job, domain):
    """Right before a definition: a seed that was detached comes back only as what is wanted, and young, so that no collector takes it meanwhile."""
    if job.seed is None or domain_read.read_spec(domain.xml or domain.live_xml).seed_path is not None:
        return
    check_seed_there(hypervisor, job)
    if domain.guest_xml is not None:
        # The guest has it.
        return
    clock.touch(hypervisor, job.pool, job.seed)
    if not seeds.holds(hypervisor, job.pool, job.seed, job.wanted):
        raise Kvm2Error(
            CONFLICT, "use", f"seed {job.seed} of {job.instance.domain}", "it was detached, and holds something else than what it was made from",
            "Set on_change to restart, and delete that volume: then it gets a new one.")


def check_seed_there(hypervisor, job):
    if job.seed is not None and hypervisor.volume(job.pool, job.seed) is None:
        raise Kvm2Error(
            CONFLICT, "use", f"seed {job.seed} of {job.instance.domain}", "it has gone", NEW_SEED)


def fresh(hypervisor, job):
    """The instance's domain as it is now, or None; a conflict where its name or UUID is somebody else's."""
    domain = hypervisor.domain(job.instance.uid)
    if domain is None or domain.name != job.instance.domain:
        # A name is one domain's alone, so it is looked up only where the UUID has not led to it.
        named = hypervisor.domain_by_name(job.instance.domain)
        return domain_of(job.instance, tuple(one for one in (domain, named) if one is not None))
    return domain_of(job.instance, (domain,))


def vanished(job):
    return Kvm2Error(CONFLICT, "create", f"domain {job.instance.domain}", "it was removed meanwhile", "Stop whatever else manages it, then run again.")


def _nobody_else(hypervisor, job):
    if fresh(hypervisor, job) is not None:
        raise Kvm2Error(CONFLICT, "create", f"domain {job.instance.domain}", "somebody else created it meanwhile", "Run again.")


def still_definable(hypervisor, job, look, wall_clock):
    """An unreferenced overlay may be gone before long once it is old: right before the define it is looked at again. look: looks.shared_look()"""
    obj = f"overlay {job.overlay} of {job.instance.domain}"
    volume = hypervisor.volume(job.pool, job.overlay)
    if volume is None:
        raise Kvm2Error(TRANSIENT, "use", obj, "it is not there", "Run kvm2_overlay, then this again.")
    users = look()[1].users_of(volume.path)
    if users:
        raise Kvm2Error(CONFLICT, "use", obj, "it is in use: " + "; ".join(str(user) for user in users), "Run kvm2_overlay, then this again.")
    age = clock.age(hypervisor, volume, wall_clock)
    if age is not None and age >= overlays.DEFINABLE:
        raise Kvm2Error(
            TRANSIENT, "use", obj, f"no domain uses it and it is {int(age / 60)} minutes old: the collector may be about to take it",
            "Run kvm2_overlay, then this again.")
