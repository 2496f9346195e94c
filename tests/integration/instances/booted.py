# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: booted.py URL CHECKSUM. One guest that boots is waited for in every way, fills its pool, is paused for it, and goes on once
there is room."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time

import libvirt
from looking import shell
from oddities import refused, unchanged
from states import FLEET, FOLDER, POOL, acts, ground, require

MIB = 1024 ** 2
LEASES = "/var/lib/libvirt/dnsmasq/virbr0.status"
PATIENCE = "5m"


def small_filesystem():
    os.makedirs(FOLDER)
    shell("mount", "-t", "tmpfs", "-o", "size=200M", "tmpfs", FOLDER)


def leases_are_dropped_once_they_are_over(host, uid, mac):
    """libvirt's own file of leases tells of one that is over, then of one that is not."""
    def write(entries):
        with open(LEASES, "w", encoding="utf-8") as file:
            json.dump(entries, file)
    try:
        with open(LEASES, encoding="utf-8") as file:
            before = file.read()
    except FileNotFoundError:
        before = ""
    others = [entry for entry in json.loads(before or "[]") if entry["mac-address"] != mac]
    try:
        for seconds, found in ((-10, []), (1000, ["192.168.122.201"])):
            write([*others, {"ip-address": "192.168.122.201", "mac-address": mac, "expiry-time": int(time.time()) + seconds}])
            known = [entry.address for entry in host.hypervisor.addresses(uid, "lease")]
            require(known == found, f"a lease that ends in {seconds} s", known)
    finally:
        write(others)


def waits(host):
    early = host.domain(wait={"for": "address", "timeout": "0s"})
    require(early.failed and early.error["kind"] == "transient" and early.instances[0]["state"] == "provisioning", vars(early))
    for word in ("its state is running (booted)", "lease: none; agent: it does not answer", "The guest was left as it is."):
        require(word in early.msg, word, early.msg)
    uid, mac = early.instances[0]["uid"], early.instances[0]["mac"]
    leases_are_dropped_once_they_are_over(host, uid, mac)
    there = host.domain(wait={"for": "address", "timeout": PATIENCE, "source": "lease"})
    require(not there.failed, getattr(there, "msg", ""))
    one = there.instances[0]
    address = one["primary_address"]
    require(one["state"] == "running" and address.startswith("192.168.122."), one)
    require([(entry["mac"], entry["source"]) for entry in one["addresses"]] == [(mac, "lease")], one)
    agent = host.domain(wait={"for": "agent", "timeout": PATIENCE})
    require(not agent.failed and not agent.changed, getattr(agent, "msg", ""))
    require(any(entry.address == "127.0.0.1" for entry in host.hypervisor.addresses(uid, "agent")), "the agent tells of no loopback")
    # Whoever talks to it has it in the neighbour table.
    with contextlib.suppress(OSError):
        socket.create_connection((address, 9), 10).close()
    for source in ("agent", "arp"):
        found = host.domain(wait={"for": "address", "timeout": PATIENCE, "source": source})
        require(not found.failed and not found.changed, getattr(found, "msg", ""))
        require(found.instances[0]["primary_address"] == address, source, found.instances)
        require({entry["mac"] for entry in found.instances[0]["addresses"]} == {mac}, source, found.instances)
    none = host.domain(wait={"for": "address", "timeout": "1s", "family": "ipv6"})
    require(none.failed and f"lease: {address}; agent: " in none.msg and "127.0.0.1" not in none.msg, vars(none))
    console(none)


def console(failed):
    """The message ends with the last lines of the console."""
    lines = failed.msg.partition("The last lines of its console (")[2].splitlines()[1:]
    require(0 < len(lines) <= 20 and any("micro: ready" in line for line in lines), "no lines of its console", failed.msg)


