# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kvm2_pool_check: is there room, and can the hypervisor run what is asked for? Looked at before anything is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

from .._host import local
from .._policy import capability, names, space
from .._policy.checks import WARNING, Check
from .._policy.errors import InvalidInput
from .._policy.plan import Plan
from .._policy.units import parse_amount, parse_size
from . import requirements
from .pools import sees_pool, usable_pool
from .service import Service


@dataclass(frozen=True)
class Seen:
    space: space.Space
    checks: Tuple[Check, ...]


class PoolCheckService(Service):
    def __init__(self, params, context):
        super().__init__(params, context)
        self.pool = params["pool"]
        self.reserve = parse_amount(params["reserve"], "reserve")
        if params["overcommit_ratio"] <= 0:
            raise InvalidInput(f"overcommit_ratio {params['overcommit_ratio']}", "it is not above 0", "Give a ratio such as 1.0.")
        self.need = self._parse_need(params["need"] or {})
        self.require = self._parse_require(params["require"] or {})

    @staticmethod
    def _parse_need(need):
        """Arguments of space.needed."""
        if need.get("key") is not None:
            names.check_label(need["key"], "need.key")
        if need.get("instances") is not None and need["instances"] < 0:
            raise InvalidInput(f"need.instances {need['instances']}", "it is below 0", "Give the number of new instances.")
        overlays = []
        for index, entry in enumerate(need.get("overlays") or ()):
            name = names.check_label(entry["name"], f"need.overlays[{index}].name")
            uid = names.derive_uid(need["fleet"], name) if entry.get("uid") is None else names.parse_uid(entry["uid"])
            if uid is None:
                raise InvalidInput(f"need.overlays[{index}].uid {entry['uid']!r}", "it is not a UUID", "Leave it out to have it derived.")
            overlays.append((name, uid, parse_size(entry["capacity"], f"need.overlays[{index}].capacity")))
        return {
            "fixed": _size(need, "bytes"), "instances": need.get("instances") or 0, "capacity": _size(need, "capacity"),
            "image": _size(need, "image"), "key": need.get("key"), "fleet": need.get("fleet"), "overlays": tuple(overlays)}

    @staticmethod
    def _parse_require(require):
        given = {name: value for name, value in require.items() if value is not None}
        for name in ("networks", "bridges"):
            given[name] = tuple(given.get(name, ()))
        if "memory" in given:
            given["memory"] = parse_size(given["memory"], "require.memory", allow_zero=True)
        if given.get("vcpus", 1) < 1:
            raise InvalidInput(f"require.vcpus {given['vcpus']}", "it is below 1", "Give what the largest instance needs.")
        return capability.Require(**given)

    def observe(self, hypervisor):
        pool = usable_pool(hypervisor, self.pool, self.params["exclusive"])
        if self.params["refresh"]:
            hypervisor.refresh_pool(self.pool)
            pool = hypervisor.pool(self.pool) or pool
        volumes = hypervisor.volumes(self.pool)
        free = local.available(pool.path) if sees_pool(hypervisor, pool) else None
        measured = space.measure(pool, volumes, space.needed(volumes, **self.need), self.reserve, free)
        found = list(space.checks(measured, self.params["overcommit_ratio"]))
        if not pool.autostart:
            found.append(Check(
                f"pool {pool.name}", WARNING, f"The pool {pool.name} is not started together with the hypervisor.",
                f"virsh pool-autostart {pool.name}"))
        found += requirements.look(hypervisor, (self.require,)).checks
        return Seen(measured, tuple(found))

    def plan(self, seen):
        return Plan()

    def predict(self, seen, plan):
        for check in seen.checks:
            if check.status == WARNING:
                self.context.warn(f"{check.message} {check.hint}")
        result = {"space": seen.space.as_dict(), "checks": [check.as_dict() for check in seen.checks]}
        if self.params["fail"]:
            self.context.guard(None, lambda: requirements.refuse_failed(seen.checks, "prepare", f"pool {self.pool} and its hypervisor"))
        return result

    def apply(self, hypervisor, seen, plan):
        return self.predict(seen, plan)


def _size(need, name):
    return 0 if need.get(name) is None else parse_size(need[name], f"need.{name}", allow_zero=True)
