# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kvm2_overlay with state absent: the overlays of instances without a domain go, whatever their age. Where there is a domain, even one that names
none of them may have it detached for a moment only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from .._policy import mark, names
from .._policy.errors import CONFLICT, Kvm2Error
from .._policy.model import Volume
from .._policy.plan import Action, Plan
from .instances import LIFT_HOLD, Instance, domain_of, is_being_deleted
from .pools import look_around, usable_pool


@dataclass(frozen=True)
class Target:
    """free: its overlays that nothing references.  used: (overlay, who references it) of the others."""

    instance: Instance
    free: Tuple[Volume, ...] = ()
    used: Tuple[Tuple[str, str], ...] = ()
    problem: Optional[Kvm2Error] = None


def observe(hypervisor, service):
    usable_pool(hypervisor, service.pool, service.params["exclusive"])
    inventory, found = look_around(hypervisor)
    return tuple(_target(instance, inventory, found, service.pool) for instance in service.instances)


def _target(instance, inventory, found, pool):
    try:
        domain = domain_of(instance, inventory.domains)
        hold = "" if domain is None else mark.of_domain(domain).hold
    except Kvm2Error as error:
        return Target(instance, problem=error)
    if hold:
        return Target(instance, problem=Kvm2Error(
            CONFLICT, "delete", f"overlays of {instance.domain}", f"it is on hold: {hold}", LIFT_HOLD))
    if domain is not None and not is_being_deleted(domain):
        return Target(instance, problem=Kvm2Error(
            CONFLICT, "delete", f"overlays of {instance.domain}", f"domain {domain.name} is there, and may need them also where it names none of them",
            "kvm2_domain with state absent deletes an instance with its overlays, kvm2_gc those that an instance has no use for any more."))
    free, used = [], []
    for volume in inventory.volumes:
        parsed = names.parse_instance_volume(volume.name)
        if volume.pool != pool or parsed is None or parsed.kind != "overlay" or not instance.owns(parsed):
            continue
        users = found.users_of(volume.path)
        if users:
            used.append((volume.name, "; ".join(str(user) for user in users)))
        else:
            free.append(volume)
    return Target(instance, tuple(free), tuple(used))


def plan(targets):
    return Plan(tuple(
        Action("delete", "overlay", volume.name, "nothing uses it", target.instance.name)
        for target in targets if target.problem is None for volume in target.free))


def report_problems(targets, context):
    """What keeps an instance's overlays from being absent; those that nothing uses go all the same."""
    for target in targets:
        if target.problem is not None:
            context.failed(target.instance.name, target.problem)
        for name, users in target.used:
            context.failed(target.instance.name, Kvm2Error(
                CONFLICT, "delete", f"overlay {name}", f"it is in use: {users}", "kvm2_domain with state absent deletes an instance with its overlay."))


def apply(hypervisor, service, targets):
    """Look once more right before the deletions, and once after them: a reference that appeared is a conflict that names it."""
    gone = []
    if any(target.free for target in targets):
        again = {target.instance.uid: target for target in observe(hypervisor, service)}
        for target in targets:
            now = again[target.instance.uid]
            if now.problem is not None and target.problem is None:
                service.context.failed(target.instance.name, now.problem)
            still_free = {volume.name for volume in now.free}
            for volume in target.free:
                if volume.name in still_free and hypervisor.delete_volume(volume.pool, volume.name):
                    gone.append((target.instance, volume))
                    service.context.did(Action("delete", "overlay", volume.name, "nothing uses it", target.instance.name))
                elif volume.name in dict(now.used):
                    _failed(service, target.instance, volume, f"{dict(now.used)[volume.name]} came to use it meanwhile; it was left")
    if gone:
        found = look_around(hypervisor)[1]
        for instance, volume in gone:
            for user in found.users_of(volume.path):
                _failed(service, instance, volume, f"{user} came to use it while it was deleted")


def _failed(service, instance, volume, cause):
    service.context.failed(instance.name, Kvm2Error(
        CONFLICT, "delete", f"overlay {volume.name}", cause, "Converge that instance with kvm2_overlay replace: true and kvm2_domain on_change: replace."))


def shown(targets, actions_of):
    """One entry for each instance that has nothing in the way; actions_of gives the actions of an instance by name, as dicts."""
    return [
        {"name": target.instance.name, "uid": target.instance.uid, "overlay": None, "path": None, "base": None, "capacity": None, "status": "absent",
         "drift": [], "actions": actions_of(target.instance.name)} for target in targets if target.problem is None and not target.used]
