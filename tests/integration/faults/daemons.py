# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: daemons.py PROTOCOLS WHATS, each a list with commas or "all", stops (SIGSTOP), kills or restarts the daemon in the middle
of each protocol, and prints a JSON line for each: how long the module took to give up, and whether a quiet second run mended what was left."""

from __future__ import annotations

import re
import sys

import daemon
import ground
from bounded import call, quiet
from forwarder import Forwarder, Place, once, unix_listener
from table import ADDRESSES, DOWNLOAD, POOL_XML, UPLOAD, chosen

CREATE_VOLUME, DELETE_VOLUME, CREATE_DOMAIN, DESTROY, UNDEFINE, METADATA, DEFINE = 93, 94, 9, 12, 231, 264, 350

# Places of each protocol: the name of the step, and where the daemon is dealt with. "call" is before it gets the call, "reply" after it did it.
PROTOCOLS = {
    "image": {
        "before create": Place("call", CREATE_VOLUME), "after create": Place("reply", CREATE_VOLUME), "upload": Place("sent", UPLOAD, 2 * 1024 ** 2),
        "read back": Place("received", DOWNLOAD, 2 * 1024 ** 2), "before record": Place("call", CREATE_VOLUME, 2),
        "after record": Place("finish", UPLOAD, 2)},
    "overlay": {"before create": Place("call", CREATE_VOLUME), "after create": Place("reply", CREATE_VOLUME)},
    "domain": {
        "before seed": Place("call", CREATE_VOLUME), "before define": Place("call", DEFINE), "after define": Place("reply", DEFINE),
        "before start": Place("call", CREATE_DOMAIN), "after start": Place("reply", CREATE_DOMAIN)},
    "absent": {
        "before declared": Place("call", METADATA), "after declared": Place("reply", METADATA), "after destroy": Place("reply", DESTROY),
        "before delete": Place("call", DELETE_VOLUME), "after delete": Place("reply", DELETE_VOLUME), "after undefine": Place("reply", UNDEFINE)},
    "gc": {"before delete": Place("call", DELETE_VOLUME), "after delete": Place("reply", DELETE_VOLUME)},
    # Nothing is changed there, so a daemon that comes back is nothing that anybody notices.
    "look": {"before the first answer": Place("call", POOL_XML), "after it": Place("reply", POOL_XML)},
    "wait": {"between two looks": Place("reply", ADDRESSES, 2), "in a look": Place("call", ADDRESSES, 2)},
}
# A wait for what never comes lasts so many intervals of keepalive, longer than a daemon needs to come back.
WAIT = 6
WHATS = {"stop": daemon.stop, "kill": daemon.kill, "restart": daemon.restart}


class Subject:
    """What one case works on: `name` is its instance or image."""

    def __init__(self, protocol, name, base):
        self.protocol, self.name, self.base = protocol, name, base
        if protocol == "domain":
            quiet(*ground.overlay(name, base))
        if protocol in ("absent", "gc", "wait"):
            ground.guest(name, base)
        if protocol == "gc":
            # The collector asks a guest to shut down, and nothing in this one could.
            ground.shell("virsh", "destroy", f"{ground.FLEET}.{name}")

    def run(self, uri=ground.LOCAL):
        """The module and its options."""
        if self.protocol == "image":
            return ground.image(self.name, uri)
        if self.protocol == "overlay":
            return ground.overlay(self.name, self.base, uri)
        if self.protocol == "domain":
            return ground.domain(self.name, uri)
        if self.protocol == "absent":
            return ground.absent(self.name, uri)
        if self.protocol == "look":
            return ground.look(uri)
        if self.protocol == "wait":
            return ground.domain(self.name, uri, wait={"for": "address", "timeout": f"{ground.limits.interval * WAIT}s"})
        return ground.collect(uri, live=["keeper"], collect=["domains"])

    def problems(self):
        """After the quiet run: is everything as it should be, seen without the code under test?"""
        files = [one for one in ground.files() if re.search(rf"[-.]{self.name}-", one)]
        state = ground.shell("virsh", "domstate", f"{ground.FLEET}.{self.name}", check=False).strip()
        if self.protocol == "image":
            # The daemon may have made one that nobody filled, when it went on after its client had gone.
            records = [one for one in files if one.endswith(".json") and ground.is_record(one)]
            return [] if len(records) == 1 and records[0][:-5] in files else [f"not one record and its base: {files}"]
        if self.protocol == "overlay":
            return [] if any(one.endswith(".qcow2") for one in files) else [f"no overlay: {files}"]
        if self.protocol == "look":
            return []
        if self.protocol in ("domain", "wait"):
            return [] if state == "running" else [f"the domain is {state}"]
        if "failed to get domain" not in state or files:
            return [f"left: domain {state}, {files}"]
        return []

    def again(self):
        """A quiet second run."""
        if self.protocol == "wait":
            quiet(*ground.domain(self.name))
        else:
            quiet(*self.run())

    def clear(self):
        if self.protocol in ("domain", "overlay", "wait"):
            quiet(*ground.absent(self.name))


def one(protocol, step, what, number, base):
    name = f"d{number}"
    subject = Subject(protocol, name, base)
    path = f"{ground.FAR_SOCKETS if step == 'read back' else ground.SOCKETS}/{name}.sock"
    with Forwarder(unix_listener(path), ground.SOCKET, PROTOCOLS[protocol][step], once(WHATS[what])) as forwarder:
        ended = call(*subject.run(f"qemu+unix:///system?socket={path}"))
    daemon.mend()
    problems = ended.problems()
    bound = ground.limits.bound(ground.limits.keepalive if what == "stop" else ground.limits.timeout)
    gave_up = ended.ended - forwarder.fired if forwarder.fired else None
    if gave_up is None:
        problems.append(f"it never came to the step: {ended.output[-800:]}")
    elif gave_up > bound:
        problems.append(f"it took {gave_up:.1f} s of {bound} s")
    if ended.failed and ended.kind != "transient":
        problems.append(f"its kind is {ended.kind}")
    if protocol in ("look", "wait") and what != "stop":
        problems += unnoticed(protocol, ended)
    subject.again()
    problems += subject.problems()
    subject.clear()
    ground.tell(
        protocol=protocol, step=step, what=what, gave_up=None if gave_up is None else round(gave_up, 2), bound=bound, failed=ended.failed,
        kind=ended.kind, msg=(ended.result or {}).get("msg", ""), problems=problems)
    return problems


def unnoticed(protocol, ended):
    """What is wrong where the module should have gone on: a look succeeds, and a wait lasts until its own time is over."""
    if protocol == "look":
        return [f"it failed: {ended.output}"] if ended.failed else []
    text = (ended.result or {}).get("msg", "")
    return [] if "it is not there" in text else [f"the wait did not go on: {text}"]


def main():
    ground.lay()
    base, bad, number = ground.base(), [], 0
    try:
        ground.guest("keeper", base)
        for protocol in chosen(sys.argv[1], PROTOCOLS):
            ground.measure()
            for step in PROTOCOLS[protocol]:
                for what in chosen(sys.argv[2], WHATS):
                    number += 1
                    bad += one(protocol, step, what, number, base)
    finally:
        daemon.mend()
        ground.clear()
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
