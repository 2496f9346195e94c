# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: counting.py FEW MANY counts, with that many instances, what each module asks of the daemon, and prints how much of it is
the module's own and how much each instance adds. docs/scaling.md has the figures."""

from __future__ import annotations

import sys

import ground
from bounded import call
from forwarder import CALL, KEEPALIVE, Forwarder, Place, unix_listener

TIMEOUT = "15m"


def counted(module, options, name):
    """Calls to the daemon, bytes both ways, and the result."""
    path = f"{ground.SOCKETS}/{name}.sock"
    with Forwarder(unix_listener(path), ground.SOCKET, Place("reply", 9999), "close") as forwarder:
        ended = call(module, dict(options, uri=f"qemu+unix:///system?socket={path}", timeout=TIMEOUT, keepalive_interval=10))
    if ended.failed or ended.problems():
        raise AssertionError(f"{module}: {ended.output[-2000:]}")
    calls = sum(header[4] == CALL and header[1] != KEEPALIVE for from_client, header in forwarder.headers if from_client)
    return calls, sum(header[0] for _from_client, header in forwarder.headers), ended.ended - ended.began


def runs(count, base):
    names = [{"name": f"n{number}"} for number in range(count)]
    common = {"fleet": ground.FLEET, "pool": ground.POOL, "instances": names}
    given = {**ground.domain("n0")[1], **common, "state": "defined"}
    yield "kvm2_pool_check", "", {"pool": ground.POOL}
    yield "kvm2_image", "", {"key": "disk", "src": ground.DISK, "pool": ground.POOL}
    yield "kvm2_overlay", "first", {**common, "base": base}
    yield "kvm2_domain", "first", given
    yield "kvm2_overlay", "again", {**common, "base": base}
    yield "kvm2_domain", "again", given
    yield "kvm2_gc", "nothing to do", {"fleet": ground.FLEET, "pools": [ground.POOL], "live": [one["name"] for one in names]}
    yield "kvm2_domain", "absent", {**common, "state": "absent"}


def main():
    few, many = map(int, sys.argv[1:])
    counts = {}
    for count in (few, many):
        ground.lay()
        base = ground.base()
        try:
            for number, (module, what, options) in enumerate(runs(count, base)):
                counts.setdefault((module, what), []).append(counted(module, options, f"{count}-{number}"))
        finally:
            ground.clear()
    for (module, what), ((calls, size, _took), (more_calls, more_size, took)) in counts.items():
        each = (more_calls - calls) / (many - few)
        ground.tell(
            module=module, what=what, calls_each=round(each, 1), calls_once=round(calls - few * each, 1),
            kib_each=round((more_size - size) / (many - few) / 1024, 1), seconds=round(took, 1), instances=many, problems=[])


if __name__ == "__main__":
    main()
