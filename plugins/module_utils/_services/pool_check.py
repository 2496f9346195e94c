# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kvm2_pool_check: is there room, and can the hypervisor run what is asked for? Looked at before anything is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Tuple

from .._host import host_files, python_libraries
from .._policy import budget, host_checks, mark, pool_checks, space, space_checks
from .._policy.checks import FAIL, WARN, Check, table
from .._policy.errors import PERMANENT, InvalidInput, Kvm2Error
from .._policy.host_state import User
from .._policy.plan import Plan
from .._policy.units import parse_amount, parse_duration
from . import pool_check_options as options
from . import pool_space, requirements
from .pools import usable_pool
from .service import Service


@dataclass(frozen=True)
class Seen:
    """space is None where the pool cannot be used.  instances: what carries the mark of the fleet of `need`, whichever hypervisor it is declared for."""

    space: Optional[space.Space]
    checks: Tuple[Check, ...]
    instances: Tuple[Mapping[str, str], ...] = ()


class PoolCheckService(Service):
    def __init__(self, params, context):
        super().__init__(params, context)
        self.pool = params["pool"]
        self.reserve = parse_amount(params["reserve"], "reserve")
        self.warn_reserve = parse_amount(params["warn_reserve"], "warn_reserve")
        for name in ("overcommit_ratio", "overcommit_limit", "memory_overcommit_ratio", "vcpu_overcommit_ratio"):
            if params[name] is not None and not 0 < params[name] < float("inf"):
                raise InvalidInput(f"{name} {params[name]}", "it is not above 0", "Give a ratio such as 1.0.")
        self.need, self.checksum = options.parse_need(params["need"] or {})
        self.require = options.parse_require(params["require"] or {})
        self.controller_time = options.parse_time(params["controller_time"])
        self.started = context.clock()
        self.max_skew = parse_duration(params["max_skew"], "max_skew")
        # What would leave new instances broken is a failure where some are about to be made.
        self.bad = FAIL if self.need.makes_instances else WARN

    # -- observe

    def observe(self, hypervisor):
        runtime = python_libraries.runtime()
        host = requirements.look(hypervisor, (self.require,))
        domains = hypervisor.domains()
        pool, refreshed, pool_found = self._look_at_pool(hypervisor)
        ids = pool_checks.qemu_ids(host.facts.capabilities_xml)
        state = host_files.look(None if pool is None else pool.path, ids) if hypervisor.is_local() else None
        user = None if ids is None else (state.user if state is not None else User(*ids))
        found, measured, newest = list(pool_found), None, None
        if pool is not None:
            seen = pool_space.look(hypervisor, pool, domains, self, refreshed)
            measured, newest = seen.space, seen.newest
            found += space_checks.checks(measured, self.params["overcommit_ratio"], self.params["overcommit_limit"])
            found += seen.checks
            folders = () if state is None else state.folders
            found += [pool_checks.autostart(pool), pool_checks.access(pool, folders, user, self.bad)]
            found += pool_checks.labels(
                pool, pool_checks.security_models(host.facts.capabilities_xml), folders, state is not None and state.selinux_enforcing)
        found += host_checks.kvm(None if state is None else state.kvm, user, self.require.virt_type)
        found += host.checks
        found += budget.checks(
            budget.use_of(domains, self.need.uids), host.facts, self.require.memory, self.require.vcpus_total,
            self.params["memory_overcommit_ratio"], self.params["vcpu_overcommit_ratio"], None if state is None else state.memory_available)
        found += host_checks.versions(host.facts)
        found += [
            host_checks.libraries(runtime, self.need.makes_instances), host_checks.limits(hypervisor.daemon_limits()),
            host_checks.guests_service(None if state is None else state.guests),
            host_checks.clocks(self.started, self.controller_time, hypervisor.is_local(), newest, self.max_skew)]
        return Seen(measured, tuple(found), instances_of(self.need.fleet, domains))

    def _look_at_pool(self, hypervisor):
        """(model.Pool or None, was it refreshed, Checks of what is wrong with it)."""
        exclusive, name = self.params["exclusive"], f"pool {self.pool}"
        found, refreshed = [], False
        try:
            pool = usable_pool(hypervisor, self.pool, exclusive)
            if self.params["refresh"]:
                try:
                    hypervisor.refresh_pool(self.pool)
                    refreshed = True
                except Kvm2Error as error:
                    found.append(Check(
                        f"refresh of {name}", WARN, f"The pool could not be refreshed, so its figures may be old: {error.cause}.",
                        error.hint or f"See: virsh pool-refresh {self.pool}."))
                pool = usable_pool(hypervisor, self.pool, exclusive)
            return pool, refreshed, found
        except Kvm2Error as error:
            if error.kind != PERMANENT:
                raise
            return None, False, [*found, Check(name, FAIL, f"The pool {self.pool} cannot be used: {error.cause}.", error.hint, error.kind)]

    # -- result

    def plan(self, seen):
        return Plan()

    def predict(self, seen, plan):
        for check in seen.checks:
            if check.status == WARN:
                self.context.warn(f"{check.message} {check.hint}".rstrip())
        result = {"checks": [check.as_dict() for check in seen.checks], "report": table(seen.checks)}
        if self.need.fleet is not None:
            result["instances"] = [dict(one) for one in seen.instances]
        if seen.space is not None:
            result["space"] = seen.space.as_dict()
        if self.params["fail"]:
            self.context.guard(None, lambda: requirements.refuse_failed(seen.checks, "prepare", f"pool {self.pool} and its hypervisor"))
        return result

    def apply(self, hypervisor, seen, plan):
        return self.predict(seen, plan)


def instances_of(fleet, domains):
    """({name, uid, state}, …) of the domains that carry the mark of this fleet, by name. What cannot be read is not known to be one of them."""
    found = []
    for domain in domains if fleet is not None else ():
        parsed = mark.of_domain(domain)
        if mark.why_not_ours(domain, parsed) is None and parsed.fleet == fleet:
            found.append({"name": parsed.name, "uid": domain.uuid, "state": domain.state})
    return tuple(sorted(found, key=lambda one: one["name"]))
