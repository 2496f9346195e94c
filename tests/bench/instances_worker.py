# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: instances_worker.py NUMBER… defines so many instances, looks at them again, starts a few and removes them, with the services of
kvm2_overlay and kvm2_domain, and prints as JSON for each number and step the seconds and the calls of libvirt."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time

import sweep_worker

from ansible_collections.egress.kvm2.plugins.module_utils._host.deadline import Deadline
from ansible_collections.egress.kvm2.plugins.module_utils._host.libvirt_hypervisor import LibvirtHypervisor
from ansible_collections.egress.kvm2.tests.unit import running

URI, POOL, FOLDER, FLEET = "qemu:///system", "instbench", "/srv/instbench", "instbench"
LONGEST = 3600
# More would fill the memory of a small machine.
STARTED = 10
DOMAIN = {"memory": "64MiB", "networks": [{"network": "default"}], "virt_type": "qemu"}


def virsh(*words, check=True):
    subprocess.run(["virsh", "-q", *words], check=check, stdout=subprocess.DEVNULL, stderr=None if check else subprocess.DEVNULL)


def module(hypervisor, name, **given):
    done = running.run_module(name, hypervisor, clock=time.time, pool=POOL, **given)
    if done.failed:
        raise RuntimeError(done.msg)
    return done


def measure(hypervisor, counts, base, number):
    """{step: [seconds, calls of libvirt, did it change anything]}."""
    instances, found = [{"name": f"i{index}"} for index in range(number)], {}

    def step(name, what, **given):
        before, began = sum(counts.values()), time.monotonic()
        done = module(hypervisor, what, fleet=FLEET, instances=instances, **given)
        found[name] = [time.monotonic() - began, sum(counts.values()) - before, done.changed]
    step("overlays", "overlay", base=base)
    step("define", "domain", state="defined", **DOMAIN)
    step("overlays again", "overlay", base=base)
    step("define again", "domain", state="defined", **DOMAIN)
    if number <= STARTED:
        for at_once in (1, 4):
            step(f"start, {at_once} at a time", "domain", max_requests=at_once, wait={"for": "none"}, **DOMAIN)
            module(hypervisor, "domain", fleet=FLEET, instances=instances, state="stopped", stop={"mode": "force"}, **DOMAIN)
    step("remove", "domain", state="absent")
    return found


def main():
    virsh("pool-destroy", POOL, check=False)
    virsh("pool-undefine", POOL, check=False)
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    try:
        virsh("pool-define-as", POOL, "dir", "--target", FOLDER)
        virsh("pool-start", POOL)
        source = f"{FOLDER}/image"
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", source, "1M"], check=True)
        counts = sweep_worker.count_calls()
        hypervisor = LibvirtHypervisor(URI, Deadline(LONGEST, URI))
        base = module(hypervisor, "image", key="instbench", src=source).image["base"]
        print(json.dumps({number: measure(hypervisor, counts, base, int(number)) for number in sys.argv[1:]}))
    finally:
        virsh("pool-destroy", POOL, check=False)
        virsh("pool-undefine", POOL, check=False)
        shutil.rmtree(FOLDER, ignore_errors=True)


if __name__ == "__main__":
    main()
