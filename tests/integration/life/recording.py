# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: recording.py prints the recorded calls of a creation, a redefinition, a restart, a replacement and a deletion, each alone."""

from __future__ import annotations

import json

import runs

FLEET = "life-order"


def main():
    old, new = runs.ground()
    found = {}
    for name, job, arguments in (
            ("create", runs.create, (FLEET, old)), ("update", runs.redefine, (FLEET,)), ("restart", runs.restart, (FLEET,)),
            ("replace", runs.replace, (FLEET, new)), ("delete", runs.delete, (FLEET,))):
        done = runs.Run(job, *arguments, trace=True).end()
        if done.result.failed:
            raise AssertionError(f"{name}: {done.result.msg}")
        found[name] = done.calls
    print(json.dumps(found))


if __name__ == "__main__":
    main()
