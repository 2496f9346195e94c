# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances on a real libvirt: each kind of drift under each on_change, states that nobody asked for, what is missing on the host, one that boots and
fills its pool. Wherever nothing may be written, all that the hypervisor holds is compared, and its daemon tells what it was asked for."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from .shipping import run_long, ship

PROGRAMS = sorted((Path(__file__).parent / "instances").glob("*.py"))
FOLDER = "/srv/states"
CODE = f"{FOLDER}-code"
CLEAN = rf"""(
virsh -q list --all --name | grep '^states[-.]\|^other$' | while read -r name; do
  virsh -q destroy "$name"; virsh -q undefine --managed-save --nvram --snapshots-metadata "$name"
done
virsh -q pool-destroy states; virsh -q pool-undefine states
virsh -q net-destroy states-vlans; virsh -q net-undefine states-vlans; ip link del br-states
umount {FOLDER}; rm -rf {FOLDER} {CODE} {FOLDER}-image.qcow2
) > /dev/null 2>&1; true"""


@contextlib.contextmanager
def programs(hypervisors, host):
    """They are there, and afterwards neither they nor what they made is."""
    hypervisors.shell(host, CLEAN)
    ship(hypervisors, CODE, *PROGRAMS, on=host)
    try:
        yield
    finally:
        hypervisors.shell(host, CLEAN)


def run(hypervisors, host, command):
    """The lines that a program printed; it must succeed."""
    with programs(hypervisors, host):
        run_long(hypervisors, CODE, f"python3 {command} > out 2> err; echo $? > code", on=host)
        done = hypervisors.shell(host, f"cd {CODE}; tail -n 60 err; cat out code")
    lines = done.splitlines()
    assert lines[-1] == "0", f"{command} on {host} failed:\n{done}"
    return lines[:-1]


def judge(lines, count):
    print(*lines, sep="\n")
    assert len([line for line in lines if line.endswith(": as it should be")]) == count, lines


def boot(hypervisors, host):
    image = hypervisors.variables["nested_image"]
    judge(run(hypervisors, host, f"booted.py {image['url']} {image['checksum']}"), 3)


def test_two_kinds_of_drift(hv1):
    judge(run(hv1, "hv1", "drift.py memory overlay"), 8)


def test_states_that_nobody_asked_for_and_what_is_missing(hv1):
    judge(run(hv1, "hv1", "oddities.py"), 6)


def test_one_that_boots_is_waited_for_and_fills_its_pool(hv1):
    boot(hv1, "hv1")


@pytest.mark.extended
def test_the_other_kinds_of_drift(hv1):
    judge(run(hv1, "hv1", "drift.py vcpus network host autostart seed"), 20)


@pytest.mark.extended
def test_snapshots_and_disks_that_are_detached(hv1):
    judge(run(hv1, "hv1", "snapshots.py"), 3)


@pytest.mark.extended
def test_several_that_start_together(hv1):
    judge(run(hv1, "hv1", "overlapping.py"), 2)


@pytest.mark.extended
def test_vlans(hv1):
    judge(run(hv1, "hv1", "vlans.py"), 1)


@pytest.mark.extended
def test_on_other_releases(other_release):
    judge(run(*other_release, "drift.py"), 28)
    judge(run(*other_release, "oddities.py"), 6)
    judge(run(*other_release, "snapshots.py"), 3)
    judge(run(*other_release, "overlapping.py"), 2)
    judge(run(*other_release, "vlans.py"), 1)
    boot(*other_release)
