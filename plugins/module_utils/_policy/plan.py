# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan: an ordered list of actions. changed, diff and the returned actions all come from it, in check mode and out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional, Tuple


@dataclass(frozen=True)
class Action:
    """One change to the hypervisor.

    act: create, fetch, publish, take, grow, define, redefine, start, resume, stop, destroy, delete, undefine, declare, …
    what: volume, base, record, overlay, seed, domain, pool.  name: the object's name.  why: the reason, for people.
    instance: the instance it belongs to, or None.  payload: what apply needs to do it; never shown.
    changes: False for a step that changes nothing that lasts.
    """

    act: str
    what: str
    name: str
    why: str = ""
    instance: Optional[str] = None
    before: Any = None
    after: Any = None
    payload: Optional[Mapping[str, Any]] = None
    changes: bool = True

    def as_dict(self):
        shown = {"act": self.act, "what": self.what, "name": self.name}
        if self.instance is not None:
            shown["instance"] = self.instance
        if self.why:
            shown["why"] = self.why
        return shown


@dataclass(frozen=True)
class Plan:
    actions: Tuple[Action, ...] = ()

    @property
    def changed(self):
        return any(action.changes for action in self.actions)

    def of(self, instance):
        return Plan(tuple(action for action in self.actions if action.instance == instance))

    def as_list(self):
        return [action.as_dict() for action in self.actions]

    def diff(self):
        """Ansible's diff form: readable text before and after, empty where nothing changes."""
        before, after = [], []
        for action in self.actions:
            if not action.changes:
                continue
            label = f"{action.what} {action.name}"
            if action.before is None and action.after is None:
                after.append(f"{action.act} {label}")
                continue
            before.extend(_lines(label, action.before))
            after.extend(_lines(label, action.after))
        return {"before": "".join(f"{line}\n" for line in before), "after": "".join(f"{line}\n" for line in after)}


def _lines(label, value):
    if value is None:
        return []
    if isinstance(value, Mapping):
        return [f"{label}: {key}: {value[key]}" for key in sorted(value)]
    return [f"{label}: {value}"]
