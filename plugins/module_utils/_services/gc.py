# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kvm2_gc: what no instance needs any more goes, with a reason for every object that goes or stays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Mapping, Tuple

from .._policy import collect, collect_report, names, references
from .._policy.errors import CONFLICT, Kvm2Error
from .._policy.model import FILE_POOLS, Inventory
from .._policy.plan import Action, Plan
from .._policy.units import parse_count, parse_duration
from . import bases, belongings, deletion
from .belongings import Doomed
from .pools import look_around, shared_storage
from .service import Service

STOP_TIMEOUT = 60


@dataclass(frozen=True)
class Seen:
    inventory: Inventory
    found: references.References
    now: float
    records: Mapping[Tuple[str, str], Any]
    pool_now: Mapping[str, float]
    shared: Mapping[str, str]
    removes_logs: bool


class GcService(Service):
    def __init__(self, params, context):
        super().__init__(params, context)
        names.check_label(params["fleet"], "fleet")
        self.request = collect.Request(
            fleet=params["fleet"], live=frozenset(params["live"]), host=params["host"] or "", allow_empty_live=params["allow_empty_live"],
            min_age=parse_duration(params["min_age"], "min_age"), max_delete=parse_count(params["max_delete"], "max_delete"),
            keep_latest=params["keep_latest"], incomplete_age=parse_duration(params["incomplete_age"], "incomplete_age"),
            pools=None if params["pools"] is None else tuple(params["pools"]), ignore_pools=tuple(params["ignore_pools"]),
            collect=tuple(params["collect"]))
        collect.check_request(self.request)
        self._collection = None
        self._gone = []

    def observe(self, hypervisor):
        inventory, found = look_around(hypervisor, self.request.ignore_pools)
        usable = [pool for pool in inventory.pools if pool.active and pool.type in FILE_POOLS]
        pools = [pool.name for pool in usable if self._asked(pool.name)]
        storage = {} if self.params["exclusive"] else {pool.name: shared_storage(hypervisor, pool) for pool in usable}
        shared = {pool: kind for pool, kind in storage.items() if kind}
        pool_now = {pool: self.context.pool_time(hypervisor, pool, inventory.volumes, self.context.clock) for pool in pools if pool not in shared}
        return Seen(inventory, found, self.context.clock(), self._records(hypervisor, inventory, pools), pool_now, shared, hypervisor.removes_console_logs())

    def _asked(self, pool):
        return self.request.pools is None or pool in self.request.pools

    def _records(self, hypervisor, inventory, pools):
        read = {}
        if "bases" not in self.request.collect:
            return read
        for volume in inventory.volumes:
            name = names.parse_record(volume.name)
            if name is None or volume.pool not in pools:
                continue
            try:
                parsed = bases.read_record(hypervisor, volume.pool, name)
            except Kvm2Error:
                # Missing among the records means that it could not be read, and so protects its base.
                continue
            if parsed is not None:
                read[volume.pool, volume.name] = parsed
        return read

    def _decide(self, seen, request=None):
        return collect.plan(seen.inventory, request or self.request, seen.now, seen.found, seen.records, seen.pool_now, seen.shared)

    def _decide_again(self, hypervisor):
        """A second look right before deletions. The limit was judged once, for the whole plan."""
        return self._decide(self.observe(hypervisor), replace(self.request, max_delete=("percent", 100)))

    def plan(self, seen):
        self._collection = found = self._decide(seen)
        by_uuid = {domain.uuid: domain for domain in seen.inventory.domains}
        actions = []
        for item in found.instances:
            doomed = _doomed(item)
            for act, what, name in belongings.predicted(seen.inventory, doomed, by_uuid.get(item.uid), seen.removes_logs):
                actions.append(_action(act, what, name, item.reason, doomed.name))
        actions.extend(_action("delete", item.what, item.name, item.reason) for item in found.volumes)
        for old in found.bases:
            actions.extend(
                _action("delete", what, volume.name, old.reason) for what, volume in (("record", old.record), ("base", old.base)) if volume is not None)
        return Plan(tuple(actions))

    def predict(self, seen, plan):
        return self._shown(self._collection, predicted=True)

    def apply(self, hypervisor, seen, plan):
        first = self._collection
        stayed = {}
        if first.instances:
            self._collect_instances(hypervisor, first, stayed)
        if first.volumes:
            again = self._decide_again(hypervisor)
            _why_stayed(first.volumes, again, stayed)
            for item in collect.agreed(first, again, "volumes"):
                self._delete(hypervisor, item.pool, item.name, item.path, item.what, item.reason)
        if first.bases:
            again = self._decide_again(hypervisor)
            _why_stayed([item for item in first.collected if item.what in ("base", "record")], again, stayed)
            for old in collect.agreed(first, again, "bases"):
                self._retire(hypervisor, old, stayed)
        self._look_again(hypervisor)
        return self._shown(collect.without(first, stayed))

    def _delete(self, hypervisor, pool, name, path, what, why):
        with hypervisor.because(why):
            if hypervisor.delete_volume(pool, name):
                self._gone.append(path)
                self.context.did(_action("delete", what, name, why))

    def _collect_instances(self, hypervisor, first, stayed):
        again = self._decide_again(hypervisor)
        _why_stayed(first.instances, again, stayed)
        agreed = collect.agreed(first, again, "instances")
        outcome = deletion.delete_all(
            hypervisor, [_doomed(item) for item in agreed], "graceful", STOP_TIMEOUT, self.context.clock,
            lambda doomed, act, what, name: self.context.did(_action(act, what, name, doomed.why, doomed.name)))
        for item in agreed:
            error = outcome[item.uid]
            if error is not None:
                stayed[item.key] = ("kept", f"its deletion failed: {error.cause}")
                self.context.failed(item.name, error)

    def _retire(self, hypervisor, old, stayed):
        if old.record is not None:
            self._delete(hypervisor, old.pool, old.record.name, old.record.path, "record", old.reason)
        if old.base is None:
            return
        users = bases.blockers(bases.references_of(hypervisor, self.request.ignore_pools), old.base.path)
        if users:
            # It serves the overlays that appeared, gets no new ones, and goes once they are gone.
            self.context.warn(f"The base {old.name} in pool {old.pool} is retired but stays for now: {'; '.join(users)}")
            stayed["base", old.pool, old.base.name, None] = ("kept", f"it is retired, and goes once nothing uses it any more: {'; '.join(users)}")
        else:
            self._delete(hypervisor, old.pool, old.base.name, old.base.path, "base", old.reason)

    def _look_again(self, hypervisor):
        """A reference that appeared to something that was deleted is a failure that names it."""
        if not self._gone:
            return
        found = bases.references_of(hypervisor, self.request.ignore_pools)
        for path in self._gone:
            for user in found.users_of(path):
                self.context.failed(str(user), Kvm2Error(
                    CONFLICT, "collect", path, f"{user} came to use it while it was deleted", "Delete that user of it and create it again."))

    def _shown(self, collection, predicted=False):
        shown = collection.as_dict()
        # Ansible takes a result that holds `skipped` for a task that did not run.
        shown["left_alone"] = shown.pop("skipped")
        problems = [error.message for _item, error in self.context.failures]
        shown["report"] = collect_report.lines(collection, self.request.fleet, self.request.host, predicted, problems)
        return shown


def _action(act, what, name, why, instance=None):
    """An Action whose diff shows what goes away, with the reason; what only prepares that is none."""
    goes = act in ("delete", "undefine")
    return Action(act, what, name, why, instance, before=why if goes else {}, after=None if goes else {})


def _why_stayed(planned, again, stayed):
    """Note for the entries of a plan that a second look does not agree to why they stay."""
    seen_again = {item.key: (answer, item.reason) for answer in collect.ANSWERS for item in getattr(again, answer)}
    for item in planned:
        answer, reason = seen_again.get(item.key, ("kept", "it had gone when it was looked at again"))
        if answer != "collected":
            stayed[item.key] = (answer, reason)


def _doomed(item):
    fleet, name = names.parse_domain_name(item.name)
    return Doomed(fleet, name, item.uid, item.reason)
