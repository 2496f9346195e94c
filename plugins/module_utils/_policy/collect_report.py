# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Collection in lines that people read, in a job's output or in a mail."""

from __future__ import annotations

LIVE = "it is live"


def lines(collection, fleet, host, predicted, problems=()):
    """The report as a list of lines. predicted: nothing was done, it is what would be.  problems: what failed, as texts."""
    attention = [item for item in (*collection.skipped, *collection.unreadable) if not item.others]
    others = sum(item.others for item in (*collection.skipped, *collection.unreadable))
    staying = [item for item in collection.kept if item.what == "domain" and item.reason != LIVE]
    found = [
        f"Fleet {fleet}" + (f" on {host}" if host else "") + f": {_count(collection.collected)} {'would go' if predicted else 'collected'}, "
        f"{_count(collection.kept)} kept, {_count(attention)} to look at" + (f"; {others} of others left alone" if others else "") + "."]
    found += _section("Failed", problems)
    found += _section("Would be collected" if predicted else "Collected", map(_line, collection.collected))
    found += _section("To look at, left as they are", map(_line, attention))
    found += _section("Could not be looked into, so what it may use stays", collection.blocked)
    found += _section("Instances that stay though they are not simply live", map(_line, staying))
    return found


def _count(items):
    """"2 domains, 1 seed" of Items, or "nothing"."""
    kinds = {}
    for item in items:
        kinds[item.what] = kinds.get(item.what, 0) + 1
    return ", ".join(f"{number} {what}{'s' if number > 1 else ''}" for what, number in kinds.items()) or "nothing"


def _line(item):
    return f"{item.what} {item.name}" + (f" (pool {item.pool})" if item.pool else "") + f": {item.reason}"


def _section(title, entries):
    entries = [f"  - {entry}" for entry in entries]
    return [f"{title}:", *entries] if entries else []
