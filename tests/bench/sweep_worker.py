# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: sweep_worker.py NUMBER… fills it with so many domains and three times as many volumes, sweeps it with kvm2_gc's
service, and prints as JSON for each number the seconds of each of three sweeps, those of processor time that the sweep and the daemon took, and
the number of libvirt calls of one."""

from __future__ import annotations

import collections
import glob
import json
import os
import shutil
import subprocess
import sys
import time

import libvirt

from ansible_collections.egress.kvm2.plugins.module_utils._host.deadline import Deadline
from ansible_collections.egress.kvm2.plugins.module_utils._host.libvirt_hypervisor import LibvirtHypervisor
from ansible_collections.egress.kvm2.plugins.module_utils._policy import mark, names
from ansible_collections.egress.kvm2.plugins.module_utils._policy.xml import etree
from ansible_collections.egress.kvm2.tests.unit import running

URI, POOL, FOLDER, FLEET = "qemu:///system", "gcbench", "/srv/gcbench", "gcbench"
BASE = str(names.BaseName("gcbench", "0" * 16, "000001", "qcow2"))


def count_calls():
    """Have every call of libvirt-python's objects counted; returns the Counter."""
    counts = collections.Counter()

    def counted(name, method):
        def call(*args, **named):
            counts[name] += 1
            return method(*args, **named)
        return call

    # Answered by the binding itself.
    free = {"name", "connect", "UUIDString", "__init__", "__del__", "pool", "domain"}
    for kind in (libvirt.virConnect, libvirt.virDomain, libvirt.virStoragePool, libvirt.virStorageVol, libvirt.virStream):
        for name, method in list(vars(kind).items()):
            if callable(method) and not name.startswith("_") and name not in free:
                setattr(kind, name, counted(f"{kind.__name__}.{name}", method))
    return counts


def fill(connection, first, last):
    """Instances number first to last - 1: a defined domain with overlay and seed, and the overlay that a replacement left, still young."""
    for number in range(first, last):
        name = f"i{number}"
        uid = names.derive_uid(FLEET, name)
        paths = {}
        for kind, nonce in (("overlay", "000001"), ("seed", "000001"), ("overlay", "000002")):
            path = f"{FOLDER}/{names.InstanceVolumeName(kind, FLEET, name, uid, nonce)}"
            shutil.copyfile(f"{FOLDER}/../{FLEET}-template", path)
            paths.setdefault(kind, path)
        element = etree.tostring(
            mark.to_element(mark.Mark(FLEET, name, uid, time.time() - 86400, base=BASE)), encoding="unicode")
        connection.defineXML(
            f"<domain type='qemu'><name>{FLEET}.{name}</name><uuid>{uid}</uuid><memory>65536</memory><metadata>{element}</metadata>"
            "<os><type>hvm</type></os><devices>"
            f"<disk type='file'><driver name='qemu' type='qcow2'/><source file='{paths['overlay']}'/><backingStore type='file'>"
            f"<format type='qcow2'/><source file='{FOLDER}/{BASE}'/><backingStore/></backingStore><target dev='vda' bus='virtio'/></disk>"
            f"<disk type='file'><driver name='qemu' type='raw'/><source file='{paths['seed']}'/><target dev='vdb' bus='virtio'/><readonly/></disk>"
            "</devices></domain>")


def clean(connection):
    for domain in connection.listAllDomains():
        if domain.name().startswith(f"{FLEET}."):
            domain.undefine()
    for pool in connection.listAllStoragePools():
        if pool.name() == POOL:
            if pool.isActive():
                pool.destroy()
            pool.undefine()
    shutil.rmtree(FOLDER, ignore_errors=True)
    if os.path.exists(f"{FOLDER}-template"):
        os.remove(f"{FOLDER}-template")


def daemon_time():
    """Seconds of processor time of the libvirt daemon so far."""
    found = 0
    for status in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(status, encoding="utf-8") as text:
                name, _end, rest = text.read().partition("(")[2].rpartition(")")
        except OSError:
            continue
        if name in ("libvirtd", "virtqemud", "virtstoraged"):
            found += sum(int(ticks) for ticks in rest.split()[11:13])
    return found / os.sysconf("SC_CLK_TCK")


def sweep(number, counts):
    """(seconds, seconds of processor time, those of the daemon, calls) of one sweep that deletes nothing, a connection of its own included."""
    counts.clear()
    began, began_here, began_there = time.monotonic(), time.process_time(), daemon_time()
    hypervisor = LibvirtHypervisor(URI, Deadline(600, URI))
    result = running.run_module("gc", hypervisor, clock=time.time, fleet=FLEET, live=[f"i{one}" for one in range(number)])
    hypervisor.close()
    took = tuple(round(now - then, 3) for now, then in (
        (time.monotonic(), began), (time.process_time(), began_here), (daemon_time(), began_there)))
    if result.failed or result.changed:
        raise SystemExit(f"the sweep was to delete nothing: {result}")
    if sum(item["name"].startswith((FLEET, f"kvm2-{FLEET}")) for item in result.kept) != 4 * number:
        raise SystemExit("the sweep did not see everything")
    return (*took, sum(counts.values()))


def main():
    numbers = [int(text) for text in sys.argv[1:]]
    connection = libvirt.open(URI)
    clean(connection)
    try:
        os.mkdir(FOLDER)
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", f"{FOLDER}/{BASE}", "1M"], check=True)
        subprocess.run(
            ["qemu-img", "create", "-q", "-f", "qcow2", "-b", f"{FOLDER}/{BASE}", "-F", "qcow2", f"{FOLDER}-template"], check=True)
        pool = connection.storagePoolDefineXML(f"<pool type='dir'><name>{POOL}</name><target><path>{FOLDER}</path></target></pool>")
        pool.create()
        found, there = {}, 0
        counts = count_calls()
        for number in numbers:
            fill(connection, there, number)
            there = number
            sweeps = [sweep(number, counts) for _round in range(3)]
            seconds, here, daemons, calls = zip(*sweeps, strict=True)
            found[number] = {"seconds": seconds, "processor": here, "daemon": daemons, "calls": calls[-1]}
        print(json.dumps(found))
    finally:
        clean(connection)


if __name__ == "__main__":
    main()
