# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of one base as a model: creators of overlays and collectors, each step of which may come between any two steps of the others."""

from __future__ import annotations

from typing import NamedTuple, Tuple

# A step is where a run is; these are the ends.
SUCCEEDED, FAILED, DELETED, LEFT = "succeeded", "failed", "deleted", "left"


class Pool(NamedTuple):
    record: bool
    base: bool
    overlays: Tuple[bool, ...]


class Creator:
    """Creates one overlay: the record is read before and after."""

    def __init__(self, number):
        self.number = number

    def _with(self, pool, there):
        return pool._replace(overlays=tuple(there if index == self.number else value for index, value in enumerate(pool.overlays)))

    def begin(self, pool, _seen):
        return ("create" if pool.record else FAILED), None, pool

    def create(self, pool, _seen):
        return "confirm", None, self._with(pool, True)

    def confirm(self, pool, _seen):
        return (SUCCEEDED if pool.record else "clean_up"), None, pool

    def clean_up(self, pool, _seen):
        return FAILED, None, self._with(pool, False)


class Collector:
    """Retires the base: record, second look, base. With put_back, the rejected order, the record returns when a user appeared."""

    def __init__(self, put_back):
        self.put_back = put_back

    def begin(self, pool, _seen):
        return (LEFT if any(pool.overlays) else "retire"), None, pool

    def retire(self, pool, _seen):
        return "look_again", None, pool._replace(record=False)

    def look_again(self, pool, _seen):
        return "decide", any(pool.overlays), pool

    def decide(self, pool, used):
        if not used:
            return DELETED, None, pool._replace(base=False)
        return LEFT, None, pool._replace(record=pool.base) if self.put_back else pool


def explore(creators, collectors, put_back):
    """(number of states, a state in which a creator succeeded without a base or None)."""
    runs = [Creator(number) for number in range(creators)] + [Collector(put_back) for _number in range(collectors)]
    start = (Pool(True, True, (False,) * creators), (("begin", None),) * len(runs))
    seen, todo, broken = {start}, [start], None
    while todo:
        pool, places = todo.pop()
        if not pool.base and any(step == SUCCEEDED for step, _held in places):
            broken = (pool, places)
        for index, (step, held) in enumerate(places):
            method = getattr(runs[index], step, None)
            if method is None:
                continue
            following, holds, after = method(pool, held)
            state = (after, places[:index] + ((following, holds),) + places[index + 1:])
            if state not in seen:
                seen.add(state)
                todo.append(state)
    return len(seen), broken
