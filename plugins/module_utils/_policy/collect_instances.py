# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which instances of a fleet are collected: ours by mark, UUID and name, not live, on no hold, and old enough or declared."""

from __future__ import annotations

from . import mark, names, references
from .collection import Item


def decide(inventory, request, now, found, shared, result):
    """Sort every domain of the inventory into the Collection `result`. shared: pools whose volumes another daemon could use."""
    uids = {names.parse_uid(entry) for entry in request.live} - {None}
    own = _own_volumes(inventory)
    listing = references.Listing(inventory)
    for domain in inventory.domains:
        parsed = _mark_of(domain)
        answer, reason = _verdict(domain, parsed, request, now, uids)
        of_fleet = isinstance(parsed, mark.Mark) and mark.why_not_ours(domain, parsed) is None and parsed.fleet == request.fleet
        ours = of_fleet and _asked_for(parsed, request)
        if answer == "collected":
            obstacle = _obstacle(domain, parsed, own.get(domain.uuid, ()), found, inventory, listing, shared)
            if obstacle:
                answer, reason = "skipped", obstacle
        item = Item(
            "domain", domain.name, reason, uid=domain.uuid if ours else None, others=_is_others(domain, parsed, request),
            details=_details(domain, parsed) if of_fleet else {})
        if "domains" in request.collect or answer != "collected":
            getattr(result, answer).append(item)
        if answer == "collected":
            result.instances.append(item)


def _mark_of(domain):
    if domain.unreadable or not domain.xmls:
        return mark.Unreadable(f"the domain's XML cannot be read: {domain.unreadable or 'there is none'}")
    try:
        return mark.of_domain(domain)
    except ValueError as error:
        return mark.Unreadable(f"the domain's XML cannot be read: {error}")


def _asked_for(parsed, request):
    return parsed.fleet == request.fleet and (not request.host or not parsed.host or parsed.host == request.host)


def _verdict(domain, parsed, request, now, uids):
    """(list of the Collection, reason)."""
    if isinstance(parsed, mark.Unreadable):
        return "unreadable", parsed.why + _repair(domain, request, now)
    not_ours = mark.why_not_ours(domain, parsed)
    if not_ours is not None:
        return "skipped", not_ours + ("" if parsed is None and not _has_our_uid(domain) else _repair(domain, request, now))
    if parsed.fleet != request.fleet:
        return "skipped", f"it belongs to the fleet {parsed.fleet}"
    if not _asked_for(parsed, request):
        return "kept", f"its mark names the host {parsed.host} and not {request.host}: it may be misplaced"
    age = now - parsed.created_at
    if parsed.uid in uids or parsed.name in request.live:
        declared = "" if parsed.deleting is None else "; its deletion was declared, and kvm2_domain finishes it"
        return "kept", "it is live" + declared + ("" if age >= -mark.CLOCK_SKEW else f"; {_from_the_future(parsed)}")
    if parsed.hold:
        return "kept", f"it is on hold: {parsed.hold}"
    if parsed.deleting is not None:
        return "collected", f"it is not live and its deletion was declared at {mark.format_time(parsed.deleting)}"
    if age < -mark.CLOCK_SKEW:
        return "skipped", _from_the_future(parsed)
    if age < 0:
        return "kept", f"it is not live, but its mark is {span(-age)} ahead of the clock here, which is tolerated: it counts as new"
    if age < request.min_age:
        return "kept", f"it is not live, but its mark is only {span(age)} old"
    return "collected", f"it is not live and its mark is {span(age)} old"


def _from_the_future(parsed):
    return f"its mark was created at {mark.format_time(parsed.created_at)}, which is in the future: check the clocks"


def _is_others(domain, parsed, request):
    """Is it nothing that this fleet's operator would look after: another fleet's, or without a mark and of no name of the fleet?"""
    if isinstance(parsed, mark.Mark):
        return parsed.fleet != request.fleet
    named = names.parse_domain_name(domain.name)
    return parsed is None and (named is None or named[0] != request.fleet)


def _details(domain, parsed):
    return {
        "instance": parsed.name, "uid": parsed.uid, "host": parsed.host, "state": domain.state, "state_reason": domain.reason,
        "base": parsed.base, "created": mark.format_time(parsed.created_at)}


def _has_our_uid(domain):
    """Has it the UUID that follows from its name? One that was never marked only has such a name: it is somebody's own."""
    named = names.parse_domain_name(domain.name)
    return named is not None and names.derive_uid(*named) == domain.uuid


def _repair(domain, request, now):
    """The command that would give the domain its mark, where its name is one of the fleet's."""
    parsed = names.parse_domain_name(domain.name)
    if parsed is None or parsed[0] != request.fleet:
        return ""
    return f"; if it is the instance {parsed[1]}, repair its mark: {mark.repair_command(domain, *parsed, now)}"


def _own_volumes(inventory):
    """{uid: [(volume, its parsed name)]} of the volumes whose names carry it."""
    found = {}
    for volume in inventory.volumes:
        parsed = names.parse_instance_volume(volume.name)
        if parsed is not None:
            found.setdefault(parsed.uid, []).append((volume, parsed))
    return found


def _obstacle(domain, parsed, own, found, inventory, listing, shared):
    """Why the instance's volumes cannot all go with it: something else uses one, or one cannot be judged; else None."""
    for path in references.unlisted_of_instance(domain, inventory, listing):
        return f"its volume {path} is in no active pool, so it could not be deleted (start its pool)"
    for volume, name in own:
        if (name.fleet, name.name) != (parsed.fleet, parsed.name):
            return f"the volume {volume.path} has its uid but belongs to {names.domain_name(name.fleet, name.name)}"
        if volume.pool in shared:
            return (
                f"its volume {volume.path} is in the pool {volume.pool} on shared storage ({shared[volume.pool]}): set exclusive to true when no "
                "other daemon uses it")
    paths = {volume.path for volume, _name in own}
    for path in sorted(paths):
        for user in found.users_of(path):
            if user.uuid != domain.uuid and user.path not in paths:
                return f"its volume {path} is used by {user}"
    return None


def span(seconds):
    """A length of time for people."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
