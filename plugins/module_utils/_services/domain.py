# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kvm2_domain: the domains of a set of instances, with their seeds."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Dict

from .._policy import addresses, domain_read, domain_xml, mark, names, overlays, specification
from .._policy.errors import CONFLICT, PERMANENT, QUOTA, TRANSIENT, InvalidInput, Kvm2Error
from .._policy.plan import Action, Plan
from .._policy.units import parse_duration
from . import converge, deletion, power, requirements
from .deletion import Doomed
from .domain_view import Seen, Target, address_of, drift_of, state_of
from .instances import domain_of, is_being_deleted, parse_instances
from .pools import look_around, usable_pool
from .service import Service

# A guest that is resumed into less would be paused again at once.
ROOM_TO_RESUME = 64 * 1024 ** 2


class DomainService(Service):
    def __init__(self, params, context):
        super().__init__(params, context)
        self.pool, self.fleet, self.state = params["pool"], params["fleet"], params["state"]
        self.instances = parse_instances(self.fleet, params["instances"])
        self.host = params["host"]
        if self.host and len(self.host) > 253:
            raise InvalidInput(f"host {self.host!r}", "it is longer than a host name can be", "Use the hypervisor's name in the fleet definition.")
        if params["on_change"] in ("restart", "replace"):
            raise InvalidInput(
                f"on_change {params['on_change']}", "this version neither restarts nor replaces an instance by itself",
                "Use redefine or report; for a new overlay or seed delete the instance and create it again.")
        self.stop_timeout = parse_duration(params["stop"]["timeout"], "stop.timeout")
        self.wait_timeout = parse_duration(params["wait"]["timeout"], "wait.timeout")
        self.wanted: Dict[str, specification.Wanted] = {}
        self.sources = {}
        if self.state != "absent":
            for instance in self.instances:
                wanted = self.wanted[instance.uid] = specification.wanted(specification.merge(params, instance.options), instance)
                kinds = {interface.kind for interface in wanted.interfaces}
                self.sources[instance.uid] = addresses.sources(params["wait"]["source"], kinds)
            specification.check_distinct_macs({instance.name: self.wanted[instance.uid] for instance in self.instances})
        self._jobs: Dict[str, converge.Job] = {}

    # -- observe

    def observe(self, hypervisor):
        pool = usable_pool(hypervisor, self.pool, self.params["exclusive"])
        inventory, found = look_around(hypervisor)
        targets = tuple(self._target(instance, inventory, found) for instance in self.instances)
        # Its free space as it is after the refresh.
        pool = hypervisor.pool(self.pool) or pool
        host = None
        to_define = [] if self.state == "absent" else [
            self.wanted[target.instance.uid] for target in targets if target.problem is None and self._is_to_be_defined(target)]
        if to_define:
            host = requirements.look(hypervisor, [requirements.require_of(wanted) for wanted in to_define])
            requirements.refuse_failed(host.checks, "prepare", f"hypervisor {hypervisor.uri}")
        known = {
            target.instance.uid: power.known_addresses(
                hypervisor, target.instance.uid, self._macs(target), self.sources.get(target.instance.uid, ("lease",)))
            for target in targets if target.there and target.domain.active}
        return Seen(pool, inventory, targets, known, host)

    def _is_to_be_defined(self, target):
        if not target.there:
            return True
        spec = self._present_spec(target)
        return self.params["on_change"] == "redefine" and any(
            one["needs"] == "redefine" for one in drift_of(target, spec, self.wanted[target.instance.uid], self.host))

    def _macs(self, target):
        wanted = self.wanted.get(target.instance.uid)
        return wanted.macs if wanted else domain_read.macs(target.domain.any_xml)

    def _target(self, instance, inventory, found):
        try:
            domain = domain_of(instance, inventory.domains)
            deleting = domain is not None and is_being_deleted(domain)
            if deleting or self.state == "absent":
                blocked = deletion.obstacles(inventory, found, _doomed(instance))
                if blocked:
                    raise Kvm2Error(CONFLICT, "delete", f"instance {instance.domain}", "; ".join(blocked), "Remove what uses it first; nothing was changed.")
            if domain is not None and not deleting:
                disk = domain_read.overlay_path(domain.live_xml or domain.xml)
                return Target(instance, domain, False, _by_path(inventory, disk), disk)
            return Target(instance, domain, deleting, self._free_overlay(instance, inventory, found))
        except Kvm2Error as error:
            return Target(instance, problem=error)

    def _free_overlay(self, instance, inventory, found):
        """The overlay that a new domain gets: the one given, else the instance's youngest unreferenced one; None where it is not there."""
        mine = [
            volume for volume in deletion.own_volumes(inventory, instance.uid)
            if volume.pool == self.pool and volume.name.endswith(".qcow2") and not found.users_of(volume.path)]
        given = instance.options.get("overlay")
        if given is not None:
            parsed = names.parse_instance_volume(given)
            if parsed is None or parsed.kind != "overlay" or not instance.owns(parsed):
                raise InvalidInput(
                    f"overlay {given!r} of instance {instance.name}", "it is not the name of an overlay of this instance",
                    "Pass overlay as kvm2_overlay returned it.")
            return next((volume for volume in mine if volume.name == given), None)
        young = [volume for volume in mine if volume.mtime is None or self.context.clock() - volume.mtime < overlays.DEFINABLE]
        return max(young, key=lambda volume: (volume.mtime or 0, volume.name), default=None)

    # -- plan

    def plan(self, seen):
        actions = []
        for target in seen.targets:
            try:
                if target.problem is not None:
                    raise target.problem
                actions.extend(self._plan_one(seen, target))
            except Kvm2Error as error:
                self.context.failed(target.instance.name, error)
        return Plan(tuple(actions))

    def _plan_one(self, seen, target):
        if self.state == "absent":
            yield from self._plan_deletion(seen, target, "state is absent")
        elif target.there:
            yield from self._plan_change(seen, target)
        else:
            if target.deleting:
                yield from self._plan_deletion(seen, target, "its deletion was declared and interrupted")
            yield from self._plan_creation(seen, target)

    def _plan_deletion(self, seen, target, why):
        instance = target.instance
        for act, what, name in deletion.predicted(seen.inventory, _doomed(instance), target.domain):
            yield Action(act, what, name, why, instance.name)

    def _plan_creation(self, seen, target):
        instance, wanted = target.instance, self.wanted[target.instance.uid]
        given = instance.options.get("overlay")
        # Where a deletion is finished first, the overlays that are there now go with it.
        overlay = None if target.deleting else target.overlay
        if overlay is None:
            self.context.warn(
                f"The overlay {given or ''} of instance {instance.domain} is not there yet.".replace("  ", " ") if not names.is_predicted(given or "")
                else f"The overlay of instance {instance.domain} is only predicted; its domain is predicted over it.")
        seed_name = str(names.InstanceVolumeName("seed", self.fleet, instance.name, instance.uid, self.context.nonce()))
        spec = self._spec(seen, instance, wanted, overlay, f"{seen.pool.path}/{seed_name}")
        self._jobs[instance.uid] = converge.Job(
            instance, wanted, spec, self._mark(instance, wanted, spec, self.context.clock()), self.pool, overlay.name if overlay else "", seed_name,
            wanted.autostart)
        yield Action("create", "seed", seed_name, instance=instance.name, after={"hash": wanted.seed_hash})
        yield Action(
            "define", "domain", instance.domain, "there is no such domain" if not target.deleting else "it is created anew", instance.name,
            after=domain_xml.shown(spec))
        if wanted.autostart:
            yield Action("enable", "autostart", instance.domain, instance=instance.name)
        if self.state == "running":
            yield Action("start", "domain", instance.domain, instance=instance.name)

    def _spec(self, seen, instance, wanted, overlay, seed_path):
        host = seen.host
        virt_type = host.choose_virt_type(wanted.virt_type)
        chain = ((overlay.backing_path, overlay.backing_format or "qcow2"),) if overlay is not None and overlay.backing_path else ()
        return domain_xml.DomainSpec(
            name=instance.domain, uuid=instance.uid, memory=wanted.memory, vcpus=wanted.vcpus,
            cpu_mode=wanted.cpu_mode or ("host-model" if virt_type == "kvm" else None), machine=wanted.machine or host.default_machine, arch=host.arch,
            firmware=wanted.firmware, virt_type=virt_type,
            overlay_path=overlay.path if overlay else f"{seen.pool.path}/{instance.options.get('overlay') or 'overlay-to-be-made'}",
            overlay_chain=chain, seed_path=seed_path, interfaces=wanted.interfaces)

    def _mark(self, instance, wanted, spec, created_at):
        base = os.path.basename(spec.overlay_chain[0][0]) if spec.overlay_chain else ""
        return mark.Mark(
            fleet=self.fleet, name=instance.name, uid=instance.uid, created_at=created_at, host=self.host, generation=domain_xml.generation(spec),
            base=base, seed=wanted.seed_hash)

    def _present_spec(self, target):
        """The wanted specification of an instance that is there: what it does not ask for stays as the domain has it."""
        instance, wanted = target.instance, self.wanted[target.instance.uid]
        have = domain_read.read_spec(target.domain.xml or target.domain.live_xml)
        virt_type = have.virt_type if wanted.virt_type == "auto" else wanted.virt_type
        chain = have.overlay_chain
        if target.overlay is not None and target.overlay.backing_path:
            chain = ((target.overlay.backing_path, target.overlay.backing_format or "qcow2"),)
        return domain_xml.DomainSpec(
            name=instance.domain, uuid=instance.uid, memory=wanted.memory, vcpus=wanted.vcpus,
            cpu_mode=wanted.cpu_mode or ("host-model" if virt_type == "kvm" else None), machine=wanted.machine or have.machine, arch=have.arch,
            firmware=wanted.firmware, virt_type=virt_type, overlay_path=target.disk, overlay_chain=chain, seed_path=have.seed_path,
            interfaces=wanted.interfaces)

    def _plan_change(self, seen, target):
        instance, wanted, domain = target.instance, self.wanted[target.instance.uid], target.domain
        spec = self._present_spec(target)
        parsed = mark.of_domain(domain)
        new_mark = self._mark(instance, wanted, spec, parsed.created_at)
        # A seed belongs to its domain for life: what the domain was made with stays in the mark until it is replaced.
        new_mark = replace(new_mark, seed=parsed.seed)
        self._jobs[instance.uid] = converge.Job(
            instance, wanted, spec, new_mark, target.overlay.pool if target.overlay is not None else self.pool, os.path.basename(target.disk or ""),
            os.path.basename(spec.seed_path) if spec.seed_path else None, wanted.autostart)
        drift = [one for one in drift_of(target, spec, self.wanted[target.instance.uid], self.host) if one["needs"] == "redefine" and not one.get("pending")]
        if not domain.persistent and self.params["on_change"] == "report" and self.state == "stopped":
            raise Kvm2Error(
                CONFLICT, "stop", f"domain {instance.domain}", "it runs but is not defined any more, so stopping it would lose it",
                "Set on_change to redefine to have it defined again first, or state to absent.")
        if drift and self.params["on_change"] == "redefine":
            yield Action(
                "redefine", "domain", instance.domain, "; ".join(f"{one['field']} differs" for one in drift), instance.name,
                before={one["field"]: one["have"] for one in drift}, after={one["field"]: one["want"] for one in drift})
        if domain.autostart != wanted.autostart and self.params["on_change"] == "redefine":
            yield Action(
                "enable" if wanted.autostart else "disable", "autostart", instance.domain, instance=instance.name,
                before={"autostart": domain.autostart}, after={"autostart": wanted.autostart})
        yield from self._plan_power(seen, target)

    def _plan_power(self, seen, target):
        domain, instance = target.domain, target.instance
        if self.state == "stopped" and domain.active:
            yield Action("stop", "domain", instance.domain, f"it is {domain.state}", instance.name)
        if self.state != "running":
            return
        if domain.state == "paused" and domain.reason == "ioerror" and not self._has_room(seen):
            raise Kvm2Error(
                QUOTA, "resume", f"domain {instance.domain}", f"it is paused by an I/O error and pool {self.pool} is full",
                "Free space in the pool, then run again.")
        if domain.state in ("paused", "pmsuspended"):
            yield Action("resume", "domain", instance.domain, f"it is {domain.state} ({domain.reason})", instance.name)
        elif not domain.active or domain.state == "crashed":
            if target.overlay is None:
                raise Kvm2Error(
                    PERMANENT, "start", f"domain {instance.domain}", f"its overlay {target.disk} has gone",
                    "Delete the instance (state: absent) and create it again.")
            yield Action("start", "domain", instance.domain, f"it is {domain.state}", instance.name)

    @staticmethod
    def _has_room(seen):
        return seen.pool.available >= ROOM_TO_RESUME

    # -- results

    def predict(self, seen, plan):
        return {"instances": [self._shown(target, plan, seen, target.domain, predicted=True) for target in seen.targets if self._went_well(target)]}

    def _went_well(self, target):
        return target.instance.name not in {item for item, error in self.context.failures}

    def _shown(self, target, plan, seen, domain, predicted=False, found=None):
        instance = target.instance
        known = seen.addresses.get(instance.uid, ()) if found is None else found
        drift, overlay, seed_name, base, macs = [], None, None, None, []
        job = self._jobs.get(instance.uid)
        if job is not None:
            overlay, seed_name, macs = job.overlay or instance.options.get("overlay"), job.seed, list(job.wanted.macs)
            if domain is not None and not predicted:
                defined = domain_read.read_spec(domain.any_xml)
                overlay, seed_name = os.path.basename(defined.overlay_path or "") or None, os.path.basename(defined.seed_path or "") or None
            base = os.path.basename(job.spec.overlay_chain[0][0]) if job.spec.overlay_chain else None
            if domain is not None and target.there:
                drift = drift_of(
                    Target(instance, domain, False, target.overlay, target.disk), job.spec, job.wanted, self.host)
        state = self._predicted_state(target, plan, known) if predicted else state_of(domain, known)
        actions = plan.of(instance.name).as_list() if predicted else [
            action.as_dict() for action in self.context.done if action.instance == instance.name]
        if domain is None and not predicted:
            seed_name = None
        return {
            "name": instance.name, "uid": instance.uid, "domain": instance.domain, "state": state,
            "reason": domain.reason if domain is not None else "", "addresses": [address_of(entry) for entry in known],
            "primary_address": known[0].address if known else None, "mac": macs[0] if macs else None, "macs": macs, "overlay": overlay,
            "seed": seed_name, "base": base, "drift": drift, "actions": actions}

    def _predicted_state(self, target, plan, known):
        if self.state == "absent":
            return "absent"
        if not target.there:
            return "provisioning" if self.state == "running" else "stopped"
        acts = {action.act for action in plan.of(target.instance.name).actions}
        if "stop" in acts:
            return "stopped"
        return "running" if acts & {"start", "resume"} else state_of(target.domain, known)

    # -- apply

    def apply(self, hypervisor, seen, plan):
        good = [target for target in seen.targets if self._went_well(target)]
        doomed = [target for target in good if self.state == "absent" or target.deleting]
        self._delete(hypervisor, plan, doomed)
        if self.state == "absent":
            return self._result(hypervisor, seen, plan)
        for target in good:
            if self._went_well(target):
                self.context.guard(target.instance.name, lambda one=target: self._converge(hypervisor, plan, one))
        self._stop(hypervisor, plan, good)
        for target in good:
            if self._went_well(target):
                self.context.guard(target.instance.name, lambda one=target: self._power_on(hypervisor, plan, one))
        self._wait(hypervisor, good)
        return self._result(hypervisor, seen, plan)

    def _did(self, plan, target):
        def did(act, what):
            for action in plan.of(target.instance.name).actions:
                if (action.act, action.what) == (act, what):
                    self.context.did(action)
                    return
        return did

    def _delete(self, hypervisor, plan, targets):
        outcome = deletion.delete_all(
            hypervisor, [_doomed(target.instance) for target in targets], self.params["stop"]["mode"], self.stop_timeout, self.context.clock)
        for target in targets:
            done, error = outcome[target.instance.uid]
            for act, what, name in done:
                self.context.did(Action(act, what, name, instance=target.instance.name))
            if error is not None:
                self.context.failed(target.instance.name, error)

    def _converge(self, hypervisor, plan, target):
        job, did = self._jobs[target.instance.uid], self._did(plan, target)
        acts = {(action.act, action.what) for action in plan.of(target.instance.name).actions}
        if not target.there:
            if not job.overlay:
                given = target.instance.options.get("overlay")
                raise Kvm2Error(
                    TRANSIENT, "create", f"domain {target.instance.domain}", f"its overlay {given or ''} is not there".replace("  ", " "),
                    "Run kvm2_overlay first, and pass on the overlay it returns.")
            converge.create(hypervisor, job, did, self.context.clock)
        elif ("redefine", "domain") in acts:
            converge.redefine(hypervisor, job, did)
        for act, on in (("enable", True), ("disable", False)):
            if (act, "autostart") in acts:
                hypervisor.set_autostart(job.instance.uid, on)
                did(act, "autostart")

    def _stop(self, hypervisor, plan, targets):
        stopping = {
            target.instance.uid: target for target in targets
            if self._went_well(target) and target.there and any(action.act == "stop" for action in plan.of(target.instance.name).actions)}
        outcome = power.stop_all(
            hypervisor, {uid: target.instance.domain for uid, target in stopping.items()}, self.params["stop"]["mode"], self.stop_timeout)
        for uid, error in outcome.items():
            if error is not None:
                self.context.failed(stopping[uid].instance.name, error)
            else:
                self._did(plan, stopping[uid])("stop", "domain")

    def _power_on(self, hypervisor, plan, target):
        job, did = self._jobs[target.instance.uid], self._did(plan, target)
        acts = {action.act for action in plan.of(target.instance.name).actions if action.what == "domain"}
        if "start" in acts:
            converge.check_chain(hypervisor, job, job.spec)
            converge.check_seed_there(hypervisor, job)
            if target.there and target.domain.state == "crashed" and target.domain.active:
                hypervisor.destroy(target.instance.uid)
            hypervisor.start(target.instance.uid)
            did("start", "domain")
        if "resume" in acts:
            hypervisor.resume(target.instance.uid)
            did("resume", "domain")
        if acts & {"define", "redefine", "start", "resume"}:
            converge.look_back(hypervisor, job, self.state == "running")

    def _wait(self, hypervisor, targets):
        what = self.params["wait"]["for"]
        if self.state != "running" or what == "none":
            return
        guests = {
            target.instance.uid: (target.instance.domain, self.wanted[target.instance.uid].macs, self.sources[target.instance.uid])
            for target in targets if self._went_well(target)}
        outcome = power.wait_all(hypervisor, guests, what, self.wait_timeout, self.params["wait"]["family"])
        for target in targets:
            error = outcome.get(target.instance.uid)
            if error is not None:
                self.context.failed(target.instance.name, error)

    def _result(self, hypervisor, seen, plan):
        shown = []
        for target in seen.targets:
            domain = hypervisor.domain(target.instance.uid) if target.problem is None else None
            found = ()
            if domain is not None and domain.active and target.instance.uid in self.wanted:
                found = power.known_addresses(
                    hypervisor, domain.uuid, self.wanted[target.instance.uid].macs, self.sources[target.instance.uid])
            if target.problem is None:
                shown.append(self._shown(target, plan, seen, domain, found=found))
        return {"instances": shown}


def _doomed(instance):
    return Doomed(instance.fleet, instance.name, instance.uid)


def _by_path(inventory, path):
    return next((volume for volume in inventory.volumes if volume.path == path), None)
