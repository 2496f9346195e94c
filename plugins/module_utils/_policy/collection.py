# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of the collector, and its answer: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, FrozenSet, List, Mapping, Optional, Tuple

from . import names
from .model import Volume

KINDS = ("domains", "volumes", "bases")
ANSWERS = ("collected", "kept", "skipped", "unreadable")


@dataclass(frozen=True)
class Request:
    """What an operator asks for. Ages in seconds; max_delete is ("count", n) or ("percent", p); pools None means all that can be used."""

    fleet: str
    live: FrozenSet[str]
    host: str = ""
    allow_empty_live: bool = False
    min_age: float = 3600
    max_delete: Tuple[str, float] = ("percent", 25)
    keep_latest: bool = True
    incomplete_age: float = 24 * 3600
    pools: Optional[Tuple[str, ...]] = None
    ignore_pools: Tuple[str, ...] = ()
    collect: Tuple[str, ...] = KINDS


@dataclass(frozen=True)
class Item:
    """One object and why it goes or stays. what: domain, overlay, seed, base, record, probe or volume; uid: of the instance that it is or
    belongs to.

    others: it is somebody else's, and nothing to look after.  details: what else is known of an instance of the fleet, as plain values.
    """

    what: str
    name: str
    reason: str
    pool: Optional[str] = None
    path: Optional[str] = None
    uid: Optional[str] = None
    others: bool = False
    details: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def key(self):
        return self.what, self.pool, self.name, self.uid

    def as_dict(self):
        shown = {"what": self.what, "name": self.name, "reason": self.reason, **self.details}
        return dict(shown, pool=self.pool) if self.pool is not None else shown


@dataclass(frozen=True)
class OldBase:
    """A base to retire: the record is deleted first, then references are listed again, then the base. Either volume may be missing."""

    pool: str
    name: names.BaseName
    base: Optional[Volume]
    record: Optional[Volume]
    reason: str

    @property
    def key(self):
        return self.pool, str(self.name)


@dataclass
class Collection:
    """instances, volumes and bases are what is to be deleted, in that order: instances with everything that is theirs (Item of the domain),
    orphaned volumes (Item), and bases (OldBase, record before base). collected, kept, skipped and unreadable are for
    people: every object once. blocked is what could not be looked into: whatever that could reference stays."""

    instances: List[Item] = field(default_factory=list)
    volumes: List[Item] = field(default_factory=list)
    bases: List[OldBase] = field(default_factory=list)
    collected: List[Item] = field(default_factory=list)
    kept: List[Item] = field(default_factory=list)
    skipped: List[Item] = field(default_factory=list)
    unreadable: List[Item] = field(default_factory=list)
    blocked: Tuple[str, ...] = ()

    def as_dict(self):
        shown = {answer: [item.as_dict() for item in getattr(self, answer)] for answer in ANSWERS}
        return dict(shown, blocked=list(self.blocked))


def without(collection, stayed):
    """The Collection for people once some of it stayed after all. stayed: {key of an Item: (answer, reason)}.

    The volumes of an instance that stays stay with it.
    """
    with_instance = {item.uid for item in collection.collected if item.what == "domain" and item.key in stayed}
    lists = {answer: list(getattr(collection, answer)) for answer in ANSWERS}
    lists["collected"] = []
    for item in collection.collected:
        answer, reason = stayed.get(item.key, ("collected", item.reason))
        if item.uid in with_instance and item.what != "domain" and item.key not in stayed:
            answer, reason = "kept", "its instance stays"
        lists[answer].append(replace(item, reason=reason))
    return replace(collection, **lists)
