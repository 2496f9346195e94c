# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: classes.py has its daemon refuse what it can refuse, and prints for each which kind of failure that was taken for; and it waits
for what passes by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid

import ground

from ansible_collections.egress.kvm2.plugins.module_utils._host.deadline import Deadline
from ansible_collections.egress.kvm2.plugins.module_utils._host.libvirt_hypervisor import LibvirtHypervisor
from ansible_collections.egress.kvm2.plugins.module_utils._policy import volume_xml
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error

IDLE = f"{ground.POOL}-idle"
MIB = 1024 ** 2
# Large enough for its clone to take a moment.
LARGE = 256 * MIB
READY = 60


def domain(name, machine="pc", arch="x86_64", kind="qemu", devices="", identity=None):
    return (
        f"<domain type='{kind}'><name>{ground.FLEET}.{name}</name><uuid>{identity or uuid.uuid4()}</uuid><memory unit='MiB'>32</memory><vcpu>1</vcpu>"
        f"<os><type arch='{arch}' machine='{machine}'>hvm</type></os><devices>{devices}</devices></domain>")


def disk(path):
    return f"<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{path}'/><target dev='vda' bus='virtio'/></disk>"


def refusals(hypervisor):
    """(case, kind, codes of the releases, what is refused)"""
    def create(name, size=MIB):
        return hypervisor.create_volume(ground.POOL, volume_xml.raw_volume(name, size))

    def start(name, devices):
        defined = hypervisor.define(domain(name, devices=devices))
        return lambda: hypervisor.start(defined.uuid)

    create("there")
    with open(f"{ground.FILES}/unknown", "wb"):
        pass
    hypervisor.define(domain("named"))
    backing = f"{ground.FILES}/none"
    yield "a pool that is not active is refreshed", "permanent", (55,), lambda: hypervisor.refresh_pool(IDLE)
    yield "a volume of that name exists", "conflict", (90,), lambda: create("there")
    yield "a file that libvirt does not know is there", "conflict", (55,), lambda: create("unknown")
    yield "a name is too long", "permanent", (38,), lambda: create("x" * 300)
    yield "an overlay on no base", "permanent", (38,), lambda: hypervisor.create_volume(
        ground.POOL, volume_xml.overlay_volume("over", MIB, backing, "qcow2"))
    yield "a volume is made smaller", "permanent", (8,), lambda: hypervisor.resize_volume(ground.POOL, "there", 4096)
    yield "an upload into nothing", "conflict", (50,), lambda: hypervisor.upload(ground.POOL, "none", [b"x"], 1)
    yield "a pool that is not there", "permanent", (None,), lambda: hypervisor.volumes("none")
    yield "a name that another domain has", "permanent", (9,), lambda: hypervisor.define(domain("named"))
    yield "an unknown machine", "permanent", (1, 27), lambda: hypervisor.define(domain("a", machine="none"))
    yield "an architecture without emulator", "permanent", (67,), lambda: hypervisor.define(domain("b", arch="s390x", machine="s390-ccw-virtio"))
    yield "KVM where there is none", "permanent", (8, 67), lambda: hypervisor.define(domain("c", kind="kvm"))
    yield "a bridge that is missing", "permanent", (38,), start("d", "<interface type='bridge'><source bridge='none0'/></interface>")
    yield "a network that is missing", "permanent", (43,), start("e", "<interface type='network'><source network='none'/></interface>")
    yield "a disk file that is missing", "permanent", (38,), start("f", disk(backing))


def gone_already(hypervisor):
    """(case, what has to be told, what is asked for): a state, and no failure."""
    none, off = str(uuid.uuid4()), hypervisor.define(domain("off")).uuid
    yield "a domain that is not there", None, lambda: hypervisor.domain(none)
    yield "a volume that is not there", None, lambda: hypervisor.volume(ground.POOL, "none")
    yield "a pool that is not there", None, lambda: hypervisor.pool("none")
    yield "a volume that has vanished is deleted", False, lambda: hypervisor.delete_volume(ground.POOL, "none")
    for name, call in (("destroyed", hypervisor.destroy), ("shut down", hypervisor.shutdown), ("undefined", hypervisor.undefine)):
        yield f"a domain that has vanished is {name}", False, lambda call=call: call(none)
    yield "a domain that is off is destroyed", False, lambda: hypervisor.destroy(off)
    yield "a domain that is off is shut down", False, lambda: hypervisor.shutdown(off)
    yield "a domain that has vanished is marked", False, lambda: hypervisor.set_metadata(none, "kvm2", "urn:egress:kvm2:test", "<test/>")


def outcome(call):
    """(answer, None) or (None, the Kvm2Error)"""
    try:
        return call(), None
    except Kvm2Error as error:
        return None, error


def judge(case, problems, error=None, **more):
    ground.tell(
        case=case, kind=getattr(error, "kind", None), code=getattr(error, "code", None), msg=getattr(error, "message", ""), problems=problems, **more)
    return bool(problems)


def refused(case, kind, codes, call):
    answer, error = outcome(call)
    if error is None:
        return judge(case, [f"it was done: {answer}"])
    problems = [] if error.kind == kind and error.code in codes else [f"not {kind} with one of the codes {codes}"]
    if not error.hint:
        problems.append("no hint")
    return judge(case, problems, error)


def passes(case, hypervisor, says, call, *virsh):
    """While a volume is cloned the daemon refuses something, which virsh is told at once and the collection waits for."""
    clone = subprocess.Popen(["virsh", "-q", "vol-clone", "large", "clone", "--pool", ground.POOL], stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + READY
        while not (told := ground.shell(*virsh, check=False)).count(says):
            if time.monotonic() > until or clone.poll() is not None:
                return judge(case, [f"virsh was not refused: {told}"])
        began = time.monotonic()
        answer, error = outcome(call)
        waited = time.monotonic() - began
    finally:
        clone.wait()
    problems = [] if error is None and answer is not False else [f"it was not waited for: {answer}"]
    hypervisor.delete_volume(ground.POOL, "clone")
    return judge(case, problems, error, waited=round(waited, 2))


def main():
    ground.lay()
    os.makedirs(f"{ground.FOLDER}/idle")
    ground.shell("virsh", "-q", "pool-define-as", IDLE, "dir", "--target", f"{ground.FOLDER}/idle")
    deadline = Deadline(600, ground.LOCAL)
    hypervisor = LibvirtHypervisor(ground.LOCAL, deadline)
    try:
        bad = [refused(*case) for case in refusals(hypervisor)]
        for case, right, call in gone_already(hypervisor):
            answer, error = outcome(call)
            bad.append(judge(case, [] if error is None and answer is right else [f"the answer is {answer}"], error))
        hypervisor.create_volume(ground.POOL, volume_xml.raw_volume("large", LARGE))
        hypervisor.upload(ground.POOL, "large", (os.urandom(MIB) for _number in range(LARGE // MIB)), LARGE)
        bad.append(passes(
            "a job in the pool", hypervisor, "asynchronous jobs running", lambda: hypervisor.refresh_pool(ground.POOL), "virsh", "pool-refresh", ground.POOL))
        bad.append(passes(
            "a volume that is still being made", hypervisor, "still being allocated", lambda: hypervisor.delete_volume(ground.POOL, "clone"),
            "virsh", "vol-wipe", "clone", "--pool", ground.POOL))
    finally:
        hypervisor.close()
        deadline.cancel()
        ground.clear()
    sys.exit(any(bad))


if __name__ == "__main__":
    main()
