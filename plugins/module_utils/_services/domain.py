# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kvm2_domain: the domains of a set of instances, with their seeds."""

from __future__ import annotations

import os
import time
from dataclasses import replace

from .._host import filesystem
from .._policy import addresses, domain_read, mark, names, overlays, references
from .._policy.errors import CONFLICT, PERMANENT, TRANSIENT, InvalidInput, Kvm2Error
from .._policy.plan import Action
from . import change, converge, deletion, holds, power, requirements, waiting
from . import clock as pool_clock
from .deletion import Doomed
from .domain_plan import DomainPlan
from .domain_view import Seen, Target, address_of, domain_shown, drift_of, state_of
from .instances import domain_of, is_being_deleted
from .pools import look_around, sees_pool, usable_pool

# An overlay may be defined over while it is under half an hour old: those that wait for their turn are touched this often, in seconds.
KEPT_YOUNG = 300


class DomainService(DomainPlan):
    # -- observe

    def observe(self, hypervisor):
        pool = usable_pool(hypervisor, self.pool, self.params["exclusive"])
        inventory, found = look_around(hypervisor)
        targets = tuple(self._target(hypervisor, instance, inventory, found) for instance in self.instances)
        # Its free space as it is after the refresh.
        pool = hypervisor.pool(self.pool) or pool
        if any(_lacks_room(target.domain) for target in targets):
            pool = self._full(hypervisor, pool, targets)
        host = None
        to_define = [] if self.state == "absent" else [
            self.wanted[target.instance.uid] for target in targets if target.problem is None and self._is_to_be_defined(target)]
        if to_define:
            host = requirements.look(hypervisor, [requirements.require_of(wanted) for wanted in to_define])
            requirements.refuse_failed(host.checks, "prepare", f"hypervisor {hypervisor.uri}")
        known = {
            target.instance.uid: waiting.known_addresses(
                hypervisor, target.instance.uid, self._macs(target), self.sources.get(target.instance.uid, ("lease",)), self.params["wait"]["family"])
            for target in targets if target.there and target.domain.active}
        return Seen(pool, inventory, targets, known, host, hypervisor.removes_console_logs())

    def _full(self, hypervisor, pool, targets):
        """The pool with what QEMU can have of its free space, which is less than libvirt tells where some is kept for root."""
        if self.state == "defined":
            for target in targets:
                if _lacks_room(target.domain):
                    self.context.warn(
                        f"Instance {target.instance.domain} is paused by an I/O error, mostly a full disk: free space in its pool, then ask for "
                        "state running, which lets it go on.")
        room = filesystem.statistics(pool.path) if sees_pool(hypervisor, pool) else None
        return pool if room is None else replace(pool, available=min(pool.available, room.available))

    def _is_to_be_defined(self, target):
        if not target.there:
            return True
        drift = drift_of(target, self._present_spec(target), self.wanted[target.instance.uid], self.host)
        if self.on_change in ("restart", "replace"):
            # What it is then started as.
            return bool(drift)
        return self.on_change == "redefine" and any(one["needs"] == "redefine" for one in drift)

    def _macs(self, target):
        wanted = self.wanted.get(target.instance.uid)
        return wanted.macs if wanted else domain_read.macs(target.domain.any_xml)

    def _target(self, hypervisor, instance, inventory, found):
        try:
            domain = domain_of(instance, inventory.domains)
            deleting = domain is not None and is_being_deleted(domain)
            if deleting or self.state == "absent":
                blocked = deletion.obstacles(inventory, found, Doomed(instance.fleet, instance.name, instance.uid))
                if blocked:
                    raise Kvm2Error(CONFLICT, "delete", f"instance {instance.domain}", "; ".join(blocked), "Remove what uses it first; nothing was changed.")
                # Read by itself it tells of snapshots and checkpoints too, which go with it.
                domain = None if domain is None else hypervisor.domain(domain.uuid) or domain
            elif domain is not None:
                return self._present(instance, domain, inventory, found)
            return Target(instance, domain, deleting, self._free_overlay(instance, inventory, found))
        except Kvm2Error as error:
            return Target(instance, problem=error)

    def _present(self, instance, domain, inventory, found):
        disk = domain_read.overlay_path(domain.guest_xml or domain.xml)
        seed = domain_read.read_spec(domain.xml or domain.live_xml).seed_path
        target = Target(
            instance, domain, False, _by_path(inventory, disk), disk, seed_gone=seed if seed and _by_path(inventory, seed) is None else None)
        if self.on_change == "replace":
            unseen = references.unlisted([path for path in (disk, seed) if path], inventory)
            if unseen:
                raise Kvm2Error(
                    PERMANENT, "replace", f"instance {instance.domain}", f"{', '.join(unseen)} is in no active pool, so it cannot be seen", "Start its pool.")
            if target.given:
                target = replace(target, replacement=self._free_overlay(instance, inventory, found))
        return target

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
                drift = self._drift_now(target, domain, job)
        state = self._predicted_state(target, plan, known) if predicted else state_of(domain, known)
        actions = plan.of(instance.name).as_list() if predicted else [
            action.as_dict() for action in self.context.done if action.instance == instance.name]
        if domain is None and not predicted:
            seed_name = None
        return {
            "name": instance.name, "uid": instance.uid, "domain": instance.domain, "state": state,
            "reason": domain.reason if domain is not None else "", "addresses": [address_of(entry) for entry in known],
            "primary_address": self._primary(known, macs), "mac": macs[0] if macs else None, "macs": macs, "overlay": overlay,
            "seed": seed_name, "base": base, "hold": self._hold_shown(target, domain, predicted), "drift": drift, "actions": actions,
            **self._domain_shown(target, plan, domain, predicted)}

    def _domain_shown(self, target, plan, domain, predicted):
        if not predicted:
            return domain_shown(domain, None)
        acts = {action.act for action in plan.of(target.instance.name).actions}
        there = self.state != "absent" and target.there
        return domain_shown(domain if there else None, self._jobs.get(target.instance.uid) if acts & {"define", "redefine", "replace"} else None)

    def _primary(self, known, macs):
        """The first address of the wanted family."""
        found = addresses.usable(known, macs, self.params["wait"]["family"])
        return found[0].address if found else None

    def _hold_shown(self, target, domain, predicted):
        if domain is None:
            return self.holds.get(target.instance.uid) or "" if predicted and self.state != "absent" else ""
        parsed = mark.of_domain(domain)
        return self._hold_of(target) if predicted else getattr(parsed, "hold", "")

    def _drift_now(self, target, domain, job):
        """How the domain differs as it is now, which a restart or a replacement may have changed."""
        moved, instance = self._changes.get(target.instance.uid), target.instance
        disk, overlay, seed_gone = domain_read.overlay_path(domain.guest_xml or domain.xml), target.overlay, target.seed_gone
        if moved is not None and change.disks_of(domain) <= moved.disks and not {disk, moved.job.spec.seed_path} <= change.disks_of(domain):
            job = moved.present
        elif moved is not None:
            # What was given was used, or had to be made anew for the seed's sake.
            instance = replace(instance, options={**instance.options, "overlay": None})
            overlay, seed_gone = target.replacement or target.overlay, None if moved.new_seed else seed_gone
        found = replace(target, instance=instance, domain=domain, overlay=overlay, disk=disk, seed_gone=seed_gone)
        return drift_of(found, job.spec, job.wanted, self.host)

    def _predicted_state(self, target, plan, known):
        if self.state == "absent":
            return "absent"
        if not target.there:
            return "provisioning" if self.state == "running" else "stopped"
        moved = self._changes.get(target.instance.uid)
        if moved is not None:
            return "provisioning" if moved.starts else "stopped"
        acts = {action.act for action in plan.of(target.instance.name).actions}
        if "stop" in acts:
            return "stopped"
        return "running" if acts & {"start", "resume"} else state_of(target.domain, known)

    # -- apply

    def apply(self, hypervisor, seen, plan):
        for target in seen.targets:
            # Also where a refusal keeps the instance from all else: a hold is set first and lifted first.
            if any(action.act in ("hold", "release") for action in plan.of(target.instance.name).actions):
                self.context.guard(target.instance.name, lambda one=target: self._hold(hypervisor, plan, one))
        good = [target for target in seen.targets if self._went_well(target)]
        before = len(self.context.failures)
        doomed = [target for target in good if self.state == "absent" or target.deleting]
        self._delete(hypervisor, plan, doomed)
        if self.state == "absent":
            return self._result(hypervisor, seen, plan)
        rolled = [target for target in good if target.instance.uid in self._changes]
        others = [target for target in good if target.instance.uid not in self._changes]
        self._each(others, lambda target: self._converge(hypervisor, plan, target))
        self._stop(hypervisor, plan, others)
        self._each(others, lambda target: self._power_on(hypervisor, plan, target))
        self._wait(hypervisor, others)
        self._roll(hypervisor, plan, rolled, before)
        return self._result(hypervisor, seen, plan)

    def _each(self, targets, step):
        """Do a step for each of the targets that nothing has failed for so far."""
        for target in targets:
            if self._went_well(target):
                self.context.guard(target.instance.name, lambda one=target: step(one))

    def _hold(self, hypervisor, plan, target):
        holds.put(hypervisor, target.instance, self.holds[target.instance.uid])
        did = self._did(plan, target)
        did("hold", "domain")
        did("release", "domain")

    def _roll(self, hypervisor, plan, targets, before):
        """Restarts and replacements, some at a time; after a failure of anything the rest is left as it is."""
        kept_young = time.monotonic()
        for begin in range(0, len(targets), self.at_once):
            waiting = targets[begin:]
            if len(self.context.failures) > before:
                self._leave(hypervisor, waiting)
                return
            if time.monotonic() - kept_young > KEPT_YOUNG:
                kept_young = time.monotonic()
                self._each(waiting, lambda target: self._keep_young(hypervisor, target))
            self._change(hypervisor, plan, waiting[:self.at_once])

    def _keep_young(self, hypervisor, target):
        """An overlay that waits long for its turn would get too old to be used: this run still holds it, so no collector may take it."""
        moved = self._changes[target.instance.uid]
        if moved.new_overlay and moved.base is None:
            converge.still_definable(hypervisor, moved.job, self.context.clock)
            pool_clock.touch(hypervisor, moved.job.pool, moved.job.overlay)

    def _change(self, hypervisor, plan, targets):
        def moved(target):
            return self._changes[target.instance.uid], self._did(plan, target)
        for target in targets:
            self._check_given(target)
        self._each(targets, lambda target: change.prepare(hypervisor, *moved(target), self.context.clock))
        self._stop(hypervisor, plan, targets)
        self._each(targets, lambda target: change.switch(hypervisor, *moved(target), self.context.clock))
        self._each(targets, lambda target: self._start_changed(hypervisor, plan, target))
        self._wait(hypervisor, [target for target in targets if self._changes[target.instance.uid].starts])

    def _check_given(self, target):
        moved = self._changes[target.instance.uid]
        if moved.new_overlay and moved.base is None and target.replacement is None:
            self.context.failed(target.instance.name, Kvm2Error(
                TRANSIENT, "replace", f"domain {target.instance.domain}", f"the overlay {target.given} is not there, or in use",
                "Run kvm2_overlay with replace: true, and pass on the overlay it returns."))

    def _start_changed(self, hypervisor, plan, target):
        moved = self._changes[target.instance.uid]
        if moved.starts:
            converge.check_chain(hypervisor, moved.job, moved.job.spec)
            converge.check_seed_there(hypervisor, moved.job)
            converge.start(hypervisor, moved.job)
            self._did(plan, target)("start", "domain")
        converge.look_back(hypervisor, moved.job, moved.starts)
        self._set_autostart(hypervisor, plan, target)

    def _leave(self, hypervisor, targets):
        for target in targets:
            domain = hypervisor.domain(target.instance.uid)
            self.context.failed(target.instance.name, Kvm2Error(
                TRANSIENT, self._changes[target.instance.uid].act, f"domain {target.instance.domain}",
                f"it was left as it is ({'absent' if domain is None else domain.state}), since another one failed before it",
                "Mend what failed, then run again."))

    def _did(self, plan, target):
        def did(act, what):
            for action in plan.of(target.instance.name).actions:
                if (action.act, action.what) == (act, what):
                    self.context.did(action)
                    return
        return did

    def _delete(self, hypervisor, plan, targets):
        outcome = deletion.delete_all(
            hypervisor, [self._doomed(target) for target in targets], self.params["stop"]["mode"], self.stop_timeout, self.context.clock)
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
        self._set_autostart(hypervisor, plan, target)

    def _set_autostart(self, hypervisor, plan, target):
        acts = {action.act for action in plan.of(target.instance.name).actions if action.what == "autostart"}
        for act in acts:
            hypervisor.set_autostart(target.instance.uid, act == "enable")
            self._did(plan, target)(act, "autostart")

    def _stop(self, hypervisor, plan, targets):
        stopping = {
            target.instance.uid: target for target in targets
            if self._went_well(target) and target.there and self._is_to_stop(hypervisor, plan, target)}
        outcome = power.stop_all(
            hypervisor, {uid: target.instance.domain for uid, target in stopping.items()}, self.params["stop"]["mode"], self.stop_timeout)
        for uid, error in outcome.items():
            if error is not None:
                self.context.failed(stopping[uid].instance.name, error)
                if uid in self._changes:
                    change.undo(hypervisor, self._changes[uid])
            else:
                self._did(plan, stopping[uid])("stop", "domain")

    def _is_to_stop(self, hypervisor, plan, target):
        moved = self._changes.get(target.instance.uid)
        if moved is None and not any(action.act == "stop" for action in plan.of(target.instance.name).actions):
            return False
        domain = hypervisor.domain(target.instance.uid)
        if domain is None or not domain.active:
            # Something may have stopped it since it was seen, and then a change goes on from there.
            return moved is None
        self.context.guard(target.instance.name, lambda: _refuse_to_lose(domain, "stop"))
        if moved is not None and not self._went_well(target):
            change.undo(hypervisor, moved)
        return self._went_well(target)

    def _power_on(self, hypervisor, plan, target):
        job, did = self._jobs[target.instance.uid], self._did(plan, target)
        acts = {action.act for action in plan.of(target.instance.name).actions if action.what == "domain"}
        if "start" in acts:
            converge.check_chain(hypervisor, job, job.spec)
            converge.check_seed_there(hypervisor, job)
            if target.there and target.domain.state == "crashed" and target.domain.active:
                _refuse_to_lose(hypervisor.domain(target.instance.uid) or target.domain, "restart")
                hypervisor.destroy(target.instance.uid)
            converge.start(hypervisor, job)
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
            target.instance.uid: waiting.Guest(target.instance.domain, self.wanted[target.instance.uid].macs, self.sources[target.instance.uid])
            for target in targets if self._went_well(target)}
        outcome = waiting.wait_all(hypervisor, guests, what, self.wait_timeout, self.params["wait"]["family"])
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
                # One that was waited for in vain may have an agent that hangs.
                failed = self.state == "running" and self.params["wait"]["for"] in ("address", "agent") and not self._went_well(target)
                with waiting.agents_bounded(hypervisor, (domain.uuid,) if failed else ()):
                    found = waiting.known_addresses(
                        hypervisor, domain.uuid, self.wanted[target.instance.uid].macs, self.sources[target.instance.uid], self.params["wait"]["family"])
            if target.problem is None:
                shown.append(self._shown(target, plan, seen, domain, found=found))
            if self.state == "running" and self.params["wait"]["for"] != "none" and self._went_well(target):
                # One that was there and is paused again, as on a disk that is still full.
                error = waiting.trouble(hypervisor, target.instance.domain, domain, self.params["wait"]["for"])
                if error is not None:
                    self.context.failed(target.instance.name, error)
        return {"instances": shown}


def _refuse_to_lose(domain, act):
    """Only a removal may end what is not defined: it would be gone."""
    if domain.active and not domain.persistent:
        raise Kvm2Error(
            CONFLICT, act, f"domain {domain.name}", "it was undefined meanwhile and is lost once it is off", "Run again: it is defined again first.")


def _lacks_room(domain):
    return domain is not None and domain.state == "paused" and domain.reason == "ioerror"


def _by_path(inventory, path):
    return next((volume for volume in inventory.volumes if volume.path == path), None)
