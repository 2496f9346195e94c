# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kvm2_overlay: one overlay per instance, on a published base."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Dict, Mapping, Optional, Tuple

from .._policy import domain_read, names, overlays, qcow2, references
from .._policy.errors import PERMANENT, TRANSIENT, InvalidInput, Kvm2Error
from .._policy.model import Domain, Inventory, Pool, Volume
from .._policy.plan import Action, Plan
from .._policy.units import parse_size
from . import bases, overlay_absent, overlay_making
from .instances import Instance, domain_of, is_being_deleted, parse_instances
from .pools import look_around, usable_pool
from .service import Service
from .undoing import after_undoing

_LARGEST_TABLE = 32 * 1024 ** 2


@dataclass(frozen=True)
class Target:
    """What was seen of one instance. domain is None also where its deletion was declared; problem is what keeps it from going on.

    candidates: its overlays that nothing references, where they matter.
    """

    instance: Instance
    domain: Optional[Domain] = None
    disk: Optional[str] = None
    volume: Optional[Volume] = None
    candidates: Tuple[overlays.Candidate, ...] = ()
    problem: Optional[Kvm2Error] = None


@dataclass(frozen=True)
class Seen:
    pool: Pool
    inventory: Inventory
    base: Optional[bases.Published]
    digests: Mapping[str, str]
    targets: Tuple[Target, ...]