def former(host):
    """The lease of its life before is no address of a guest that is started, until it asks for it anew."""
    def off():
        stopped = host.domain(state="stopped")
        require(not stopped.failed and acts(stopped.actions) == ["stop domain"], getattr(stopped, "msg", stopped.actions))
        mac = stopped.instances[0]["mac"]
        left = {address: until for (owner, address), until in host.hypervisor.leases().items() if owner == mac}
        require(len(left) == 1, "it has left no lease", left)
        return left
    off()
    early = host.domain(wait={"for": "address", "timeout": "0s", "source": "lease"})
    require(early.failed and "(of before its start)" in early.msg, getattr(early, "msg", early.instances))
    require(early.instances[0]["state"] == "provisioning" and early.instances[0]["addresses"] == [], early.instances)
    (address, until), = off().items()
    there = host.domain(wait={"for": "address", "timeout": PATIENCE, "source": "lease"})
    require(not there.failed and there.instances[0]["primary_address"] == address, getattr(there, "msg", there.instances))
    now = host.hypervisor.leases()[there.instances[0]["mac"], address]
    require(now > until, "the lease was not renewed", now, until)


def fill(host, end):
    """Have the guest's shell write to its disk until the guest is paused for it. The console stays open meanwhile, or what is typed may be lost."""
    stream, typed = host.connection.newStream(), 0.0
    host.state().openConsole(None, stream, libvirt.VIR_DOMAIN_CONSOLE_FORCE)
    while host.state().state() != [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR]:
        require(time.monotonic() < end, "it was not paused", host.state().state())
        if time.monotonic() - typed > 20:
            # Again where the shell was not there yet: it is the same place that is written to.
            typed = time.monotonic()
            stream.send(b"\ndd if=/dev/zero of=/dev/vda bs=1048576 seek=100 count=60 conv=notrunc\n")
        time.sleep(0.2)
    stream.abort()


def full(host):
    room = os.statvfs(FOLDER)
    filler = f"{FOLDER}/filler"
    shell("fallocate", "-l", str(room.f_bavail * room.f_frsize - 16 * MIB), filler)
    end = time.monotonic() + 300
    fill(host, end)
    told = unchanged(host, "a full disk", state="defined")
    require((told.instances[0]["state"], told.instances[0]["reason"]) == ("paused", "ioerror"), told.instances)
    require(any("paused by an I/O error" in warning and "free space" in warning for warning in told.warnings), told.warnings)
    refused(host, "resuming it without room", "quota", "paused by an I/O error", f"pool {POOL} is full", "Free space")
    # Somebody resumes it all the same, and it is paused again.
    host.state().resume()
    while host.state().state()[0] != libvirt.VIR_DOMAIN_PAUSED:
        require(time.monotonic() < end, "it was not paused again", host.state().state())
        time.sleep(0.2)
    os.remove(filler)
    resumed = host.domain(wait={"for": "agent", "timeout": PATIENCE})
    require(not resumed.failed and acts(resumed.actions) == ["resume domain"], getattr(resumed, "msg", resumed.actions))
    require((resumed.instances[0]["state"], resumed.instances[0]["reason"]) == ("running", "unpaused"), resumed.instances)
    overlay = f"{FOLDER}/{resumed.instances[0]['overlay']}"
    while os.stat(overlay).st_blocks * 512 < 60 * MIB:
        require(time.monotonic() < end, "it does not write on", os.stat(overlay))
        time.sleep(0.2)
    require(host.state().state()[0] == libvirt.VIR_DOMAIN_RUNNING, host.state().state())


def main():
    url, checksum = sys.argv[1:]
    small_filesystem()
    host = Booting(ground())
    made = host.module("image", key="states", url=url, checksum=checksum, pool=POOL)
    require(not made.failed, getattr(made, "msg", ""))
    host.overlays(made.image["base"], capacity="1GiB")
    # A lease of an earlier guest of that name would count for the runs that find this one running.
    with open(LEASES, "w", encoding="utf-8") as file:
        file.write("[]")
    created = host.domain()
    require(not created.failed, getattr(created, "msg", ""))
    for part in (waits, former, full):
        part(host)
        print(f"{part.__name__}: as it should be", flush=True)
    host.remove()
    require(not [name for name in os.listdir(FOLDER) if FLEET + "." in name], os.listdir(FOLDER))


class Booting:
    """A Host whose instance has memory enough to boot, and a seed that asks for an address."""

    def __init__(self, host):
        self._host = host

    def __getattr__(self, name):
        return getattr(self._host, name)

    def domain(self, *positional, **given):
        return self._host.domain(*positional, **{"memory": "128MiB", "network_config": None, **given})


if __name__ == "__main__":
    try:
        main()
    finally:
        subprocess.run(["sh", "-c", f"virsh -q destroy {FLEET}.one; virsh -q pool-destroy {POOL}; umount {FOLDER}"], check=False)
