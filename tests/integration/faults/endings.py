# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: endings.py asks modules to end by each signal, in a wait for a guest and in an upload, and prints for each how long the module
took, what it said, and what it left."""

from __future__ import annotations

import os
import signal
import sys

import ground
from bounded import Call, quiet
from forwarder import Forwarder, Place, unix_listener
from peer import THROUGH_SSH
from table import ADDRESSES, UPLOAD
from ways_in import judge

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PLACES = {"wait": Place("reply", ADDRESSES, 2), "upload": Place("sent", UPLOAD, 2 * 1024 ** 2)}
# Such a module ends at its next step.
STEP = 1


def end(place, transport, number):
    name = f"{place}-{transport}-{number.name.lower()}"
    path = f"{ground.SOCKETS}/{name}.sock"
    uri = THROUGH_SSH.format(path) if transport == "ssh" else f"qemu+unix:///system?socket={path}"
    module, options = ground.image(name, uri) if place == "upload" else ground.domain("one", uri, wait={"for": "address", "timeout": "10m"})
    runs = []
    with Forwarder(unix_listener(path), ground.SOCKET, PLACES[place], lambda: os.kill(runs[0].pid, number)) as forwarder:
        runs.append(Call(module, dict(options, timeout="15m")))
        ended = runs[0].end()
    left = [f"{one} is left" for one in ground.files() if name in one]
    if ended.code != 1:
        left.append(f"its exit code is {ended.code}")
    # What waited for a guest did nothing to it.
    if ground.shell("virsh", "domstate", f"{ground.FLEET}.one").strip() != "running":
        left.append("the guest does not run any more")
    return judge(name, ended, forwarder.fired or ended.began, "transient", ["asked to end", number.name], STEP, left)


def main():
    # A shell has what it runs in the background ignore ^C, and so would the modules.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ground.lay()
    try:
        ground.guest("one", ground.base())
        cases = [("wait", "unix"), ("wait", "ssh"), ("upload", "unix")]
        bad = [end(place, transport, number) for place, transport in cases for number in SIGNALS]
        quiet(*ground.domain("one"))
    finally:
        ground.clear()
    sys.exit(any(bad))


if __name__ == "__main__":
    main()
