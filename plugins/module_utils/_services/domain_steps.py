# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps that kvm2_domain takes for many instances: each one for all of them that are well so far."""

from __future__ import annotations

from .._policy.errors import CONFLICT, TRANSIENT, Kvm2Error
from .._policy.plan import Action
from . import change, converge, deletion, holds, looks, power, starting, waiting
from .domain_result import DomainResult
from .undoing import after_undoing, undone_by


class DomainSteps(DomainResult):
    """What the apply of a plan is made of."""

    def _each(self, targets, step):
        """Do a step for each of the targets that nothing has failed for so far."""
        for target in targets:
            if self._went_well(target):
                self.context.guard(target.instance.name, lambda one=target: step(one))

    def _each_overlapping(self, hypervisor, targets, step):
        """The same for some of them at a time, as max_requests tells; what comes of it does not depend on which one is ready first."""
        good, before = [target for target in targets if self._went_well(target)], len(self.context.done)
        try:
            outcome = hypervisor.overlap([lambda one=target: step(one) for target in good], self.max_requests, self.context.check_stop)
        finally:
            place = {target.instance.name: number for number, target in enumerate(good)}
            self.context.done[before:] = sorted(self.context.done[before:], key=lambda action: place[action.instance])
        for target, error in zip(good, outcome):
            if error is not None:
                self.context.failed(target.instance.name, error)

    def _each_looking(self, hypervisor, targets, step):
        """The same with a shared look around, which is no older than what all of a group have done before."""
        for some in looks.groups(targets):
            look = looks.shared_look(hypervisor)
            self._each(some, lambda target, seen=look: step(target, seen))

    def _hold(self, hypervisor, plan, target):
        holds.put(hypervisor, target.instance, self.holds[target.instance.uid])
        did = self._did(plan, target)
        did("hold", "domain")
        did("release", "domain")

    def _did(self, plan, target):
        def did(act, what):
            for action in plan.of(target.instance.name).actions:
                if (action.act, action.what) == (act, what):
                    self.context.did(action)
                    return
        return did

    def _delete(self, hypervisor, plan, targets):
        outcome = deletion.delete_all(
            hypervisor, [self._doomed(target) for target in targets], self.params["stop"]["mode"], self.stop_timeout, self.context.clock,
            lambda doomed, act, what, name: self.context.did(Action(act, what, name, instance=doomed.name)))
        for target in targets:
            error = outcome[target.instance.uid]
            if error is not None:
                self.context.failed(target.instance.name, error)

    def _create(self, hypervisor, plan, targets):
        """The seeds of a group first, then one look around, then the definitions."""
        for some in looks.groups(targets):
            made = {}
            # Those of a run that ends in the middle.
            with undone_by(*(lambda uid=target.instance.uid, seeds=made: self._drop_seed(hypervisor, uid, seeds) for target in some)):
                self._each_overlapping(hypervisor, some, lambda target, seeds=made: self._make_seed(hypervisor, plan, target, seeds))
                self._each_looking(hypervisor, some, lambda target, look, seeds=made: self._define(hypervisor, plan, target, seeds, look))

    def _drop_seed(self, hypervisor, uid, made):
        if uid in made:
            converge.drop_seed(hypervisor, self._jobs[uid], made[uid])

    def _make_seed(self, hypervisor, plan, target, made):
        job = self._jobs[target.instance.uid]
        if not job.overlay:
            given = target.instance.options.get("overlay")
            raise Kvm2Error(
                TRANSIENT, "create", f"domain {target.instance.domain}", f"its overlay {given or ''} is not there".replace("  ", " "),
                "Run kvm2_overlay first, and pass on the overlay it returns.")
        made[target.instance.uid] = converge.make_seed(hypervisor, job, self._did(plan, target))

    def _define(self, hypervisor, plan, target, made, look):
        uid = target.instance.uid
        converge.create(hypervisor, self._jobs[uid], made.pop(uid), self._did(plan, target), look, self.context.clock)
        self._set_autostart(hypervisor, plan, target)

    def _converge(self, hypervisor, plan, target):
        acts = {(action.act, action.what) for action in plan.of(target.instance.name).actions}
        if ("redefine", "domain") in acts:
            converge.redefine(hypervisor, self._jobs[target.instance.uid], self._did(plan, target))
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
                undos = [lambda moved=self._changes[uid]: change.undo(hypervisor, moved)] if uid in self._changes else ()
                self.context.failed(stopping[uid].instance.name, after_undoing(error, *undos))
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
        try:
            _refuse_to_lose(domain, "stop")
        except Kvm2Error as error:
            undos = () if moved is None else (lambda: change.undo(hypervisor, moved),)
            self.context.failed(target.instance.name, after_undoing(error, *undos))
            return False
        return True

    def _power_on(self, hypervisor, plan, target, leases):
        job, did = self._jobs[target.instance.uid], self._did(plan, target)
        acts = {action.act for action in plan.of(target.instance.name).actions if action.what == "domain"}
        if "start" in acts:
            converge.check_chain(hypervisor, job, job.spec)
            converge.check_seed_there(hypervisor, job)
            if target.there and target.domain.state == "crashed" and target.domain.active:
                _refuse_to_lose(hypervisor.domain(target.instance.uid) or target.domain, "restart")
                hypervisor.destroy(target.instance.uid)
            if not target.there or not target.domain.managed_save:
                # A saved guest goes on with the address that it had.
                self._note_leases(target, leases)
            starting.start(hypervisor, job)
            did("start", "domain")
        if "resume" in acts:
            hypervisor.resume(target.instance.uid)
            did("resume", "domain")
        if acts & {"define", "redefine", "start", "resume"}:
            starting.look_back(hypervisor, job, self.state == "running")

    def _note_leases(self, target, leases):
        """Before its start: what it has a lease for by then, it has not asked for itself."""
        uid = target.instance.uid
        if "lease" in self.sources[uid]:
            self._former_leases[uid] = waiting.left_leases(leases(), self.wanted[uid].macs)

    def _wait(self, hypervisor, targets):
        what = self.params["wait"]["for"]
        if self.state != "running" or what == "none":
            return
        guests = {
            target.instance.uid: waiting.Guest(
                target.instance.domain, self.wanted[target.instance.uid].macs, self.sources[target.instance.uid],
                self._former_leases.get(target.instance.uid, {}))
            for target in targets if self._went_well(target)}
        outcome = waiting.wait_all(hypervisor, guests, what, self.wait_timeout, self.params["wait"]["family"])
        for target in targets:
            error = outcome.get(target.instance.uid)
            if error is not None:
                self.context.failed(target.instance.name, error)


def _refuse_to_lose(domain, act):
    """Only a removal may end what is not defined: it would be gone."""
    if domain.active and not domain.persistent:
        raise Kvm2Error(
            CONFLICT, act, f"domain {domain.name}", "it was undefined meanwhile and is lost once it is off", "Run again: it is defined again first.")
