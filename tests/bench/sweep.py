# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a sweep of kvm2_gc takes that deletes nothing, how much of that is processor time, and how many calls of libvirt.

python -m tests.bench.sweep [NUMBER…]; make bench does it too.

Each number is one of domains, with three times as many volumes, on the nested hypervisor hv1, which is started where it does not run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.integration.conftest import start
from tests.integration.shipping import run_long, ship

FOLDER = "/srv/gcbench-code"
NUMBERS = (125, 250, 500)


def measure(hypervisors, numbers=NUMBERS, on="hv1"):
    """{number of domains: {"seconds", "processor" and "daemon": of each sweep, "calls": of one}}."""
    ship(hypervisors, FOLDER, Path(__file__).with_name("sweep_worker.py"), on=on)
    run_long(hypervisors, FOLDER, f"python3 sweep_worker.py {' '.join(map(str, numbers))} > seen", on)
    output = hypervisors.shell(on, f"cd {FOLDER}; cat output >&2; test -s seen && cat seen && rm -rf {FOLDER}")
    return {int(number): seen for number, seen in json.loads(output).items()}


def main(arguments):
    print("\nsweep of kvm2_gc without deletions (goal: at most 3 s for 500 domains, linear):")
    print("domains  volumes  seconds (median of 3)  processor: module  daemon  libvirt calls  calls per object", flush=True)
    for number, seen in measure(start("hv1"), [int(text) for text in arguments] or NUMBERS).items():
        wall, here, daemon = (sorted(seen[kind])[1] for kind in ("seconds", "processor", "daemon"))
        print(f"{number:7}  {3 * number + 1:7}  {wall:21.2f}  {here:17.2f}  {daemon:6.2f}  {seen['calls']:13}  {seen['calls'] / (4 * number + 1):16.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
