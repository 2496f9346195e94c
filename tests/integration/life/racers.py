# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: racers.py ROUNDS. In each round creators, an updater, a replacer, a restarter, a deleter and collectors act on one instance at
once, each in a process of its own that pauses at random between its calls of libvirt. What is old is made so between the rounds. Prints counts and what
must never be, as JSON."""

from __future__ import annotations

import collections
import json
import os
import random
import sys

import runs

FLEET, NAME = "life-race", "life-race.one"
PAUSES = 0.08
EVERYBODY = ("create", "create", "redefine", "replace", "delete", "collect")
DELETING = {"delete", "collect_all", "replace"}


class Race:
    def __init__(self, dice, bases):
        self.dice, self.bases = dice, bases
        self.counts, self.broken = collections.Counter(), []
        self.errors = collections.Counter()

    def begin(self):
        """Where a round starts from: as the last one was mended, switched off, gone, or with a deletion that was killed."""
        start = self.dice.choice(("running", "running", "off", "nothing", "declared"))
        if start == "off":
            runs.shell("virsh", "-q", "destroy", NAME)
        if start == "nothing":
            runs.quiet(runs.delete, FLEET)
        if start == "declared":
            runs.Run(runs.delete, FLEET, at="after virDomain.setMetadata 1").end()
        # Runs of one round all come within half an hour, so nothing gets old in the middle of it.
        runs.make_old(runs.files(FLEET))
        return start

    def run(self, kind):
        jobs = {
            "create": (runs.create, FLEET, self.bases[0]), "redefine": (runs.redefine, FLEET), "restart": (runs.restart, FLEET),
            "replace": (runs.replace, FLEET, self.bases[1]), "delete": (runs.delete, FLEET), "collect": (runs.collect, FLEET, ["one"]),
            "collect_all": (runs.collect, FLEET, [])}
        return runs.Run(*jobs[kind], pauses=PAUSES)

    def round(self, number):
        start = self.begin()
        had = runs.disks(NAME, "--inactive") or []
        kinds = EVERYBODY if number % 2 == 0 else tuple(
            self.dice.choice(("create", "create", "redefine", "restart", "replace", "replace", "delete", "collect", "collect_all")) for _run in range(5))
        if number % 6 == 5:
            kinds = ("create", "create", "redefine", "collect")
        done = [(kind, self.run(kind)) for kind in self.dice.sample(kinds, len(kinds))]
        results = [(kind, one.end().result) for kind, one in done]
        self.judge(f"round {number} from {start}: {' '.join(kinds)}", start, had, results)
        self.bases.reverse()
        self.mend(number)

    def judge(self, said, start, had, results):
        told = []
        for kind, result in results:
            self.counts[f"{kind} {'failed' if result.failed else 'succeeded'}"] += 1
            for error in result.errors if result.failed else ():
                self.errors[error["kind"], error["act"], error["hint"]] += 1
                told.append(error["message"])
                if error["kind"] not in ("transient", "conflict"):
                    self.broken.append(f"{said}: {kind}: {error['message']}")
        named = {path for flags in ((), ("--inactive",)) for path in runs.disks(NAME, *flags) or []}
        for kind, result in results:
            if kind == "collect":
                gone = {f"{runs.FOLDER}/{item['name']}" for item in getattr(result, "collected", ())}
                self.counts["volumes collected"] += len(gone)
                self.broken += [f"{said}: {path} was collected and is in use" for path in gone & named]
        kinds = {kind for kind, _result in results}
        if not kinds & DELETING and start in ("running", "off"):
            self.broken += [f"{said}: {path} is lost" for path in had if path.endswith(".qcow2") and not os.path.exists(path)]
            if kinds <= {"create", "redefine", "collect"} and any(kind == "create" and not result.failed for kind, result in results):
                self.broken += [f"{said}: {fault}, {told}" for fault in runs.faults(NAME)]
        if not told:
            self.counts["rounds in which nobody said a thing"] += 1
            missing = [path for path in named if not os.path.exists(path)]
            self.broken += [f"{said}: {path} has gone and nobody said so" for path in missing]
            if runs.state(NAME) == "running":
                self.broken += [f"{said}: {fault} and nobody said so" for fault in runs.faults(NAME)]
        self.counts["rounds that ended whole" if runs.state(NAME) is None or not runs.faults(NAME) else "rounds to be mended"] += 1

    def mend(self, number):
        done = runs.quiet(runs.replace, FLEET, self.bases[1])
        found = runs.faults(NAME, self.bases[1])
        if found or done.instances[0]["drift"]:
            self.broken.append(f"round {number} was not mended: {found} {done.instances[0]['drift']}")


def main():
    rounds = int(sys.argv[1])
    race = Race(random.Random(rounds), runs.ground())
    runs.quiet(runs.create, FLEET, race.bases[0])
    for number in range(rounds):
        race.round(number)
        if race.broken:
            break
        print(number, dict(race.counts), file=sys.stderr, flush=True)
    else:
        runs.make_old(runs.files(FLEET))
        runs.quiet(runs.collect, FLEET, ["one"])
        if len(runs.files(FLEET)) != 2:
            race.broken.append(f"after the last collection: {runs.files(FLEET)}")
        runs.quiet(runs.delete, FLEET)
        race.broken += [f"{name} is left" for name in runs.files(FLEET)]
    print(json.dumps({"counts": race.counts, "broken": race.broken, "errors": [[*key, number] for key, number in race.errors.items()]}))


if __name__ == "__main__":
    main()
