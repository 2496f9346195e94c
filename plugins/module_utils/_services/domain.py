# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kvm2_domain: the domains of a set of instances, with their seeds."""

from __future__ import annotations

import time
from dataclasses import replace

from .._host import filesystem
from .._policy import domain_read, names, overlays, references
from .._policy.errors import CONFLICT, PERMANENT, TRANSIENT, InvalidInput, Kvm2Error
from . import belongings, change, converge, looks, requirements, starting, waiting
from . import clock as pool_clock
from .belongings import Doomed
from .domain_steps import DomainSteps
from .domain_view import Seen, Target, detached_seed, drift_of
from .instances import domain_of, is_being_deleted
from .pools import look_around, sees_pool, usable_pool
from .undoing import undone_by

# An overlay may be defined over while it is under half an hour old: those that wait for their turn are touched this often, in seconds.
KEPT_YOUNG = 300


class DomainService(DomainSteps):
    # -- observe

    def observe(self, hypervisor):
        pool = usable_pool(hypervisor, self.pool, self.params["exclusive"])
        inventory, found = look_around(hypervisor)
        self._files = {volume.path: volume for volume in inventory.volumes}
        targets = tuple(self._target(instance, inventory, found) for instance in self.instances)
        # Its free space as it is after the refresh.
        pool = hypervisor.pool(self.pool) or pool
        if any(_lacks_room(target.domain) for target in targets):
            pool = self._full(hypervisor, pool, targets)
        host = None
        to_define = [] if self.state == "absent" else [
            target for target in targets if target.problem is None and self._is_to_be_defined(target)]
        if to_define:
            host = requirements.look(hypervisor, [requirements.require_of(self.wanted[target.instance.uid]) for target in to_define])
            if 1 < len(to_define) == len(targets) and requirements.fail_all(host):
                # What none of them can have is the hypervisor's, and is said once.
                requirements.refuse_failed(host.checks, "prepare", f"hypervisor {hypervisor.uri}")
            lacking = {
                target.instance.uid: requirements.error_of(checks, "prepare", f"instance {target.instance.domain}")
                for target, checks in zip(to_define, host.each)}
            targets = tuple(replace(target, problem=target.problem or lacking.get(target.instance.uid)) for target in targets)
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

    def _target(self, instance, inventory, found):
        try:
            domain = domain_of(instance, inventory.domains)
            deleting = domain is not None and is_being_deleted(domain)
            if deleting or self.state == "absent":
                blocked = belongings.obstacles(inventory, found, Doomed(instance.fleet, instance.name, instance.uid))
                if blocked:
                    raise Kvm2Error(CONFLICT, "delete", f"instance {instance.domain}", "; ".join(blocked), "Remove what uses it first; nothing was changed.")
            elif domain is not None:
                return self._present(instance, domain, inventory, found)
            return Target(instance, domain, deleting, self._free_overlay(instance, inventory, found))
        except Kvm2Error as error:
            return Target(instance, problem=error)

    def _present(self, instance, domain, inventory, found):
        disk = domain_read.overlay_path(domain.guest_xml or domain.xml)
        seed, overlay = domain_read.read_spec(domain.xml or domain.live_xml).seed_path, _by_path(inventory, disk)
        missing = [path for path in (disk, seed) if path and _by_path(inventory, path) is None]
        target = Target(
            instance, domain, False, overlay, disk, seed_gone=seed if seed in missing else None,
            seed_detached=detached_seed(domain, overlay, self.wanted[instance.uid], belongings.own_volumes(inventory, instance.uid), found),
            unseen=references.unlisted(missing, inventory) if missing else ())
        if self.on_change == "replace":
            if target.unseen:
                raise Kvm2Error(
                    PERMANENT, "replace", f"instance {instance.domain}", f"{', '.join(target.unseen)} is in no active pool, so it cannot be seen",
                    "Start its pool.")
            if target.given:
                target = replace(target, replacement=self._free_overlay(instance, inventory, found))
        return target

    def _free_overlay(self, instance, inventory, found):
        """The overlay that a new domain gets: the one given, else the instance's youngest unreferenced one; None where it is not there."""
        mine = [
            volume for volume in belongings.own_volumes(inventory, instance.uid)
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
        self._create(hypervisor, plan, [target for target in others if not target.there])
        self._each([target for target in others if target.there], lambda target: self._converge(hypervisor, plan, target))
        self._stop(hypervisor, plan, others)
        leases = looks.once(hypervisor.leases)
        self._each_overlapping(hypervisor, others, lambda target: self._power_on(hypervisor, plan, target, leases))
        self._wait(hypervisor, others)
        self._roll(hypervisor, plan, rolled, before)
        return self._result(hypervisor, seen, plan)

    def _roll(self, hypervisor, plan, targets, before):
        """Restarts and replacements, some at a time; after a failure of anything the rest is left as it is."""
        kept_young = time.monotonic()
        for begin in range(0, len(targets), self.at_once):
            left = targets[begin:]
            if len(self.context.failures) > before:
                self._leave(hypervisor, left)
                return
            if time.monotonic() - kept_young > KEPT_YOUNG:
                kept_young = time.monotonic()
                self._each_looking(hypervisor, left, lambda target, look: self._keep_young(hypervisor, target, look))
            self._change(hypervisor, plan, left[:self.at_once])

    def _keep_young(self, hypervisor, target, look):
        """An overlay that waits long for its turn would get too old to be used: this run still holds it, so no collector may take it."""
        moved = self._changes[target.instance.uid]
        if moved.new_overlay and moved.base is None:
            converge.still_definable(hypervisor, moved.job, look, self.context.clock)
            pool_clock.touch(hypervisor, moved.job.pool, moved.job.overlay)

    def _change(self, hypervisor, plan, targets):
        def moved(target):
            return self._changes[target.instance.uid], self._did(plan, target)
        for target in targets:
            self._check_given(target)
        # A run that ends in the middle takes back what it made for those whose turn did not come.
        with undone_by(*(lambda one=target: change.undo(hypervisor, self._changes[one.instance.uid]) for target in targets)):
            self._each_overlapping(hypervisor, targets, lambda target: change.make(hypervisor, *moved(target)))
            self._each_looking(hypervisor, targets, lambda target, look: change.prepare(hypervisor, *moved(target), look, self.context.clock))
            self._stop(hypervisor, plan, targets)
            self._each_looking(hypervisor, targets, lambda target, look: change.switch(hypervisor, *moved(target), look, self.context.clock))
        leases = looks.once(hypervisor.leases)
        self._each_overlapping(hypervisor, targets, lambda target: self._start_changed(hypervisor, plan, target, leases))
        self._wait(hypervisor, [target for target in targets if self._changes[target.instance.uid].starts])

    def _check_given(self, target):
        moved = self._changes[target.instance.uid]
        if moved.new_overlay and moved.base is None and target.replacement is None:
            self.context.failed(target.instance.name, Kvm2Error(
                TRANSIENT, "replace", f"domain {target.instance.domain}", f"the overlay {target.given} is not there, or in use",
                "Run kvm2_overlay with replace: true, and pass on the overlay it returns."))

    def _start_changed(self, hypervisor, plan, target, leases):
        moved = self._changes[target.instance.uid]
        if moved.starts:
            self._note_leases(target, leases)
            starting.start_checked(hypervisor, moved.job)
            self._did(plan, target)("start", "domain")
        starting.look_back(hypervisor, moved.job, moved.starts)
        self._set_autostart(hypervisor, plan, target)

    def _leave(self, hypervisor, targets):
        for target in targets:
            domain = hypervisor.domain(target.instance.uid)
            self.context.failed(target.instance.name, Kvm2Error(
                TRANSIENT, self._changes[target.instance.uid].act, f"domain {target.instance.domain}",
                f"it was left as it is ({'absent' if domain is None else domain.state}), since another one failed before it",
                "Mend what failed, then run again."))


def _lacks_room(domain):
    return domain is not None and domain.state == "paused" and domain.reason == "ioerror"


def _by_path(inventory, path):
    return next((volume for volume in inventory.volumes if volume.path == path), None)