class OverlayService(Service):
    def __init__(self, params, context):
        super().__init__(params, context)
        self.pool = params["pool"]
        self.fleet = params["fleet"]
        self.instances = parse_instances(self.fleet, params["instances"])
        self.base = params["base"]
        self.absent = params["state"] == "absent"
        self._decisions: Dict[str, overlays.Decision] = {}
        self.asked = {}
        if self.absent:
            return
        if names.parse_base(self.base) is None:
            raise InvalidInput(f"base {self.base!r}", "it is not the name of a base", "Pass image.base as kvm2_image returned it.")
        for instance in self.instances:
            text = instance.options.get("capacity") or params["capacity"]
            self.asked[instance.uid] = None if text is None else parse_size(text, f"capacity of {instance.name}")

    # -- observe

    def observe(self, hypervisor):
        if self.absent:
            return overlay_absent.observe(hypervisor, self)
        pool = usable_pool(hypervisor, self.pool, self.params["exclusive"])
        inventory, found = look_around(hypervisor)
        base = None if names.is_predicted(self.base) or not self.instances else bases.the_published(hypervisor, self.pool, self.base)
        key = names.parse_base(self.base).key
        in_pool = tuple(volume for volume in inventory.volumes if volume.pool == self.pool)
        digests = {
            str(one.name): one.record.digest for one in bases.published(hypervisor, self.pool, in_pool, lambda name: name.key == key)}
        targets = tuple(self._target(hypervisor, instance, inventory, in_pool, found, digests) for instance in self.instances)
        return Seen(pool, inventory, base, digests, targets)

    def _target(self, hypervisor, instance, inventory, in_pool, found, digests):
        try:
            domain = domain_of(instance, inventory.domains)
        except Kvm2Error as error:
            return Target(instance, problem=error)
        if domain is not None and not is_being_deleted(domain):
            disk = domain_read.overlay_path(domain.guest_xml or domain.xml)
            target = Target(instance, domain, disk, next((volume for volume in inventory.volumes if volume.path == disk), None))
            if not self._is_replaced(target, digests):
                return target
            unseen = references.unlisted((disk,), inventory) if disk else ()
            if target.volume is None and unseen:
                return Target(instance, problem=Kvm2Error(
                    PERMANENT, "replace", f"overlay of {instance.domain}", f"{disk} is in no active pool, so it cannot be seen", "Start its pool."))
        else:
            target = Target(instance)
        mine = [
            volume for volume in in_pool
            if instance.owns(names.parse_instance_volume(volume.name)) and volume.name.endswith(".qcow2") and not found.users_of(volume.path)]
        return replace(target, candidates=tuple(self._candidate(hypervisor, volume, digests) for volume in mine))

    def _is_replaced(self, target, digests):
        """Is the domain's overlay one that a replacement is prepared for: on another base, or its file gone?"""
        return self.params["replace"] and (
            target.volume is None or not overlays.same_base(os.path.basename(target.volume.backing_path or ""), self.base, digests))

    def _candidate(self, hypervisor, volume, digests):
        # Whose clock wrote the mtime is only known on the machine itself; elsewhere none is taken, and a new one is made.
        age = self.context.clock() - volume.mtime if hypervisor.is_local() and volume.mtime is not None else None
        written, complete = None, False
        try:
            obj = f"overlay {volume.name}"
            head = b"".join(hypervisor.download(self.pool, volume.name, 0, qcow2.HEAD))
            header = qcow2.overlay_header(head, obj, volume.physical)
            length = header.l1_entries * 8
            if length <= _LARGEST_TABLE:
                table = b"".join(hypervisor.download(self.pool, volume.name, header.l1_offset, length))
                complete = header.complete and not header.snapshots and len(table) == length
                written = not qcow2.l1_is_empty(table, header.l1_entries)
        except InvalidInput:
            complete = False
        except Kvm2Error as error:
            if error.kind != TRANSIENT and hypervisor.volume(self.pool, volume.name) is not None:
                raise
        right = overlays.same_base(os.path.basename(volume.backing_path or ""), self.base, digests)
        return overlays.Candidate(volume, age, written, complete, right)

    # -- plan

    def plan(self, seen):
        if self.absent:
            overlay_absent.report_problems(seen, self.context)
            return overlay_absent.plan(seen)
        actions = []
        for target in seen.targets:
            try:
                actions.extend(self._plan_one(seen, target))
            except Kvm2Error as error:
                self.context.failed(target.instance.name, error)
        return Plan(tuple(actions))

    def _plan_one(self, seen, target):
        if target.problem is not None:
            raise target.problem
        instance = target.instance
        obj = f"overlay of {instance.domain}"
        virtual_size = seen.base.record.virtual_size if seen.base else None
        capacity = overlays.wanted_capacity(self.asked[instance.uid], virtual_size, obj, self.base)
        if target.domain is not None and self._is_replaced(target, seen.digests):
            if self.asked[instance.uid] is None and target.volume is not None and capacity is not None:
                # Left out it means as large as it is: a disk never gets smaller by being replaced.
                capacity = max(capacity, target.volume.capacity)
            why = "its file has gone" if target.disk else "it was detached from the domain"
            if target.volume is not None:
                why = f"the one in use is on {os.path.basename(target.volume.backing_path or '') or 'no base'}"
            decision = overlays.choose(target.candidates, capacity, "new", obj)
            decision = replace(decision, why=f"a replacement: {why}")
        elif target.domain is not None:
            have = os.path.basename(target.volume.backing_path or "") if target.volume else None
            decision = overlays.keep(
                target.volume, target.disk, capacity, self.asked[instance.uid], self.base, have, seen.digests, obj, saved=target.domain.managed_save)
        else:
            decision = overlays.choose(target.candidates, capacity, self.params["on_stale"], obj)
        if decision.status == "created":
            name = str(names.InstanceVolumeName("overlay", self.fleet, instance.name, instance.uid, self.context.nonce()))
            decision = overlays.Decision("created", name, why=decision.why)
            yield Action(
                "create", "overlay", name, decision.why, instance.name,
                after={"base": self.base, "capacity": capacity}, payload={"target": target, "capacity": capacity})
        elif decision.grow_to is not None:
            yield Action(
                "grow", "overlay", decision.name, "it is smaller than asked for", instance.name, before={"capacity": target.volume.capacity},
                after={"capacity": decision.grow_to}, payload={"target": target, "capacity": decision.grow_to})
        self._decisions[instance.uid] = decision

    # -- results

    def predict(self, seen, plan):
        if self.absent:
            return {"overlays": overlay_absent.shown(seen, lambda name: plan.of(name).as_list())}
        return {"overlays": [self._shown(seen, target, plan) for target in seen.targets if target.instance.uid in self._decisions]}

    def _shown(self, seen, target, plan, volume=None):
        instance, decision = target.instance, self._decisions[target.instance.uid]
        actions = plan.of(instance.name)
        name = decision.name
        in_use = decision.status in ("present", "missing")
        path = target.disk if in_use else f"{seen.pool.path}/{name}"
        capacity = next((action.after["capacity"] for action in actions.actions), None)
        if capacity is None and (target.volume or volume):
            capacity = (target.volume or volume).capacity
        have = os.path.basename(target.volume.backing_path or "") if in_use and target.volume else self.base
        if decision.status == "taken":
            taken = next(one.volume for one in target.candidates if one.volume.name == name)
            path, capacity, have = taken.path, taken.capacity, os.path.basename(taken.backing_path)
        return {
            "name": instance.name, "uid": instance.uid, "overlay": name, "path": path, "base": have, "capacity": capacity,
            "status": decision.status, "drift": [drift.as_dict() for drift in decision.drift], "actions": actions.as_list()}

    # -- apply

    def apply(self, hypervisor, seen, plan):
        if self.absent:
            overlay_absent.apply(hypervisor, self, seen)
            return {"overlays": overlay_absent.shown(seen, self._done)}
        if not self.instances:
            return {"overlays": []}
        if seen.base is None:
            raise Kvm2Error(
                PERMANENT, "use", f"base {self.base}", "it is what check mode predicted and is not there", "Pass image.base of a real run.")
        # (1) the record was read in observe; what comes between may have retired it, so it is read again right here.
        if plan.actions and not bases.is_published(hypervisor, self.pool, seen.base.name):
            raise self._retired()
        created, failed = [], set()
        for action in plan.actions:
            try:
                if action.act == "create":
                    created.append((action, self._create(hypervisor, seen, action)))
                else:
                    self._grow(hypervisor, action)
                    self.context.did(action)
            except Kvm2Error as error:
                failed.add(action.instance)
                self.context.failed(action.instance, error)
        self._confirm(hypervisor, seen, created, failed)
        return {"overlays": [
            self._shown(seen, target, plan) for target in seen.targets
            if target.instance.uid in self._decisions and target.instance.name not in failed]}

    def _create(self, hypervisor, seen, action):
        return overlay_making.create(hypervisor, self.pool, action.name, seen.base, action.payload["capacity"])

    def _done(self, name):
        return [action.as_dict() for action in self.context.done if action.instance == name]

    def _grow(self, hypervisor, action):
        target, capacity = action.payload["target"], action.payload["capacity"]
        now = hypervisor.domain(target.domain.uuid)
        if now is not None and now.active:
            hypervisor.block_resize(now.uuid, target.disk, capacity)
        else:
            hypervisor.resize_volume(target.volume.pool, target.volume.name, capacity)

    def _confirm(self, hypervisor, seen, created, failed):
        """(3) of "create an overlay": where the record has gone, the overlays go too, and image and overlay are done again together."""
        taken = [target for target in seen.targets if getattr(self._decisions.get(target.instance.uid), "status", "") == "taken"]
        if not created and not taken:
            return
        if bases.is_published(hypervisor, self.pool, seen.base.name):
            for action, _volume in created:
                self.context.did(action)
            return
        for action, volume in created:
            failed.add(action.instance)
            self.context.failed(action.instance, after_undoing(
                self._retired(), lambda name=volume.name: hypervisor.delete_volume(self.pool, name)))
        for target in taken:
            failed.add(target.instance.name)
            self.context.failed(target.instance.name, self._retired())

    def _retired(self):
        return overlay_making.retired(self.base, self.pool)
