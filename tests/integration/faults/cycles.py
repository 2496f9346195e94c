# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: cycles.py FAST SILENT opens, uses and closes so many connections to each peer that fails fast, and to each silent one, in
one process a peer, and prints a JSON line for each: its threads, descriptors and children before and after, which have to be equal."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import ground
from peer import NAMES, peer

from ansible_collections.egress.kvm2.plugins.module_utils._host.deadline import Deadline
from ansible_collections.egress.kvm2.plugins.module_utils._host.ending import children
from ansible_collections.egress.kvm2.plugins.module_utils._host.libvirt_hypervisor import LibvirtHypervisor
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error

AT_ONCE = 3
CONNECT = 10
SILENT_CONNECT = 2
SETTLE = 5
# A connection that works costs the daemon some time, which tells nothing: a share of the cycles do.
WORK = 20
# Who answers with nonsense is no libvirt daemon.
NONSENSE = ("nonsense-unix", "huge-tcp", "http-tcp")


def cycle(uri, silent):
    """Seconds that one connection took, and the kind of its failure or ""."""
    began, kind, hypervisor = time.monotonic(), "", None
    deadline = Deadline(60, uri)
    try:
        hypervisor = LibvirtHypervisor(uri, deadline, SILENT_CONNECT if silent else CONNECT, 1, 1, open_again=0)
        hypervisor.host()
    except Kvm2Error as error:
        kind = error.kind
    finally:
        if hypervisor is not None and not hypervisor.close():
            kind = "a thread is stuck in it"
        deadline.cancel()
    return time.monotonic() - began, kind


def held():
    """What this process has: threads, descriptors and children."""
    return {
        "threads": len(os.listdir("/proc/self/task")), "python": threading.active_count(), "descriptors": len(os.listdir("/proc/self/fd")),
        "children": len(children())}


def settled(wanted):
    """What is held once it is as wanted, or after a moment whatever it is: what the kernel still takes down is no leak."""
    until = time.monotonic() + SETTLE
    while held() != wanted and time.monotonic() < until:
        time.sleep(0.05)
    return held()


def one(name, count):
    silent = name.startswith("silent")
    with peer(name) as uri:
        # What the libraries make once for a process is made by these.
        kinds = {cycle(uri, silent)[1] for _number in range(2)}
        before = held()
        taken = []
        for _number in range(count):
            seconds, kind = cycle(uri, silent)
            taken.append(seconds)
            kinds.add(kind)
        after = settled(before)
    problems = [] if before == after else [f"before {before}, after {after}"]
    expected = {""} if name.startswith("well") else {"permanent"} if name in NONSENSE else {"transient"}
    if kinds != expected:
        problems.append(f"its kinds are {sorted(kinds)}")
    ground.tell(peer=name, cycles=count, before=before, after=after, longest=round(max(taken), 2), kinds=sorted(kinds), problems=problems)
    return bool(problems)


def main():
    if len(sys.argv) == 4:
        fast, silent = map(int, sys.argv[1:3])
        kind = sys.argv[3].partition("-")[0]
        sys.exit(one(sys.argv[3], silent if kind == "silent" else fast // WORK if kind == "well" else fast))
    ground.lay()
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            codes = list(pool.map(lambda name: subprocess.run([sys.executable, __file__, *sys.argv[1:3], name], check=False).returncode, NAMES))
    finally:
        ground.clear()
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
