# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: many.py INSTANCES REPLACEMENTS. So many instances are defined, found unchanged and removed; one is replaced so many times in a
row, and what was replaced is collected once it is old."""

from __future__ import annotations

import os
import sys

import runs

MANY, ROLLED = "life-many", "life-rolled"


def require(truth, said):
    if not truth:
        raise AssertionError(said)


def define(hypervisor, names, base):
    return runs.create(hypervisor, MANY, base, names, state="defined")


def instances(count, base):
    names = [f"n{number}" for number in range(count)]
    first = runs.quiet(define, names, base)
    require(first.changed and len(first.instances) == count, first.msg if first.failed else first.actions)
    listed = [name for name in runs.shell("virsh", "-q", "list", "--all", "--name").stdout.split() if name.startswith(f"{MANY}.")]
    require(sorted(listed) == sorted(f"{MANY}.{name}" for name in names), listed)
    # An overlay and a seed of each.
    require(len(runs.files(MANY)) == 2 * count, runs.files(MANY))
    again = runs.quiet(define, names, base)
    require(not again.changed and len(runs.files(MANY)) == 2 * count, again.actions)
    runs.quiet(runs.delete, MANY, names)
    require(not runs.files(MANY) and f"{MANY}." not in runs.shell("virsh", "-q", "list", "--all", "--name").stdout, runs.files(MANY))
    require(not runs.quiet(runs.delete, MANY, names).changed, "a second removal changed something")


def replacements(count, bases):
    runs.quiet(runs.create, ROLLED, bases[0])
    name = f"{ROLLED}.one"
    for number in range(1, count + 1):
        before = set(runs.disks(name, "--inactive"))
        # First a newer image, then another seed each time. A guest with nothing to boot writes nothing, so going back to the former image would be
        # given the overlay that it left there.
        base = bases[1]
        done = runs.quiet(runs.replace, ROLLED, base, ("one",), f"#!{number}\n")
        found = runs.faults(name, base)
        require(not found and not done.instances[0]["drift"], f"replacement {number}: {found}")
        require(not before & set(runs.disks(name)), f"replacement {number} kept {before}")
        # What lost its domain is left to the collector, and nothing else is.
        require(len(runs.files(ROLLED)) == 2 * (number + 1), f"replacement {number}: {runs.files(ROLLED)}")
    young = runs.quiet(runs.collect, ROLLED, ["one"])
    require(not young.changed, f"young ones were collected: {young.actions}")
    runs.make_old(runs.files(ROLLED))
    runs.quiet(runs.collect, ROLLED, ["one"])
    require(runs.files(ROLLED) == sorted(os.path.basename(path) for path in runs.disks(name)), runs.files(ROLLED))
    require(not runs.faults(name), runs.faults(name))
    runs.quiet(runs.delete, ROLLED)
    require(not runs.files(ROLLED), runs.files(ROLLED))


def main():
    bases = runs.ground()
    instances(int(sys.argv[1]), bases[0])
    replacements(int(sys.argv[2]), bases)


if __name__ == "__main__":
    main()
