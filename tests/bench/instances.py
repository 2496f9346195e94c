# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long it takes to define instances, to look at them again where nothing has changed, and to remove them, and how many calls of libvirt. A few are
started too, one after the other and four at a time.

python -m tests.bench.instances [NUMBER…]; make bench does it too. It runs on the nested hypervisor hv1, which is started
where it does not run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.integration.conftest import start
from tests.integration.shipping import run_long, ship

FOLDER = "/srv/instbench-code"
NUMBERS = (10, 40, 100)


def measure(hypervisors, numbers=NUMBERS, on="hv1"):
    """{number of instances: {step: [seconds, calls of libvirt, did it change anything]}}."""
    here = Path(__file__).parent
    ship(hypervisors, FOLDER, here / "instances_worker.py", here / "sweep_worker.py", on=on)
    run_long(hypervisors, FOLDER, f"python3 instances_worker.py {' '.join(map(str, numbers))} > seen", on)
    output = hypervisors.shell(on, f"cd {FOLDER}; cat output >&2; test -s seen && cat seen && rm -rf {FOLDER}")
    return {int(number): seen for number, seen in json.loads(output.splitlines()[-1]).items()}


def main(arguments):
    print("\ninstances (linear: as much for each instance of many as of few):")
    print("instances  step                 seconds  ms per instance  libvirt calls per instance", flush=True)
    for number, steps in measure(start("hv1"), [int(text) for text in arguments] or NUMBERS).items():
        for step, (seconds, calls, _changed) in steps.items():
            print(f"{number:9}  {step:19}  {seconds:7.2f}  {1000 * seconds / number:15.1f}  {calls / number:26.1f}")
        if "start, 4 at a time" in steps:
            print(f"starts, 4 at a time against one after the other: {steps['start, 4 at a time'][0] / steps['start, 1 at a time'][0]:.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
