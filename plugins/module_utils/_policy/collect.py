# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a fleet is collected on one hypervisor, and for each object the reason why it goes or stays.

Everything here is decided from what was read; whoever deletes reads again and asks again right before each kind of deletion.
"""

from __future__ import annotations

from . import collect_instances, collect_volumes, references
from .collect_volumes import Surroundings
from .collection import ANSWERS, KINDS, Collection, Item, Request, without
from .errors import PERMANENT, InvalidInput, Kvm2Error
from .model import FILE_POOLS
from .names import is_label, parse_uid

__all__ = ["ANSWERS", "KINDS", "Collection", "Item", "Request", "agreed", "check_request", "plan", "without"]

# The longest that an upload may take; whatever is half-made and older has no living uploader.
LEAST_INCOMPLETE_AGE = 12 * 3600


def check_request(request):
    """Raise InvalidInput for a request that cannot be meant."""
    for entry in sorted(request.live):
        if parse_uid(entry) is None and not is_label(entry):
            raise InvalidInput(f"live {entry!r}", "it is neither the name nor the uid of an instance", "Correct it: nothing matches it.")
    if not request.live and not request.allow_empty_live:
        raise InvalidInput(
            f"live of fleet {request.fleet}", "it is empty, which asks for the whole fleet to be removed",
            "Give the names of all instances, or set allow_empty_live to true.")
    if request.incomplete_age < LEAST_INCOMPLETE_AGE:
        raise InvalidInput(
            "incomplete_age", "an upload that still runs may be that old", f"Give at least {LEAST_INCOMPLETE_AGE // 3600}h.")


def plan(inventory, request, now, found, records, pool_now, shared=None):
    """The Collection for a Request.

    inventory: model.Inventory, read after a refresh of every pool.  now: seconds since the epoch.  found: references.References of it, with
    the request's ignore_pools.  records: {(pool, name of the record's volume): record.Record or record.Unreadable}; one that is missing
    there could not be read.  pool_now: {pool: seconds since the epoch on that pool's clock}, `now` where a pool is missing.  shared: {pool:
    type of its storage} of pools that another daemon could use too, and that nobody vouched for.
    Raises InvalidInput for a request that cannot be meant, and Kvm2Error where more instances would go than max_delete allows.
    """
    check_request(request)
    shared = shared or {}
    pools = _pools(inventory, request, shared)
    result = Collection(blocked=found.blocked)
    collect_instances.decide(inventory, request, now, found, shared, result)
    _check_limit(request, result)
    if "domains" not in request.collect:
        result.instances.clear()
    around = Surroundings(found, collect_volumes.Ages(now, pool_now), shared)
    # Of a file that two pools list, the volume of the pool that was asked for counts.
    volumes = references.each_file(sorted(inventory.volumes, key=lambda volume: volume.pool not in pools))
    if "volumes" in request.collect or "domains" in request.collect:
        collect_volumes.decide_volumes(volumes, pools, request, around, result)
    if "bases" in request.collect:
        collect_volumes.decide_bases([volume for volume in volumes if volume.pool in pools], request, around, records, result)
    return result


def agreed(first, again, kind):
    """What a second look agrees to, as it saw it: the entries of kind instances, volumes or bases that both Collections hold."""
    planned = {entry.key for entry in getattr(first, kind)}
    return tuple(entry for entry in getattr(again, kind) if entry.key in planned)


def _pools(inventory, request, shared):
    known = {pool.name: pool for pool in inventory.pools}
    usable = {name for name, pool in known.items() if pool.active and pool.type in FILE_POOLS}
    for name in request.pools or ():
        if name not in known:
            raise InvalidInput(f"pool {name}", f"there is no such pool (there are: {', '.join(sorted(known)) or 'none'})", "Correct pools.")
        if name not in usable:
            why = f"it is of type {known[name].type}" if known[name].active else "it is not active"
            raise InvalidInput(f"pool {name}", why, "Name active pools of type dir, fs or netfs only.")
        if name in shared:
            raise InvalidInput(f"pool {name}", collect_volumes.why_shared(shared[name]), collect_volumes.VOUCH)
    return usable if request.pools is None else set(request.pools)


def _check_limit(request, result):
    """Too many at once is more likely a wrong live set than a wish."""
    if "domains" not in request.collect:
        return
    going = len(result.instances)
    total = going + sum(1 for item in (*result.kept, *result.skipped) if item.what == "domain" and item.uid)
    kind, amount = request.max_delete
    limit = int(amount) if kind == "count" else max(1, int(total * amount / 100))
    if going > limit:
        names = ", ".join(sorted(item.name for item in result.instances))
        allowed = f"{limit} are allowed" if kind == "count" else f"{limit} ({amount:g} %) are allowed"
        raise Kvm2Error(
            PERMANENT, "collect", f"fleet {request.fleet}", f"{going} of {total} instances would go ({names}) and {allowed}",
            "Check live; raise max_delete if this is meant.")
