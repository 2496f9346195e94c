# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kvm2_gc: what no instance needs any more goes, with a reason for every object that goes or stays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Mapping, Tuple

from .._policy import collect, names, references
from .._policy.errors import CONFLICT, Kvm2Error
from .._policy.model import FILE_POOLS, Inventory
from .._policy.plan import Action, Plan
from .._policy.units import parse_count, parse_duration
from . import bases, deletion
from .deletion import Doomed
from .pools import look_around
from .service import Service

STOP_TIMEOUT = 60


@dataclass(frozen=True)
class Seen:
    inventory: Inventory
    found: references.References
    now: float
    records: Mapping[Tuple[str, str], Any]
    pool_now: Mapping[str, float]


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

    def observe(self, hypervisor):
        inventory, found = look_around(hypervisor, self.request.ignore_pools)
        pools = [pool.name for pool in inventory.pools if pool.active and pool.type in FILE_POOLS and self._asked(pool.name)]
        pool_now = {pool: self.context.pool_time(hypervisor, pool, inventory.volumes, self.context.clock) for pool in pools}
        return Seen(inventory, found, self.context.clock(), self._records(hypervisor, inventory, pools), pool_now)

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
        return collect.plan(seen.inventory, request or self.request, seen.now, seen.found, seen.records, seen.pool_now)

    def _decide_again(self, hypervisor):
        """A second look right before deletions. The limit was judged once, for the whole plan."""
        return self._decide(self.observe(hypervisor), replace(self.request, max_delete=("percent", 100)))

    def plan(self, seen):
        self._collection = found = self._decide(seen)
        by_uuid = {domain.uuid: domain for domain in seen.inventory.domains}
        actions = []
        for item in found.instances:
            doomed = _doomed(item)
            for act, what, name in deletion.predicted(seen.inventory, doomed, by_uuid.get(item.uid)):
                actions.append(Action(act, what, name, item.reason, doomed.name))
        actions.extend(Action("delete", item.what, item.name, item.reason) for item in found.volumes)
        for old in found.bases:
            actions.extend(
                Action("delete", what, volume.name, old.reason) for what, volume in (("record", old.record), ("base", old.base)) if volume is not None)
        return Plan(tuple(actions))

    def predict(self, seen, plan):
        return _shown(self._collection)

    def apply(self, hypervisor, seen, plan):
        first, gone = self._collection, []
        self._collect_instances(hypervisor, first, gone)
        if first.volumes:
            for item in collect.agreed(first, self._decide_again(hypervisor), "volumes"):
                if hypervisor.delete_volume(item.pool, item.name):
                    gone.append(item.path)
                    self._did("delete", item.what, item.name, item.reason)
        if first.bases:
            for old in collect.agreed(first, self._decide_again(hypervisor), "bases"):
                self._retire(hypervisor, old, gone)
        self._look_again(hypervisor, gone)
        return _shown(first)

    def _did(self, act, what, name, why, instance=None):
        self.context.did(Action(act, what, name, why, instance))

    def _collect_instances(self, hypervisor, first, gone):
        if not first.instances:
            return
        agreed = collect.agreed(first, self._decide_again(hypervisor), "instances")
        doomed = {item.uid: _doomed(item) for item in agreed}
        outcome = deletion.delete_all(hypervisor, list(doomed.values()), "graceful", STOP_TIMEOUT, self.context.clock)
        for item in agreed:
            done, error = outcome[item.uid]
            for act, what, name in done:
                self._did(act, what, name, item.reason, doomed[item.uid].name)
            if error is not None:
                self.context.failed(item.name, error)

    def _retire(self, hypervisor, old, gone):
        if old.record is not None and hypervisor.delete_volume(old.pool, old.record.name):
            self._did("delete", "record", old.record.name, old.reason)
        if old.base is None:
            return
        users = bases.blockers(bases.references_of(hypervisor, self.request.ignore_pools), old.base.path)
        if users:
            # It serves the overlays that appeared, gets no new ones, and goes once they are gone.
            self.context.warn(f"The base {old.name} in pool {old.pool} is retired but stays for now: {'; '.join(users)}")
        elif hypervisor.delete_volume(old.pool, old.base.name):
            gone.append(old.base.path)
            self._did("delete", "base", old.base.name, old.reason)

    def _look_again(self, hypervisor, gone):
        """A reference that appeared to something that was deleted is a failure that names it."""
        if not gone:
            return
        found = bases.references_of(hypervisor, self.request.ignore_pools)
        for path in gone:
            for user in found.users_of(path):
                self.context.failed(str(user), Kvm2Error(
                    CONFLICT, "collect", path, f"{user} came to use it while it was deleted", "Delete that user of it and create it again."))


def _shown(collection):
    shown = collection.as_dict()
    # Ansible takes a result that holds `skipped` for a task that did not run.
    shown["left_alone"] = shown.pop("skipped")
    return shown


def _doomed(item):
    fleet, name = names.parse_domain_name(item.name)
    return Doomed(fleet, name, item.uid)
