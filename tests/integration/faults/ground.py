# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the programs of this folder work on: a pool, an image, a guest that has nothing to boot, and an sshd that lets this machine in."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time

from bounded import quiet

FOLDER, POOL, FLEET = "/srv/faults", "faults", "faults"
FILES, IMAGE, DISK, KEY, NETCAT = f"{FOLDER}/pool", f"{FOLDER}/image.raw", f"{FOLDER}/disk.qcow2", f"{FOLDER}/key", f"{FOLDER}/netcat"
SOCKET = "/run/libvirt/libvirt-sock"
# Below the daemons' own folder, and elsewhere: what such a socket leads to is not taken for this machine, and all goes over the connection.
SOCKETS, FAR_SOCKETS = "/run/libvirt/kvm2-faults", f"{FOLDER}/sockets"
LOCAL = "qemu:///system"
SIZE = 4 * 1024 ** 2
# Limits short enough to be waited for, and what a module takes after one: its work may clean up, then the line is cut, then the process ends.
GRACE = 7
SSH_FOLDER = os.path.expanduser("~/.ssh")
MARK = "kvm2-faults"
# Seconds that a module takes where the machine has nothing else to do.
USUAL = 1.5


class Limits:
    """What the modules are given, in seconds; longer by a whole factor where this machine is slow at the moment."""

    count = 3

    def __init__(self, start):
        self.follow(start)

    def follow(self, start):
        """start: how long a module takes here when nothing is wrong."""
        self.start = start
        factor = max(1, round(start / USUAL))
        self.connect, self.interval, self.timeout = 6 * factor, factor, 10 * factor
        self.keepalive = self.interval * (self.count + 1)

    def options(self):
        return {"connect_timeout": self.connect, "keepalive_interval": self.interval, "keepalive_count": self.count, "timeout": self.timeout}

    def bound(self, limit):
        """Seconds until what is limited to that many has to have ended: the module's own stages of giving up, and the pace of this machine."""
        return round(limit + GRACE + 2 * self.start, 1)


limits = Limits(4 * USUAL)


def shell(*command, check=True):
    return subprocess.run(command, check=check, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


def lay():
    """Make it all, anew."""
    clear()
    os.makedirs(FILES)
    os.makedirs(SOCKETS)
    os.makedirs(FAR_SOCKETS)
    shell("virsh", "-q", "pool-define-as", POOL, "dir", "--target", FILES)
    shell("virsh", "-q", "pool-start", POOL)
    with open(IMAGE, "wb") as file:
        file.write(random.Random(5).randbytes(SIZE))
    shell("qemu-img", "create", "-q", "-f", "qcow2", DISK, "8M")
    with open(os.path.join(os.path.dirname(__file__), "bridge.py"), encoding="utf-8") as source, open(NETCAT, "w", encoding="utf-8") as program:
        program.write(f"#!/usr/bin/python3 -SE\n{source.read()}")
    os.chmod(NETCAT, 0o755)
    _let_in()
    measure()


def measure():
    """Have the limits follow the pace of this machine."""
    began = time.monotonic()
    quiet(*look())
    limits.follow(time.monotonic() - began)


def _let_in():
    """A key for this machine's own sshd, whose host key is known under every port of this machine."""
    shell("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", MARK, "-f", KEY)
    with open(f"{KEY}.pub", encoding="ascii") as public, open(f"{SSH_FOLDER}/authorized_keys", "a", encoding="ascii") as file:
        file.write(public.read())
    host_key = shell("ssh-keygen", "-y", "-f", "/etc/ssh/ssh_host_ed25519_key").split()
    with open(f"{SSH_FOLDER}/known_hosts", "a", encoding="ascii") as file:
        file.write(f"* {host_key[0]} {host_key[1]} {MARK}\n")


def clear():
    for uuid in shell("virsh", "-q", "list", "--all", "--uuid").split():
        if shell("virsh", "domname", uuid).startswith(f"{FLEET}."):
            shell("virsh", "destroy", uuid, check=False)
            shell("virsh", "undefine", uuid, "--managed-save", "--nvram", check=False)
    for pool in shell("virsh", "-q", "pool-list", "--all", "--name").split():
        if pool.startswith(POOL):
            shell("virsh", "-q", "pool-destroy", pool, check=False)
            shell("virsh", "-q", "pool-undefine", pool, check=False)
    # What a run that was killed may have left mounted.
    shell("umount", "--lazy", "--quiet", f"{FOLDER}/dead", f"{FOLDER}/loop", check=False)
    for folder in (FOLDER, SOCKETS):
        shutil.rmtree(folder, ignore_errors=True)
    for name in ("authorized_keys", "known_hosts"):
        shell("sed", "-i", f"/{MARK}$/d", f"{SSH_FOLDER}/{name}", check=False)


def options(uri=LOCAL, **more):
    return {"uri": uri, **limits.options(), **more}


def image(key, uri=LOCAL, **more):
    return "kvm2_image", options(uri, key=key, src=IMAGE, format="raw", pool=POOL, verify="always", **more)


def look(uri=LOCAL, **more):
    return "kvm2_pool_check", options(uri, pool=POOL, **more)


def overlay(name, base, uri=LOCAL, **more):
    return "kvm2_overlay", options(uri, fleet=FLEET, pool=POOL, base=base, instances=[{"name": name}], **more)


def domain(name, uri=LOCAL, **more):
    given = {"memory": "32MiB", "networks": [{"network": "default"}], "virt_type": "qemu", "wait": {"for": "none"}, "stop": {"mode": "force"}, **more}
    return "kvm2_domain", options(uri, fleet=FLEET, pool=POOL, instances=[{"name": name}], **given)


def absent(name, uri=LOCAL):
    return "kvm2_domain", options(uri, fleet=FLEET, pool=POOL, instances=[{"name": name}], state="absent", stop={"mode": "force"})


def collect(uri=LOCAL, **more):
    return "kvm2_gc", options(uri, fleet=FLEET, pools=[POOL], min_age="0s", allow_empty_live=True, max_delete="100%", **more)


def base():
    """The name of a base that overlays can have."""
    return quiet("kvm2_image", options(key="disk", src=DISK, pool=POOL))["image"]["base"]


def guest(name, base_name):
    """An instance that runs, and will never have an address."""
    quiet(*overlay(name, base_name))
    quiet(*domain(name))


def files():
    return sorted(os.listdir(FILES))


def is_record(name):
    """Does the pool's file of that name hold what a record does?"""
    with open(f"{FILES}/{name}", "rb") as file:
        return file.read(1) == b"{"


def tell(**case):
    print(json.dumps(case), flush=True)
