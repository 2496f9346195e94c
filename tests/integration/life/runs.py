# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of the modules on a hypervisor in processes of their own, each of which can be killed, slowed down or recorded; shared by the programs of
this folder. Every domain is one that has nothing to boot. A run is a function of a Hypervisor and returns what running.run_module returns."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import tempfile
import time
from types import SimpleNamespace

import libvirt
import sitecustomize

from ansible_collections.egress.kvm2.plugins.module_utils._host.deadline import Deadline
from ansible_collections.egress.kvm2.plugins.module_utils._host.libvirt_hypervisor import LibvirtHypervisor
from ansible_collections.egress.kvm2.plugins.module_utils._services import gc
from ansible_collections.egress.kvm2.tests.unit import running

URI, POOL, FOLDER = "qemu:///system", "life", "/srv/life"
HOUR = 3600
LONGEST = 600
FORK = multiprocessing.get_context("fork")

# Nobody hears the power button of a guest that has nothing to boot.
gc.STOP_TIMEOUT = 1

for _name in ("image", "overlay", "domain", "gc"):
    # Loaded once, for all that are forked.
    running.service_of(_name)
    importlib.import_module(f"ansible_collections.egress.kvm2.plugins.modules.kvm2_{_name}")


class Run:
    """A job in a process of its own. at: where it is killed, as the kill tool has it.  pauses: up to so many seconds before some of its calls.
    trace: are its calls recorded?  rival: called at `at` in the place of the kill; killed then ends with what it returns.
    After end() there are result (None where it was killed), steps, killed and calls."""

    def __init__(self, job, *arguments, at="", pauses=0.0, trace=False, rival=None):
        self._folder = tempfile.TemporaryDirectory()
        self._log, self._out = (os.path.join(self._folder.name, name) for name in ("log", "out"))
        self.at, self._rival = at, rival
        self._process = FORK.Process(target=self._work, args=(job, arguments, pauses, trace))
        self._process.start()

    def _work(self, job, arguments, pauses, trace):
        dice = random.SystemRandom()
        running._count = iter(lambda: dice.randrange(16 ** 6), None)
        calls = []
        steps = (Pausing if pauses else sitecustomize.Steps)(self._log, self.at)
        steps.longest = pauses
        if self._rival:
            steps.die = lambda text: steps.write(f"KILLED {text} {self._rival()}")
        sitecustomize.wrap_libvirt(steps, libvirt)
        if trace:
            record(calls)
        hypervisor = LibvirtHypervisor(URI, Deadline(LONGEST, URI))
        result = job(hypervisor, *arguments)
        hypervisor.close()
        with open(self._out, "w", encoding="utf-8") as out:
            json.dump([vars(result), calls], out, default=str)

    def end(self):
        self._process.join()
        with open(self._log, encoding="utf-8") as log:
            lines = log.read().splitlines()
        self.steps = [line for line in lines if not line.startswith("KILLED ")]
        self.killed = next((line.partition(" ")[2] for line in lines if line.startswith("KILLED ")), "")
        self.result, self.calls = None, []
        if self.at and not self.killed:
            raise AssertionError(f"it did not come to {self.at}")
        if self.at and not self._rival:
            if self._process.exitcode != -signal.SIGKILL:
                raise AssertionError(f"it was to be killed {self.at} and ended with {self._process.exitcode}")
        else:
            if self._process.exitcode != 0:
                raise AssertionError(f"a run ended with {self._process.exitcode}")
            with open(self._out, encoding="utf-8") as out:
                found, self.calls = json.load(out)
            self.result = SimpleNamespace(**found)
        self._folder.cleanup()
        return self


class Pausing(sitecustomize.Steps):
    longest = 0.0
    dice = random.SystemRandom()

    def begin(self, name):
        if self.dice.random() < 0.3:
            time.sleep(self.dice.random() * self.longest)
        return super().begin(name)


def record(calls):
    """Note each call of libvirt as [name, the volume or domain it is about, did it succeed]."""
    names = {"virStorageVol": libvirt.virStorageVol.name.__wrapped__, "virDomain": libvirt.virDomain.name.__wrapped__}

    def recording(kind, method, function):
        def recorded(this, *arguments, **named):
            subject = names[kind](this) if kind in names else next((text for text in arguments if isinstance(text, str)), "")
            if method == "createXML":
                subject = subject.partition("<name>")[2].partition("</name>")[0]
            entry = [f"{kind}.{method}", subject, False]
            calls.append(entry)
            done = function(this, *arguments, **named)
            entry[2] = True
            return done
        return recorded
    for kind in ("virStorageVol", "virStoragePool", "virDomain", "virConnect"):
        found = getattr(libvirt, kind)
        for method, function in list(vars(found).items()):
            if callable(function) and not method.startswith("_"):
                setattr(found, method, recording(kind, method, function))


def quiet(job, *arguments):
    """Its result, once it has succeeded."""
    result = Run(job, *arguments).end().result
    if result.failed:
        raise AssertionError(f"{job.__name__} {arguments}: {result.msg}")
    return result


