# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: killing.py SCENARIO... kills each of these runs after each of its steps that changes something, converges, collects what is
old, and removes. Prints the places that were killed at, by scenario."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ProcessPoolExecutor

import runs
from steps import changing, without_downloads

USERS = 2


def nothing(_fleet, _base):
    """Nothing is there yet."""


def running(fleet, base):
    runs.quiet(runs.create, fleet, base)


# What is there before, the run that is killed, and what it is given.
SCENARIOS = {
    "create": (nothing, runs.create, lambda fleet, old, new: (fleet, old)),
    "redefine": (running, runs.redefine, lambda fleet, old, new: (fleet,)),
    "restart": (running, runs.restart, lambda fleet, old, new: (fleet,)),
    "replace": (running, runs.replace, lambda fleet, old, new: (fleet, new)),
    "delete": (running, runs.delete, lambda fleet, old, new: (fleet,)),
}


def places(steps, both):
    """Before the first change and after each; with both also before each other one, which differs by what was looked at. Amid the seed, too."""
    found = changing(without_downloads(steps))
    found = found if both else [at for number, at in enumerate(found) if number == 0 or at.startswith("after")]
    return [*found, *(["sent 1000"] if any(step.startswith("virStorageVol.upload") for step in steps) else [])]


def follow(name, number, at, old, new):
    """One kill, and all that comes after it."""
    start, job, given = SCENARIOS[name]
    fleet = f"life-{name}-{number}"
    start(fleet, old)
    killed = runs.Run(job, *given(fleet, old, new), at=at).end().killed
    said = f"{name} killed {killed}"
    done = runs.quiet(runs.replace, fleet, new)
    found = runs.faults(f"{fleet}.one", new)
    used = sorted(path.rpartition("/")[2] for path in runs.disks(f"{fleet}.one"))
    if found or done.instances[0]["drift"]:
        raise AssertionError(f"{said}: {found}, {done.instances[0]['drift']}")
    runs.make_old(runs.files(fleet))
    runs.quiet(runs.collect, fleet, ["one"])
    if runs.files(fleet) != used or runs.faults(f"{fleet}.one", new):
        raise AssertionError(f"{said}: {runs.files(fleet)} were left after the collection, {used} are in use; {runs.faults(f'{fleet}.one', new)}")
    remove(fleet, said)
    if number % 3 == 0:
        # Removed in the state that the kill left, without a converge before.
        start(fleet, old)
        runs.Run(job, *given(fleet, old, new), at=at).end()
        remove(fleet, f"{said} and not converged")
    print(said, file=sys.stderr, flush=True)
    return killed


def remove(fleet, said):
    runs.quiet(runs.delete, fleet)
    if runs.state(f"{fleet}.one") is not None or runs.files(fleet):
        raise AssertionError(f"{said}: {runs.state(f'{fleet}.one')} and {runs.files(fleet)} were left after the removal")


def main():
    both, wanted = sys.argv[1] == "both", sys.argv[2:]
    old, new = runs.ground()
    todo = []
    for name in wanted:
        start, job, given = SCENARIOS[name]
        fleet = f"life-{name}"
        start(fleet, old)
        whole = runs.Run(job, *given(fleet, old, new)).end()
        if whole.result.failed:
            raise AssertionError(f"{name}: {whole.result.msg}")
        runs.quiet(runs.delete, fleet)
        todo += [(name, number, at) for number, at in enumerate(places(whole.steps, both))]
    with ProcessPoolExecutor(USERS, mp_context=runs.FORK) as users:
        waiting = [(name, users.submit(follow, name, number, at, old, new)) for name, number, at in todo]
        print(json.dumps([[name, future.result()] for name, future in waiting]))


if __name__ == "__main__":
    main()
