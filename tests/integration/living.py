# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of an instance's life share: a place on a hypervisor for the programs of the folder life, and their output."""

from __future__ import annotations

import contextlib
from pathlib import Path

from .collecting import clean_up
from .shipping import run_long, ship

HERE = Path(__file__).parent
FOLDER = "/srv/life"
CODE = f"{FOLDER}-code"
TEAR_DOWN = f"virsh -q pool-destroy life; virsh -q pool-undefine life; rm -rf {FOLDER} {CODE} {FOLDER}-image-*"


def _nothing_left(hypervisors, host):
    clean_up(hypervisors, "life[.-]", "kvm2-life[.-]", on=host)
    hypervisors.shell(host, f"({TEAR_DOWN}) > /dev/null 2>&1; true")


@contextlib.contextmanager
def living(hypervisors, host):
    """The programs are there, and afterwards neither they nor what they made is."""
    _nothing_left(hypervisors, host)
    ship(
        hypervisors, CODE, *sorted((HERE / "life").glob("*.py")), HERE / "kill" / "sitecustomize.py", HERE / "kill" / "steps.py", on=host)
    try:
        yield
    finally:
        _nothing_left(hypervisors, host)


def output(hypervisors, host, command):
    """What a program printed; it must succeed."""
    run_long(hypervisors, CODE, f"{command} > out 2> err; echo $? > code", on=host)
    done = hypervisors.shell(host, f"cd {CODE}; tail -n 60 err; cat code")
    assert done.splitlines()[-1] == "0", f"{command} on {host} failed:\n{done}"
    return hypervisors.shell(host, f"cat {CODE}/out")
