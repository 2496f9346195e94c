# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: a hundred rolling updates of one instance, each with a new overlay and seed, every tenth with a new image, and the
collector after every fifth. What was replaced is made old by its time stamps. Prints how many files there were after each collection."""

from __future__ import annotations

import json
import os
import subprocess
import time

import libvirt

from ansible_collections.egress.kvm2.plugins.module_utils._host.deadline import Deadline
from ansible_collections.egress.kvm2.plugins.module_utils._host.libvirt_hypervisor import LibvirtHypervisor
from ansible_collections.egress.kvm2.plugins.module_utils._policy import mark, names
from ansible_collections.egress.kvm2.plugins.module_utils._policy.xml import etree
from ansible_collections.egress.kvm2.tests.unit import running

URI, POOL, FOLDER, FLEET, NAME = "qemu:///system", "gcupdates", "/srv/gcupdates", "gcupdates", "one"
UID = names.derive_uid(FLEET, NAME)
UPDATES = 100


def run(hypervisor, module, **given):
    result = running.run_module(module, hypervisor, clock=time.time, **given)
    if result.failed:
        raise SystemExit(result.msg)
    return result


def publish(hypervisor, number):
    """Name of a new base with content of its own."""
    source = f"{FOLDER}-image.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", source, f"{number + 1}M"], check=True)
    return run(hypervisor, "image", key="gcupdates", src=source, pool=POOL).image["base"]


def volume(kind, number):
    return f"{FOLDER}/{names.InstanceVolumeName(kind, FLEET, NAME, UID, f'{number:06x}')}"


def update(connection, number, base):
    """The domain on an overlay and a seed of their own."""
    overlay, seed = volume("overlay", number), volume("seed", number)
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", f"{FOLDER}/{base}", "-F", "qcow2", overlay], check=True)
    with open(seed, "wb") as file:
        file.write(b"seed")
    element = etree.tostring(mark.to_element(mark.Mark(FLEET, NAME, UID, time.time(), base=base)), encoding="unicode")
    connection.defineXML(
        f"<domain type='qemu'><name>{FLEET}.{NAME}</name><uuid>{UID}</uuid><memory>65536</memory><metadata>{element}</metadata>"
        "<os><type>hvm</type></os><devices>"
        f"<disk type='file'><driver name='qemu' type='qcow2'/><source file='{overlay}'/><target dev='vda' bus='virtio'/></disk>"
        f"<disk type='file'><driver name='qemu' type='raw'/><source file='{seed}'/><target dev='vdb' bus='virtio'/></disk></devices></domain>")


def make_old():
    past = time.time() - 3 * 3600
    for name in os.listdir(FOLDER):
        os.utime(f"{FOLDER}/{name}", (past, past))


def main():
    connection, hypervisor = libvirt.open(URI), LibvirtHypervisor(URI, Deadline(3000, URI))
    counts, base = [], None
    for number in range(UPDATES):
        if number % 10 == 0:
            base = publish(hypervisor, number)
        update(connection, number, base)
        if number % 5 == 4:
            make_old()
            run(hypervisor, "gc", fleet=FLEET, live=[NAME], pools=[POOL])
            counts.append(len(os.listdir(FOLDER)))
    hypervisor.close()
    last = {"overlay": volume("overlay", number), "seed": volume("seed", number), "base": base}
    print(json.dumps(dict(last, counts=counts, left=sorted(os.listdir(FOLDER)))))


if __name__ == "__main__":
    main()
