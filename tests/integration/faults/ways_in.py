# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: ways_in.py gives a module URIs under which it cannot get in, and prints for each how long it took to say so, and what."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import ground
from bounded import Call, call, quiet
from peer import SSH, here

OTHER_KEYS, NO_KEYS, NO_KEY = f"{ground.FOLDER}/other-hosts", f"{ground.FOLDER}/no-hosts", f"{ground.FOLDER}/other-key"


def others():
    """A known_hosts with another key for this machine, an empty one, and a key that nobody lets in."""
    ground.shell("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", NO_KEY)
    with open(f"{NO_KEY}.pub", encoding="ascii") as public, open(OTHER_KEYS, "w", encoding="ascii") as file:
        file.write("* " + public.read())
    with open(NO_KEYS, "w", encoding="ascii"):
        pass


def judge(case, ended, began, kind, words, limit=None):
    bound = ground.limits.bound(limit or ground.limits.connect)
    problems, took = ended.problems(), ended.ended - began
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


def ssh_dies():
    """The ssh of a module that waits for a guest is killed."""
    uri = f"qemu+ssh://root@127.0.0.1/system?keyfile={ground.KEY}"

    module, options = ground.domain("one", uri, wait={"for": "address", "timeout": "60s"})
    killed = []

    def kill(run):
        until = time.monotonic() + 30
        while time.monotonic() < until and not killed:
            found = [pid for pid, command in run.processes() if command.startswith("ssh ")]
            if found and len(ground.shell("virsh", "-q", "list").split()):
                # Opened and at work: it has asked for the state of the guest since.
                time.sleep(2)
                os.kill(found[0], signal.SIGKILL)
                killed.append(time.monotonic())
            time.sleep(0.1)

    run = Call(module, dict(options, timeout=40))
    killer = threading.Thread(target=kill, args=(run,))
    killer.start()
    ended = run.end()
    killer.join()
    return judge("ssh is killed", ended, killed[0] if killed else ended.began, "transient", ["connection"], ground.limits.keepalive)


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
        bad.append(refused("host key changed", "permanent", ["key"], plain, ssh_known_hosts=OTHER_KEYS))
        bad.append(refused("host key unknown", "permanent", ["key"], plain, ssh_known_hosts=NO_KEYS))
        bad.append(refused("wrong user", "permanent", ["permission denied"], plain.replace("root@", "nobody@")))
        bad.append(refused("wrong key", "permanent", ["permission denied"], plain.replace(ground.KEY, NO_KEY) + "&sshauth=privkey"))
        quiet(*ground.look(plain))
        ground.guest("one", ground.base())
        bad.append(ssh_dies())
    finally:
        ground.clear()
    sys.exit(any(bad))


if __name__ == "__main__":
    main()
