# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: ways_in.py gives a module URIs under which it cannot get in, and prints for each how long it took to say so, and what."""

from __future__ import annotations

import os
import signal
import sys
import time

import ground
from bounded import Call, call, quiet
from forwarder import Forwarder, Place, once, unix_listener
from peer import SSH, THROUGH_SSH, here
from table import ADDRESSES

OTHER_KEYS, NO_KEYS, NO_KEY = f"{ground.FOLDER}/other-hosts", f"{ground.FOLDER}/no-hosts", f"{ground.FOLDER}/other-key"


def others():
    """A known_hosts with another key for this machine, an empty one, and a key that nobody lets in."""
    ground.shell("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", NO_KEY)
    with open(f"{NO_KEY}.pub", encoding="ascii") as public, open(OTHER_KEYS, "w", encoding="ascii") as file:
        file.write("* " + public.read())
    with open(NO_KEYS, "w", encoding="ascii"):
        pass


def judge(case, ended, began, kind, words, limit=None, more=()):
    bound = ground.limits.bound(limit or ground.limits.connect)
    problems, took = [*ended.problems(), *more], ended.ended - began
    if took > bound:
        problems.append(f"it took {took:.1f} s of {bound} s")
    text = (ended.result or {}).get("msg", "")
    if not ended.failed or ended.kind != kind:
        problems.append(f"its kind is {ended.kind!r} and not {kind!r}")
    if not all(word.lower() in text.lower() for word in words):
        problems.append(f"it does not speak of {words}")
    ground.tell(case=case, gave_up=round(took, 2), bound=bound, failed=ended.failed, kind=ended.kind, msg=text, problems=problems)
    return bool(problems)


def refused(case, kind, words, uri, **more):
    began = time.monotonic()
    return judge(case, call(*ground.look(uri, **more)), began, kind, words)


def ssh_dies(case, how, words, limit):
    """The ssh of a module that waits for a guest is killed after two looks; how: once or at each connection."""
    path = f"{ground.SOCKETS}/{case.replace(' ', '-')}.sock"
    module, options = ground.domain("one", THROUGH_SSH.format(path), wait={"for": "address", "timeout": ground.limits.timeout})
    runs = []

    def kill():
        for pid, command in runs[0].processes():
            if command.startswith("ssh "):
                os.kill(pid, signal.SIGKILL)

    with Forwarder(unix_listener(path), ground.SOCKET, Place("reply", ADDRESSES, 2), how(kill)) as forwarder:
        runs.append(Call(module, dict(options, timeout=6 * ground.limits.timeout)))
        ended = runs[0].end()
    return judge(case, ended, forwarder.fired or ended.began, "transient", words, limit)


def main():
    ground.lay()
    others()
    plain = SSH.replace(":{}", "")
    bad = []
    try:
        with here("no-socket", f"{ground.SOCKETS}/none") as uri:
            bad.append(refused("no socket", "transient", ["libvirtd"], uri))
        with here("port-closed-tcp", "") as uri:
            bad.append(refused("port closed", "transient", ["refused"], uri))
        with here("http-tcp", "") as uri:
            bad.append(refused("an HTTP server on the port", "permanent", ["no libvirt daemon"], uri))
        with here("port-closed-ssh", "") as uri:
            bad.append(refused("port of ssh closed", "transient", ["refused"], uri))
        with here("http-ssh", "") as uri:
            bad.append(refused("an HTTP server on the port of ssh", "transient", ["sshd"], uri))
        bad.append(refused("an SSH server on the port", "permanent", ["no libvirt daemon"], "qemu+tcp://127.0.0.1:22/system"))
        bad.append(refused("host key changed", "permanent", ["key"], plain, ssh_known_hosts=OTHER_KEYS))
        bad.append(refused("host key unknown", "permanent", ["key"], plain, ssh_known_hosts=NO_KEYS))
        for library in ("libssh", "libssh2"):
            there = f"qemu+{library}://root@127.0.0.1/system?known_hosts="
            bad.append(refused(f"host key changed, {library}", "permanent", ["key", "known_hosts in the URI"], there + OTHER_KEYS))
            bad.append(refused(f"host key unknown, {library}", "permanent", ["key", "known_hosts in the URI"], there + NO_KEYS))
        bad.append(refused("wrong user", "permanent", ["permission denied"], plain.replace("root@", "nobody@")))
        bad.append(refused("wrong key", "permanent", ["permission denied"], plain.replace(ground.KEY, NO_KEY) + "&sshauth=privkey"))
        quiet(*ground.look(plain))
        ground.guest("one", ground.base())
        # The wait goes on over another connection, until its own time is over.
        bad.append(ssh_dies("ssh is killed", once, ["it is not there"], ground.limits.timeout))
        bad.append(ssh_dies("ssh is killed again and again", lambda kill: kill, ["connection was lost"], ground.limits.timeout))
    finally:
        ground.clear()
    sys.exit(any(bad))


if __name__ == "__main__":
    main()
