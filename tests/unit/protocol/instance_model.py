# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of one instance as a model: runs that create, update, replace, delete and collect it, interleaved in every way.

A run is a class and each of its methods one step: from the world and what the run remembers to the name of the next step, what it then
remembers, and the world as it leaves it. Overlays are numbers; the one that run i makes is 10 + i.

A run of several instances reads what all of them share once for a step, when each of them has taken the step before. For each instance that is a
schedule like the others here: it pauses between that look and its write.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

OLD, YOUNG, FIRST_NEW = 1, 7, 10
GOOD_ENDS = frozenset(("done", "absent", "collected"))
ENDS = GOOD_ENDS | {"failed", "gone", "conflict"}


class Protocol(NamedTuple):
    """The choices; the defaults are the protocol as it is, the others were rejected.

    take: which unreferenced overlay a creator may take, "young" or "any".  define_over: "young" ones only, or "any".
    touch: does a replacement make the overlay young that loses its domain?  declare: is a deletion declared, its volumes deleted first?
    """

    take: str = "young"
    define_over: str = "young"
    touch: bool = True
    declare: bool = True


class World(NamedTuple):
    overlays: frozenset = frozenset()
    old: frozenset = frozenset()
    defined: Optional[int] = None
    running: Optional[int] = None
    declared: bool = False
    written: frozenset = frozenset()

    @property
    def used(self):
        return frozenset((self.defined, self.running)) - {None}

    def without(self, gone):
        return self._replace(overlays=self.overlays - set(gone))


class Creator:
    def __init__(self, number, protocol):
        self.new, self.protocol = FIRST_NEW + number, protocol

    def begin(self, world, held):
        if world.defined is not None and not world.declared:
            return "hand_over", (world.defined,), world
        if world.defined is None and world.running is not None:
            return "failed", held, world
        free = world.overlays - world.written - world.used
        if self.protocol.take == "young":
            free -= world.old
        if free:
            return "hand_over", (max(free),), world
        return "hand_over", (self.new,), world._replace(overlays=world.overlays | {self.new})

    def _definable(self, world, overlay):
        return overlay in world.overlays and (self.protocol.define_over == "any" or overlay not in world.old)

    def hand_over(self, world, held):
        """The domain module begins, any time after the overlay module ended. A declared deletion is finished first."""
        if world.declared:
            return "finish_stop", held, world
        if world.defined is not None:
            return "check", (world.defined,), world
        if world.running is not None or not self._definable(world, held[0]):
            return "failed", held, world
        return "define", held, world

    def create(self, world, held):
        """A fresh look, once the deletion is finished."""
        if world.used or not self._definable(world, held[0]):
            return "failed", held, world
        return "define", held, world

    def define(self, world, held):
        """Defines or redefines, whatever came to be there meanwhile."""
        return "compare", held, world._replace(defined=held[0], declared=False)

    def compare(self, world, held):
        if world.defined is None:
            return "gone", held, world
        if world.running not in (None, world.defined):
            return "write_back", (world.running,), world
        return "check", held, world

    def write_back(self, world, held):
        return "check", held, world._replace(defined=held[0], declared=False)

    def check(self, world, held):
        if world.defined is None or world.declared:
            return "gone", held, world
        return ("start" if world.defined in world.overlays else "failed"), held, world

    def start(self, world, held):
        if world.defined is None:
            return "gone", held, world
        if world.running is not None:
            return "look_back", held, world
        if world.defined not in world.overlays:
            return "failed", held, world
        return "look_back", held, world._replace(running=world.defined)

    def look_back(self, world, held):
        if world.defined is None or world.running is None or world.declared:
            return "gone", held, world
        return ("done" if {world.defined, world.running} <= world.overlays else "failed"), held, world


class Updater(Creator):
    def begin(self, world, held):
        if world.defined is None or world.declared:
            return "gone", held, world
        return "define", (world.defined,), world

    def check(self, world, held):
        if world.defined is None or world.declared:
            return "gone", held, world
        return ("done" if world.used <= world.overlays else "failed"), held, world


