# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet on one hypervisor in lines that people read: what is there by its marks, how it differs, and what collection would do."""

from __future__ import annotations

from . import endpoints

_TITLES = ("INSTANCE", "STATE", "ADDRESS", "BASE", "REMARK")


def lines(fleet, hypervisor, collection, domains=(), problem=""):
    """The report as a list of lines.

    fleet: a normalised definition.  collection: what kvm2_gc returned in check mode on that hypervisor.  domains: the instances that
    kvm2_domain returned in check mode there.  problem: why these could not be had, or "".
    """
    declared = {one["name"]: one["hypervisor"] for one in fleet["instances"]}
    told = {one["name"]: one for one in domains}
    there = {
        item["instance"]: (item, answer) for answer in ("collected", "kept", "left_alone", "unreadable") for item in collection[answer]
        if item["what"] == "domain" and item.get("instance")}
    mine = [name for name, where in declared.items() if where == hypervisor]
    others = sorted(set(there) - set(mine))
    misplaced = [name for name in others if name in declared]
    counts = f"{sum(name in there for name in mine)} of {len(mine)} declared instances are there, {len(misplaced)} misplaced"
    found = [f"Fleet {fleet['name']} on {hypervisor}: {counts}, {len(others) - len(misplaced)} not declared."]
    rows = [_row(name, there.get(name), told.get(name), declared, hypervisor) for name in (*mine, *others)]
    found += _columns([_TITLES, *rows]) if rows else []
    differences = endpoints.drift([one for one in domains if one["name"] in there])
    found += ["Differs from the definition:", *(f"  - {line}" for line in differences)] if differences else []
    found += [f"What provisioning would change could not be told: {problem}"] if problem else []
    return found + ["Collection, as of now and without its limit:", *(f"  {line}" for line in collection["report"])]


def _row(name, seen, told, declared, hypervisor):
    if seen is None:
        return name, "absent", "", "", "would be created"
    item, answer = seen
    state = item["state"] + (f" ({item['state_reason']})" if item["state"] == "paused" and item["state_reason"] else "")
    remark = ""
    if name not in declared:
        remark = f"not declared; {'would be collected: ' if answer == 'collected' else ''}{item['reason']}"
    elif declared[name] != hypervisor:
        remark = f"misplaced, declared for {declared[name]}"
    elif item["reason"] != "it is live":
        remark = item["reason"]
    elif told and told["drift"]:
        remark = "differs"
    return name, state, (told or {}).get("primary_address") or "", item["base"], remark


def _columns(rows):
    widths = [max(len(row[column]) for row in rows) for column in range(len(_TITLES))]
    return ["  ".join((cell or "-").ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
