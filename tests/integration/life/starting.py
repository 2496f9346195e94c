# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: starting.py has the guest started before and after each step of its removal, as something at boot may do. It goes all the same.
Prints for each place whether the guest could be started there."""

from __future__ import annotations

import json
import sys

import runs
from steps import changing, without_downloads

FLEET, NAME = "life-started", "life-started.one"
STARTED, NOT_STARTED = "started", "not-started"


def start():
    return NOT_STARTED if runs.shell("virsh", "-q", "start", NAME, check=False).returncode else STARTED


def removed(base, at):
    """What became of the start at that place of a removal, which leaves nothing."""
    runs.quiet(runs.create, FLEET, base)
    run = runs.Run(runs.delete, FLEET, at=at, rival=start).end()
    left = runs.files(FLEET)
    if run.result.failed or runs.state(NAME) is not None or left:
        raise AssertionError(f"started {run.killed}: {run.result.msg if run.result.failed else ''} {runs.state(NAME)} {left}")
    print(run.killed, file=sys.stderr, flush=True)
    return run.killed.rpartition(" ")[2] == STARTED


def main():
    base, _other = runs.ground()
    runs.quiet(runs.create, FLEET, base)
    whole = runs.Run(runs.delete, FLEET).end()
    print(json.dumps({at: removed(base, at) for at in changing(without_downloads(whole.steps))}))


if __name__ == "__main__":
    main()
