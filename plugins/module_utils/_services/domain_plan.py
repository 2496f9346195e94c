# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kvm2_domain's plan: from what was seen of the instances to what has to be done, in order."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Dict, Mapping, Optional

from .._policy import domain_read, domain_xml, mark
from .._policy.errors import CONFLICT, PERMANENT, QUOTA, Kvm2Error
from .._policy.plan import Action, Plan
from . import belongings, change, converge
from .belongings import Doomed
from .domain_view import drift_of, is_detached, no_overlay, no_seed, predicted_overlay, waiting
from .domain_wanted import DomainWanted, ends_in_a_base

# A guest that is resumed into less would be paused again at once.
ROOM_TO_RESUME = 64 * 1024 ** 2


class DomainPlan(DomainWanted):
    """The plan. _jobs and _changes, by uid, are what its apply goes by."""

    def __init__(self, params, context):
        super().__init__(params, context)
        self._jobs: Dict[str, converge.Job] = {}
        self._changes: Dict[str, change.Change] = {}
        # By uid, of the guests that this run has started: waiting.left_leases() of before.
        self._former_leases: Dict[str, Mapping] = {}
        self._mac_owners: Optional[Dict[str, str]] = None

    def plan(self, seen):
        actions = []
        for target in seen.targets:
            try:
                if target.problem is not None:
                    raise target.problem
                if self.state != "absent" and target.domain is not None:
                    # By itself, since a hold is set where it is what refuses all else, too.
                    actions.extend(self._plan_hold(target))
                actions.extend(tuple(self._plan_one(seen, target)))
            except Kvm2Error as error:
                self.context.failed(target.instance.name, error)
        return Plan(tuple(actions))

    def _check_macs(self, seen, target):
        """Two guests with one MAC address would take each other's. What the instance has already is left as it is."""
        have = set() if target.domain is None else {mac for text in target.domain.xmls for mac in domain_read.macs(text)}
        new = [mac for mac in self.wanted[target.instance.uid].all_macs if mac not in have]
        if new and self._mac_owners is None:
            self._mac_owners = self._macs_that_stay(seen)
        for mac in new:
            if mac in self._mac_owners:
                raise Kvm2Error(
                    CONFLICT, "define", f"instance {target.instance.domain}", f"its MAC address {mac} is that of domain {self._mac_owners[mac]} too",
                    "Give one of them another one (mac of its entry in networks), or remove the other domain.")

    def _macs_that_stay(self, seen):
        """{MAC address: name of a domain that has it and keeps it}. What the instances of this call are to have is checked where that is read."""
        changed = {target.instance.uid: target for target in seen.targets if target.problem is None}
        owners = {}
        for domain in seen.inventory.domains:
            texts, target = domain.xmls, changed.get(domain.uuid)
            if target is not None and (target.deleting or self.on_change in ("restart", "replace")):
                continue
            if target is not None and self.on_change == "redefine":
                # Its guest goes on with what it was started with.
                texts = [text for text in (domain.live_xml, domain.saved_xml) if text]
            owners.update({mac: domain.name for text in texts for mac in domain_read.macs(text)})
        return owners

    def _plan_one(self, seen, target):
        if self.state == "absent":
            yield from self._plan_deletion(seen, target, "state is absent")
            return
        if not target.there or self.on_change != "report":
            self._check_macs(seen, target)
        if target.there:
            yield from self._plan_change(seen, target)
            return
        if target.deleting:
            yield from self._plan_deletion(seen, target, "its deletion was declared and interrupted")
        yield from self._plan_creation(seen, target)

    def _plan_deletion(self, seen, target, why):
        instance, held = target.instance, self._hold_of(target)
        if held:
            raise change.on_hold("delete", instance, held)
        for act, what, name in belongings.predicted(seen.inventory, self._doomed(target), target.domain, seen.removes_logs):
            yield Action(act, what, name, why, instance.name)

    def _doomed(self, target):
        """A deletion that is finished before the instance is created anew leaves the overlay that was made for it meanwhile."""
        instance, finish = target.instance, target.deleting and self.state != "absent"
        keep = (target.overlay.name,) if finish and target.overlay is not None else ()
        return Doomed(instance.fleet, instance.name, instance.uid, finish=finish, keep=keep)

    # -- hold

    def _hold_of(self, target):
        """The hold as it will be once the plan's first step is done."""
        asked = self.holds.get(target.instance.uid)
        if asked is not None or target.domain is None:
            return asked or ""
        return mark.of_domain(target.domain).hold

    def _plan_hold(self, target):
        asked, have = self.holds[target.instance.uid], mark.of_domain(target.domain).hold
        if asked is not None and asked != have:
            yield Action(
                "hold" if asked else "release", "domain", target.instance.domain, instance=target.instance.name, before={"hold": have},
                after={"hold": asked})

    # -- creation

    def _plan_creation(self, seen, target):
        instance, wanted, overlay = target.instance, self.wanted[target.instance.uid], target.overlay
        given = instance.options.get("overlay")
        if overlay is None:
            self.context.warn(
                f"The overlay {given or ''} of instance {instance.domain} is not there yet.".replace("  ", " ") if not predicted_overlay(target)
                else f"The overlay of instance {instance.domain} is only predicted; its domain is predicted over it.")
        seed_name = self._new_name("seed", instance)
        spec = self._spec(seen, instance, wanted, overlay, f"{seen.pool.path}/{seed_name}")
        new_mark = replace(self._mark(instance, wanted, spec, self.context.clock()), hold=self.holds[instance.uid] or "")
        self._jobs[instance.uid] = converge.Job(
            instance, wanted, spec, new_mark, self.pool, overlay.name if overlay else "", seed_name, wanted.autostart)
        yield Action("create", "seed", seed_name, instance=instance.name, after={"hash": wanted.seed_hash})
        yield Action(
            "define", "domain", instance.domain, "there is no such domain" if not target.deleting else "it is created anew", instance.name,
            after=domain_xml.shown(spec))
        if wanted.autostart:
            yield Action("enable", "autostart", instance.domain, instance=instance.name)
        if self.state == "running":
            yield Action("start", "domain", instance.domain, instance=instance.name)

    # -- change

    def _plan_change(self, seen, target):
        instance, wanted, domain = target.instance, self.wanted[target.instance.uid], target.domain
        spec = self._present_spec(target)
        parsed = mark.of_domain(domain)
        # A seed belongs to its domain for life: what the domain was made with stays in the mark until it is replaced.
        new_mark = replace(self._mark(instance, wanted, spec, parsed.created_at), seed=parsed.seed)
        job = self._jobs[instance.uid] = converge.Job(
            instance, wanted, spec, new_mark, target.overlay.pool if target.overlay is not None else self.pool, os.path.basename(target.disk or ""),
            os.path.basename(spec.seed_path) if spec.seed_path else None, wanted.autostart)
        drift = drift_of(target, spec, wanted, self.host)
        redefined = [one for one in drift if one["needs"] == "redefine" and not one["pending"]]
        if not domain.persistent and self.on_change == "report" and self._ends(domain):
            raise Kvm2Error(
                CONFLICT, "stop", f"domain {instance.domain}", "it is there but not defined any more, so stopping it would lose it",
                "Set on_change to redefine to have it defined again first, or state to absent.")
        autostart = ()
        if self.on_change != "report" and domain.autostart != wanted.autostart:
            # After a definition: what runs undefined has no autostart.
            autostart = (Action(
                "enable" if wanted.autostart else "disable", "autostart", instance.domain, instance=instance.name,
                before={"autostart": domain.autostart}, after={"autostart": wanted.autostart}),)
        replaced = self.on_change == "replace" and any(one["needs"] == "replace" for one in drift)
        reseeded = self.on_change in ("restart", "replace") and any(one["field"] == "seed" and one["needs"] == "restart" for one in drift)
        restarted = self.on_change in ("restart", "replace") and waiting(domain, spec)
        if replaced or reseeded or restarted:
            yield from self._plan_roll(seen, target, job, drift, replaced or (reseeded and self.on_change == "replace"), replaced or reseeded)
            yield from autostart
            return
        if redefined and self.on_change != "report":
            if target.overlay is None:
                raise no_overlay(target, CONFLICT, "redefine")
            yield self._redefinition(target, redefined, "redefine")
        yield from autostart
        yield from self._plan_power(seen, target)

    @staticmethod
    def _redefinition(target, drift, act):
        return Action(
            act, "domain", target.instance.domain, "; ".join(dict.fromkeys(f"{one['field']} differs" for one in drift)), target.instance.name,
            before={one["field"]: one["have"] for one in drift}, after={one["field"]: one["want"] for one in drift})

    def _plan_roll(self, seen, target, job, drift, replaced, reseeded):
        """A restart or a replacement: with an overlay and a seed of its own where they are new."""
        instance, domain, wanted = target.instance, target.domain, self.wanted[target.instance.uid]
        act = "replace" if replaced else "restart"
        held = self._hold_of(target)
        if held:
            raise change.on_hold(act, instance, held)
        if target.overlay is None and not replaced:
            raise no_overlay(target, CONFLICT, act)
        starts = self.state == "running" or (self.state == "defined" and target.has_guest)
        if starts:
            self._check_room(seen, domain)
        new, base = job, None
        if replaced:
            new, base = self._replaced(seen, target, job)
            if base is not None:
                yield Action(
                    "create", "overlay", new.overlay, "a replacement", instance.name, after={"base": base, "capacity": target.overlay.capacity})
        if reseeded:
            seed = self._new_name("seed", instance)
            path = f"{seen.pool.path}/{seed}" if replaced else f"{os.path.dirname(target.disk)}/{seed}"
            new = replace(new, seed=seed, spec=replace(new.spec, seed_path=path), mark=replace(new.mark, seed=wanted.seed_hash))
            yield Action("create", "seed", seed, instance=instance.name, after={"hash": wanted.seed_hash})
        new = replace(new, mark=replace(new.mark, generation=domain_xml.generation(new.spec)))
        defining = [one for one in drift if not one["pending"]]
        self._jobs[instance.uid] = new
        self._changes[instance.uid] = change.Change(
            job=new, present=job, act=act, disks=change.disks_of(domain), defines=bool(defining), new_overlay=replaced, new_seed=reseeded, base=base,
            capacity=target.overlay.capacity if target.overlay is not None else 0, left=self._left(seen, target, replaced, reseeded), starts=starts)
        if domain.active:
            why = ", ".join(dict.fromkeys(f"{one['field']} waits for it" for one in drift))
            yield Action("stop", "domain", instance.domain, why, instance.name)
        if domain.managed_save:
            yield Action("drop", "managed save", instance.domain, "its saved guest is not to go on", instance.name)
        if defining:
            yield self._redefinition(target, defining, "replace" if replaced else "redefine")
        if starts:
            yield Action("start", "domain", instance.domain, instance=instance.name)

    def _replaced(self, seen, target, job):
        """(Job over the new overlay, the base to make it on or None where it was given)."""
        instance = target.instance
        if target.given:
            overlay, name = target.replacement, target.given
            spec = replace(job.spec, overlay_path=overlay.path if overlay else f"{seen.pool.path}/{name}", overlay_chain=self._chain(overlay))
            if overlay is None and not predicted_overlay(target):
                self.context.warn(f"The overlay {name} of instance {instance.domain} is not there.")
        elif target.overlay is None:
            raise no_overlay(target, PERMANENT, "replace")
        elif target.overlay.pool != self.pool or not ends_in_a_base(job.spec.overlay_chain):
            raise Kvm2Error(
                PERMANENT, "replace", f"instance {instance.domain}", "its overlay has no base in this pool",
                "Run kvm2_overlay with replace: true, then this with the overlay it returns.")
        else:
            name = self._new_name("overlay", instance)
            spec = replace(job.spec, overlay_path=f"{seen.pool.path}/{name}", overlay_chain=job.spec.overlay_chain[-1:])
        new_base = os.path.basename(spec.overlay_chain[-1][0]) if spec.overlay_chain else ""
        base = None if target.given else new_base
        new_mark = replace(job.mark, base=new_base)
        return replace(job, spec=spec, pool=self.pool, overlay=name, mark=new_mark), base

    @staticmethod
    def _left(seen, target, replaced, reseeded):
        """The volumes that lose their domain."""
        losing = set()
        for text in target.domain.xmls:
            spec = domain_read.read_spec(text)
            losing |= ({spec.overlay_path} if replaced else set()) | ({spec.seed_path} if reseeded else set())
        return tuple((volume.pool, volume.name) for volume in seen.inventory.volumes if volume.path in losing)

    # -- power

    def _ends(self, domain):
        """Does what runs, or has crashed, have to go before the wanted state is reached?"""
        return domain.active and (self.state == "stopped" or (self.state == "running" and domain.state == "crashed"))

    def _plan_power(self, seen, target):
        domain, instance = target.domain, target.instance
        if self.state == "stopped" and domain.active:
            yield Action("stop", "domain", instance.domain, f"it is {domain.state}", instance.name)
        if self.state != "running":
            return
        self._check_room(seen, domain)
        if domain.state in ("paused", "pmsuspended"):
            yield Action("resume", "domain", instance.domain, f"it is {domain.state} ({domain.reason})", instance.name)
        elif not domain.active or domain.state == "crashed":
            if target.overlay is None:
                raise no_overlay(target, PERMANENT, "start")
            self._check_seed(target)
            if domain.managed_save:
                self._check_save(target)
            yield Action("start", "domain", instance.domain, f"it is {domain.state}", instance.name)

    def _check_room(self, seen, domain):
        if domain.state == "paused" and domain.reason == "ioerror" and seen.pool.available < ROOM_TO_RESUME:
            raise Kvm2Error(
                QUOTA, "resume", f"domain {domain.name}", f"it is paused by an I/O error and pool {self.pool} is full",
                "Free space in the pool, then run again.")

    def _check_seed(self, target):
        """Without its seed a guest takes itself for another one."""
        domain, comes_back = target.domain, target.seed_detached is not None
        if target.seed_gone:
            raise no_seed(target)
        if mark.of_domain(domain).seed and is_detached(domain, "seed") and not (comes_back and self.on_change != "report"):
            raise Kvm2Error(
                CONFLICT, "start", f"domain {domain.name}", "its seed was detached from its definition",
                "Set on_change to redefine, which attaches it again." if comes_back else "Set on_change to restart: then it gets a new one.")

    @staticmethod
    def _check_save(target):
        """A saved guest goes on over the disks that it was saved with, or corrupts the others."""
        domain = target.domain
        if domain.saved_xml is None:
            return
        saved, defined = (domain_read.read_spec(text) for text in (domain.saved_xml, domain.xml))
        # _check_seed has seen that one which is missing comes back before.
        if (saved.overlay_path, saved.seed_path) != (defined.overlay_path, defined.seed_path or target.seed_detached):
            raise Kvm2Error(
                CONFLICT, "start", f"domain {domain.name}",
                f"its managed save has the disks {saved.overlay_path} and {saved.seed_path}, and its definition {defined.overlay_path} and "
                f"{defined.seed_path}", f"Something redefined it by hand. Drop the saved memory: virsh managedsave-remove {domain.name}; then run again.")
