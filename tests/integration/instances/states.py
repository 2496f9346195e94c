# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules run in this process on its hypervisor, for the programs of this folder. The guests have nothing to boot."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import time

import libvirt
from looking import Asked, differences, everything, shell

from ansible_collections.egress.kvm2.plugins.module_utils._host.deadline import Deadline
from ansible_collections.egress.kvm2.plugins.module_utils._host.libvirt_hypervisor import LibvirtHypervisor
from ansible_collections.egress.kvm2.tests.unit import running

URI, POOL, FOLDER = "qemu:///system", "states", "/srv/states"
# Each program has a fleet of its own: the lease of a guest outlives it, and a run that finds the same instance running would take it.
FLEET = f"states-{os.path.basename(sys.argv[0]).partition('.')[0]}"
LONGEST = 1800
# Names are new in each run, as the volumes of a former one may be there still.
running._count = itertools.count(os.getpid() * 1000 % 16 ** 6)


def require(truth, *said):
    if not truth:
        raise AssertionError(": ".join(str(text) for text in said))


class Host:
    def __init__(self):
        self.connection = self.hypervisor = None
        self.reopen()

    def reopen(self):
        if self.hypervisor is not None:
            self.hypervisor.close()
        self.connection = libvirt.open(URI)
        self.hypervisor = LibvirtHypervisor(URI, Deadline(LONGEST, URI))

    def restart_daemon(self):
        """Have it begin anew: whatever keeps the hypervisor's daemons starts it again."""
        with open("/run/libvirtd.pid", encoding="ascii") as file:
            former = int(file.read())
        os.kill(former, signal.SIGTERM)
        end = time.monotonic() + 60
        while True:
            # The former one may answer for a moment.
            with contextlib.suppress(OSError, ValueError, libvirt.libvirtError), open("/run/libvirtd.pid", encoding="ascii") as file:
                if int(file.read()) != former:
                    self.reopen()
                    return
            require(time.monotonic() < end, "the daemon does not come back")
            time.sleep(0.1)

    def module(self, name, check=False, **given):
        return running.run_module(name, self.hypervisor, check=check, clock=time.time, **given)

    def domain(self, check=False, names=("one",), **given):
        """kvm2_domain; an instance in names is a name or a dictionary of its own options."""
        options = {
            "fleet": FLEET, "pool": POOL, "memory": "64MiB", "networks": [{"network": "default"}], "virt_type": "qemu", "stop": {"mode": "force"},
            "wait": {"for": "none"},
            # By default it follows the interfaces, and another one would be another seed.
            "network_config": "version: 2\n", **given}
        return self.module("domain", check, instances=[{"name": name} if isinstance(name, str) else name for name in names], **options)

    def overlays(self, base, names=("one",), **given):
        """{name: volume} of kvm2_overlay, which must succeed."""
        made = self.module("overlay", fleet=FLEET, pool=POOL, base=base, instances=[{"name": name} for name in names], **given)
        require(not made.failed, getattr(made, "msg", ""))
        return {one["name"]: one["overlay"] for one in made.overlays}

    def base(self, megabytes=1):
        source = f"{FOLDER}-image.qcow2"
        shell("qemu-img", "create", "-q", "-f", "qcow2", source, f"{megabytes}M")
        made = self.module("image", key=f"states{megabytes}", src=source, pool=POOL)
        os.remove(source)
        require(not made.failed, getattr(made, "msg", ""))
        return made.image["base"]

    def create(self, base, names=("one",), **given):
        self.overlays(base, [name if isinstance(name, str) else name["name"] for name in names])
        made = self.domain(names=names, **given)
        require(not made.failed, getattr(made, "msg", ""))
        return made

    def remove(self, names=("one",)):
        gone = self.domain(names=names, state="absent")
        require(not gone.failed, getattr(gone, "msg", ""))
        return gone

    def quietly(self, what, run):
        """The result of run(), which must have written nothing: not a byte of anything is another one, and the daemon was asked to read only."""
        before = everything(self.connection)
        with Asked() as asked:
            result = run()
        require(asked.names, what, "the daemon's log tells nothing")
        require(not asked.writes, what, "the daemon was asked to write", asked.writes)
        changed = differences(before, everything(self.connection))
        require(not changed, what, "something is not as it was", *changed)
        return result

    def state(self, name="one"):
        return self.connection.lookupByName(f"{FLEET}.{name}")


def ground():
    os.makedirs(FOLDER, exist_ok=True)
    shell("virsh", "-q", "pool-define-as", POOL, "dir", "--target", FOLDER)
    shell("virsh", "-q", "pool-start", POOL)
    return Host()


def acts(actions):
    return [f"{action['act']} {action['what']}" for action in actions]


def fields(result, index=0):
    return [one["field"].partition(" ")[0] + (" pending" if one["pending"] else "") for one in result.instances[index]["drift"]]


def run_parts(*parts):
    """Those of the functions that the command line names, or all: part(host, base)."""
    known = {part.__name__: part for part in parts}
    host = ground()
    base = host.base()
    for name in sys.argv[1:] or known:
        known[name](host, base)
        print(f"{name}: as it should be", flush=True)