class Restarter(Creator):
    """Stops the guest, defines it over the overlay that it has, with what waited for that, and starts it."""

    def begin(self, world, held):
        if world.defined is None or world.declared:
            return "gone", held, world
        return "stop", (world.defined, world.defined), world

    def stop(self, world, held):
        return "look", held, world._replace(running=None)

    def look(self, world, held):
        """A fresh look right before the define: the domain is there, off, and has the overlay that it had."""
        if world.defined is None or world.declared:
            return "gone", held, world
        if world.running is not None or world.defined != held[1]:
            return "failed", held, world
        return "define", held, world


class Replacer(Restarter):
    """Holds the new overlay and the one that the domain had when it began."""

    def begin(self, world, held):
        if world.defined is None or world.declared:
            return "gone", held, world
        return "hand_over", (self.new, world.defined), world._replace(overlays=world.overlays | {self.new})

    def hand_over(self, world, held):
        if world.defined is None or world.declared:
            return "gone", held, world
        return ("stop" if self._definable(world, held[0]) and world.defined == held[1] else "failed"), held, world

    def look(self, world, held):
        to, held, world = super().look(world, held)
        if to == "define":
            to = "touch" if self._definable(world, held[0]) else "failed"
        return to, held, world

    def touch(self, world, held):
        return "define", held, world._replace(old=world.old - (world.used if self.protocol.touch else frozenset()))

    def look_back(self, world, held):
        if world.defined is not None and world.defined != self.new:
            return "failed", held, world
        return super().look_back(world, held)


class Deleter:
    """Declares the deletion and deletes the volumes while the domain still names them."""

    def begin(self, world, held):
        if world.defined is not None:
            return "declare", held, world
        return ("sweep_list" if world.running is None else "destroy"), held, world

    def declare(self, world, held):
        return ("begin", held, world) if world.defined is None else ("stop", held, world._replace(declared=True))

    def stop(self, world, held):
        return "read", held, world._replace(running=None)

    def read(self, world, held):
        if world.defined is None:
            return "begin", held, world
        if not world.declared:
            return "conflict", held, world
        return ("stop", held, world) if world.running is not None else ("delete_named", (world.defined,), world)

    def delete_named(self, world, held):
        return "read_again", held, world.without(held)

    def read_again(self, world, held):
        if world.defined is None:
            return "destroy", held, world
        return ("undefine" if world.declared else "conflict"), held, world

    def undefine(self, world, held):
        return "destroy", held, world._replace(defined=None, declared=False)

    def destroy(self, world, held):
        if world.defined is not None and not world.declared:
            return "conflict", held, world
        if world.running is not None and world.defined is None:
            return "destroy", held, world._replace(running=None)
        return "sweep_list", held, world

    def sweep_list(self, world, held):
        return "sweep", tuple(sorted(world.overlays - world.used)), world

    def sweep(self, world, held):
        return "look_again", held, world.without(held)

    def look_again(self, world, held):
        return ("conflict" if world.used & set(held) else "absent"), held, world


def _finishing(step):
    """A step of a deletion, taken by a creator that found it declared: the overlay that it holds itself is not swept up."""
    def method(self, world, held):
        to, holds, after = getattr(Deleter(), step)(world, held[1:])
        holds = held[:1] + tuple(overlay for overlay in holds if step != "sweep_list" or overlay != held[0])
        if to == "absent":
            return "create", held[:1], after
        # Gone at a second look: nothing is declared once more, which would be the deletion of somebody else's new instance.
        return ("finish_destroy" if to == "begin" else to if to in ENDS else f"finish_{to}"), holds, after
    return method


for _step in ("stop", "read", "delete_named", "read_again", "undefine", "destroy", "sweep_list", "sweep", "look_again"):
    setattr(Creator, f"finish_{_step}", _finishing(_step))