def shell(*command, check=True):
    return subprocess.run(command, check=check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


# -- the runs


def module(hypervisor, name, **given):
    where = {"pools": [POOL]} if name == "gc" else {"pool": POOL}
    return running.run_module(name, hypervisor, clock=time.time, **where, **given)


def domain(hypervisor, fleet, names=("one",), overlays=None, **given):
    instances = [{"name": name, **({"overlay": overlays[name]} if overlays else {})} for name in names]
    options = {"memory": "64MiB", "networks": [], "virt_type": "qemu", "stop": {"mode": "force"}, "wait": {"for": "none"}, **given}
    return module(hypervisor, "domain", fleet=fleet, instances=instances, **options)


def create(hypervisor, fleet, base, names=("one",), replace=False, **given):
    """Overlays and domains, as the role makes them."""
    made = module(hypervisor, "overlay", fleet=fleet, base=base, instances=[{"name": name} for name in names], replace=replace)
    if made.failed:
        return made
    return domain(hypervisor, fleet, names, {one["name"]: one["overlay"] for one in made.overlays}, **given)


def redefine(hypervisor, fleet):
    return domain(hypervisor, fleet, memory="96MiB", state="defined")


def restart(hypervisor, fleet):
    return domain(hypervisor, fleet, memory="96MiB", user_data="#!restarted\n", on_change="restart")


def replace(hypervisor, fleet, base, names=("one",), user_data="#!replaced\n"):
    return create(hypervisor, fleet, base, names, replace=True, user_data=user_data, on_change="replace")


def delete(hypervisor, fleet, names=("one",)):
    return domain(hypervisor, fleet, names, state="absent")


def collect(hypervisor, fleet, live):
    return module(hypervisor, "gc", fleet=fleet, live=live, allow_empty_live=True, min_age="0s", max_delete="100%", collect=["domains", "volumes"])


def publish(hypervisor, megabytes):
    source = f"{FOLDER}-image-{megabytes}.qcow2"
    shell("qemu-img", "create", "-q", "-f", "qcow2", source, f"{megabytes}M")
    return module(hypervisor, "image", key="life", src=source)


def ground():
    """A pool with two bases: their names."""
    os.makedirs(FOLDER)
    shell("virsh", "-q", "pool-define-as", POOL, "dir", "--target", FOLDER)
    shell("virsh", "-q", "pool-start", POOL)
    return [quiet(publish, megabytes).image["base"] for megabytes in (1, 2)]


# -- what is there, seen without the code under test


def files(fleet):
    """Names of the overlays and seeds of a fleet, on the disk."""
    return sorted(name for name in os.listdir(FOLDER) if name.startswith(f"kvm2-{fleet}."))


def make_old(names):
    past = time.time() - 3 * HOUR
    for name in names:
        try:
            os.utime(f"{FOLDER}/{name}", (past, past))
        except FileNotFoundError:
            continue


def disks(name, *flags):
    """The disk files that a domain's definition names; None where there is no such domain."""
    done = shell("virsh", "-q", "domblklist", name, "--details", *flags, check=False)
    return None if done.returncode else [line.split(None, 3)[3] for line in done.stdout.splitlines() if line.strip()]


def state(name):
    done = shell("virsh", "-q", "domstate", name, check=False)
    return None if done.returncode else done.stdout.strip()


def is_declared(name):
    return "deleting" in shell("virsh", "metadata", name, "urn:egress:kvm2:instance:1", "--config", check=False).stdout


def opened(name):
    """Files of the pool that the domain's QEMU has open."""
    with open(f"/run/libvirt/qemu/{name}.pid", encoding="ascii") as file:
        folder = f"/proc/{int(file.read())}/fd"
    found = set()
    for number in os.listdir(folder):
        try:
            found.add(os.readlink(f"{folder}/{number}"))
        except FileNotFoundError:
            continue
    return {path for path in found if path.startswith(FOLDER)}


def chain_problem(overlay):
    """What is wrong with the overlay and what it is backed by; empty where all is well."""
    done = shell("qemu-img", "info", "-U", "--backing-chain", "--output", "json", overlay, check=False)
    if done.returncode:
        return done.stdout
    chain = json.loads(done.stdout)
    return "" if len(chain) == 2 else f"{overlay} has a chain of {len(chain)}"


def faults(name, base=None):
    """What keeps a domain from being a whole, running instance, as a list of texts."""
    if state(name) != "running":
        return [f"{name} is {state(name)}"]
    configured, live = disks(name, "--inactive"), disks(name)
    found = [f"{name}: {path} has gone" for path in {*configured, *live} if not os.path.exists(path)]
    if configured != live:
        found.append(f"{name}: configured {configured}, running on {live}")
    if is_declared(name):
        found.append(f"{name}: its deletion is declared")
    if not found:
        open_files, overlay = opened(name), configured[0]
        if not set(configured) <= open_files or any("(deleted)" in path for path in open_files):
            found.append(f"{name}: configured {configured}, open {open_files}")
        problem = chain_problem(overlay)
        if problem:
            found.append(problem)
        elif base and shell("qemu-img", "info", "-U", overlay).stdout.count(base) == 0:
            found.append(f"{name}: {overlay} is not on {base}")
    return found
