# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of the collector, and its answer: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import FrozenSet, List, Optional, Tuple

from . import names
from .model import Volume

KINDS = ("domains", "volumes", "bases")


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
    belongs to."""

    what: str
    name: str
    reason: str
    pool: Optional[str] = None
    path: Optional[str] = None
    uid: Optional[str] = None

    @property
    def key(self):
        return self.what, self.pool, self.name, self.uid

    def as_dict(self):
        shown = {"what": self.what, "name": self.name, "reason": self.reason}
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
    people: every object once."""

    instances: List[Item] = field(default_factory=list)
    volumes: List[Item] = field(default_factory=list)
    bases: List[OldBase] = field(default_factory=list)
    collected: List[Item] = field(default_factory=list)
    kept: List[Item] = field(default_factory=list)
    skipped: List[Item] = field(default_factory=list)
    unreadable: List[Item] = field(default_factory=list)

    def as_dict(self):
        return {
            answer: [item.as_dict() for item in getattr(self, answer)] for answer in ("collected", "kept", "skipped", "unreadable")}