class UndefiningDeleter:
    """The rejected order: undefine first, delete the volumes afterwards."""

    def begin(self, world, held):
        return ("stop", tuple(sorted(world.used)), world) if world.used else ("absent", held, world)

    def stop(self, world, held):
        return "undefine", held, world._replace(running=None)

    def undefine(self, world, held):
        return "destroy", held, world._replace(defined=None, declared=False)

    def destroy(self, world, held):
        if world.defined is not None:
            return "conflict", held, world
        if world.running is not None:
            return "destroy", tuple(sorted({*held, world.running})), world._replace(running=None)
        return "list_users", held, world

    def list_users(self, world, held):
        return ("conflict" if world.used & set(held) else "delete"), held, world

    def delete(self, world, held):
        return "absent", held, world.without(held)


class Collector:
    def begin(self, world, held):
        return "look_again", tuple(sorted((world.overlays & world.old) - world.used)), world

    def look_again(self, world, held):
        return "delete", tuple(overlay for overlay in held if overlay in world.old and overlay not in world.used), world

    def delete(self, world, held):
        return "collected", held, world.without(held)


def make_run(kind, number, protocol):
    if kind == "delete":
        return Deleter() if protocol.declare else UndefiningDeleter()
    if kind == "collect":
        return Collector()
    return {"create": Creator, "update": Updater, "restart": Restarter, "replace": Replacer}[kind](number, protocol)


def faults(begin, before, after, kind, step, places):
    """What is wrong after a step of a run of that kind."""
    if kind == "collect" and (before.overlays - after.overlays) & after.used:
        yield "a collector deleted an overlay in use"
    if step == "done" and after.defined not in after.overlays:
        yield "success on a missing disk"
    if any(place not in ENDS for _kind, place, _held in places):
        return
    silent = all(place in GOOD_ENDS for _kind, place, _held in places)
    if silent and after.used - after.overlays:
        yield "ends without its disk, and nobody said so"
    if silent and after.running not in (None, after.defined):
        yield "ends on another disk than configured, and nobody said so"
    if not begin.declared and not any(kind in ("delete", "replace") for kind, _place, _held in places):
        data = ({begin.defined} & begin.written) | {overlay for overlay in after.written if overlay >= FIRST_NEW}
        if data - after.overlays:
            yield "guest data lost without a deletion"


def explore(kinds, begin, protocol):
    """(number of states, set of faults) of all interleavings of runs of these kinds."""
    runs = [make_run(kind, number, protocol) for number, kind in enumerate(kinds)]
    start = (begin, tuple((kind, "begin", ()) for kind in kinds))
    seen, todo, found = {start}, [start], set()
    while todo:
        world, places = todo.pop()
        following = list(_by_themselves(world, places))
        for number, (kind, step, held) in enumerate(places):
            if step not in ENDS:
                to, holds, after = getattr(runs[number], step)(world, held)
                following.append((after, kind, to, places[:number] + ((kind, to, holds),) + places[number + 1:]))
        for after, kind, step, now in following:
            found.update(faults(begin, world, after, kind, step, now))
            if (after, now) not in seen:
                seen.add((after, now))
                todo.append((after, now))
    return len(seen), found


def _by_themselves(world, places):
    """A running guest writes, and time makes overlays old: but not between a run's look at one and the define that follows at once."""
    if world.running is not None and world.running not in world.written:
        yield world._replace(written=world.written | {world.running}), "guest", "write", places
    if not any(kind == "collect" for kind, _step, _held in places):
        return
    fresh = {held[0] for kind, step, held in places if kind != "delete" and held and step in ("define", "touch")}
    if any((kind, step) == ("replace", "define") for kind, step, _held in places):
        fresh |= world.used
    for overlay in world.overlays - world.old - fresh:
        yield world._replace(old=world.old | {overlay}), "time", "age", places
