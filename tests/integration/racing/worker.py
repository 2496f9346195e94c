# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One of several processes on a hypervisor that run the services against the same pool: worker.py creator|collector NUMBER AMOUNT.

A creator ends after AMOUNT overlays that were made with success, a collector once there is a file `created` in the working directory.
Nothing in the collection knows of it. Things are made old by setting the time stamps of their files, once nothing is being made of them.
Prints what it saw as JSON; "broken" lists what must never be.
"""

from __future__ import annotations

import collections
import json
import os
import random
import sys
import time

from ansible_collections.egress.kvm2.plugins.module_utils._host.deadline import Deadline
from ansible_collections.egress.kvm2.plugins.module_utils._host.libvirt_hypervisor import LibvirtHypervisor
from ansible_collections.egress.kvm2.tests.unit import running

URI, POOL, FOLDER = "qemu:///system", "gcrace", "/srv/gcrace"
IMAGES = ("a", "b")
KEYS = ("a", "b", "c")
HOUR = 3600
# Overlays that a creator keeps an eye on before it gives most of them up to the collectors, anew each time: with few of them bases are free
# again and again, with many they stay for a while under the eyes of it.
MOST = (0, 0, 1, 6)
# However slow the machine is, no worker goes on for ever.
LONGEST = 3000


def make_old(path, hours):
    """False where it has gone."""
    past = time.time() - hours * HOUR
    try:
        os.utime(path, (past, past))
    except FileNotFoundError:
        return False
    return True


class Worker:
    def __init__(self, number, amount):
        self.number = number
        self.amount = amount
        self.dice = random.Random(number)
        # Nonces of several processes must differ, as those of modules do.
        running._count = iter(lambda: random.SystemRandom().randrange(16 ** 6), None)
        self.until = time.monotonic() + LONGEST
        self.hypervisor = LibvirtHypervisor(URI, Deadline(LONGEST + 300, URI))
        self.counts = collections.Counter()
        self.broken = []
        self.errors = collections.Counter()

    def run(self, module, **given):
        where = {"pools": [POOL]} if module == "gc" else {"pool": POOL}
        result = running.run_module(module, self.hypervisor, clock=time.time, **where, **given)
        self.counts[f"{module} {'failed' if result.failed else 'succeeded'}"] += 1
        for error in result.errors if result.failed else ():
            self.errors[error["kind"], error["act"], error["hint"]] += 1
            if error["kind"] not in ("transient", "conflict"):
                self.broken.append(f"{module}: {error['message']}")
        return result

    def report(self):
        self.hypervisor.close()
        print(json.dumps({
            "counts": self.counts, "broken": self.broken[:20], "errors": [[*key, number] for key, number in self.errors.items()]}))


class Creator(Worker):
    """Imports an image where it is not there, makes overlays on it, and never loses one, nor the base of one, before it gives it up."""

    def work(self):
        kept, made = {}, 0
        while self.counts["overlay succeeded"] < self.amount and time.monotonic() < self.until:
            image = self.run("image", key=f"race-{self.dice.choice(KEYS)}", src=f"{FOLDER}-images/{self.dice.choice(IMAGES)}.qcow2")
            if image.failed:
                continue
            for _round in range(self.dice.randrange(1, 5)):
                made += 1
                result = self.run("overlay", fleet="gcrace", base=image.image["base"], instances=[{"name": f"c{self.number}-{made}"}])
                for overlay in getattr(result, "overlays", ()):
                    kept[overlay["path"]] = f"{FOLDER}/{overlay['base']}"
                self.check(kept)
                if result.failed:
                    break
            if len(kept) > self.dice.choice(MOST):
                for path in [path for path in kept if self.dice.randrange(3)]:
                    del kept[path]
                    make_old(path, 2)
        self.check(kept)
        for path in kept:
            make_old(path, 2)

    def check(self, kept):
        for path, base in kept.items():
            self.counts["looks"] += 1
            if not os.path.exists(base):
                self.broken.append(f"{path} was made with success and its base {base} has gone")
            if not os.path.exists(path):
                self.broken.append(f"{path} was made with success and has gone while it was young")


class Collector(Worker):
    """Collects everything that nothing uses, the newest bases too."""

    def work(self):
        while not os.path.exists("created") and time.monotonic() < self.until:
            result = self.run(
                "gc", fleet="gcrace", live=["nobody"], min_age="0s", keep_latest=False, incomplete_age="12h", collect=["volumes", "bases"])
            for item in getattr(result, "collected", ()):
                self.counts[f"{item['what']} collected"] += 1
            for item in getattr(result, "kept", ()):
                # Its publisher is through with it, so it may be old at once.
                if "it is retired" in item["reason"]:
                    make_old(f"{FOLDER}/{item['name']}", 13)


def main():
    role, number, amount = sys.argv[1:4]
    worker = {"creator": Creator, "collector": Collector}[role](int(number), int(amount))
    worker.work()
    worker.report()


if __name__ == "__main__":
    main()
