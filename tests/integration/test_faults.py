# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Connections that go wrong under a module, on a real hypervisor: it gives up within its bound, says so as JSON, and leaves no process behind.

The programs of the folder faults do it; each prints a JSON line for each case with the time the module took and what was wrong about it.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ansible_collections.egress.kvm2.tests.unit import certificates

from .shipping import run_long, ship

HERE = Path(__file__).parent / "faults"
FOLDER = "/srv/faults-code"


@contextlib.contextmanager
def shipped(hypervisors, host, *more):
    """The programs are on the hypervisor, and afterwards they are not."""
    ship(hypervisors, FOLDER, *sorted(HERE.glob("*.py")), *more, on=host)
    try:
        yield
    finally:
        hypervisors.shell(host, f"rm -rf {FOLDER}")


def certificates_in(folder):
    """Files of two authorities; those of the second begin with other-."""
    found = []
    for prefix in ("", "other-"):
        made = folder / f"made-{prefix or 'good'}"
        made.mkdir()
        certificates.make(made)
        found += [path.rename(folder / f"{prefix}{path.name}") for path in sorted(made.iterdir())]
    return found


def told(hypervisors, host, command, *more):
    """The cases that a program told of; none may have gone wrong. more: files that it finds beside it."""
    with shipped(hypervisors, host, *more):
        run_long(hypervisors, FOLDER, f"python3 {command} > out 2> err; echo $? > code", on=host)
        out, err, code = (hypervisors.shell(host, f"cat {FOLDER}/{name}") for name in ("out", "err", "code"))
    cases = [json.loads(line) for line in out.splitlines()]
    print(f"{host}: {command}")
    for case in cases:
        print("  " + "  ".join(f"{name}={value}" for name, value in case.items() if value not in (None, [], "")))
    wrong = [case for case in cases if case["problems"]]
    assert not wrong, "\n".join(f"{case}" for case in wrong)
    assert code.strip() == "0", f"{command} ended with {code}:\n{err[-4000:]}"
    assert cases
    return cases


@pytest.mark.extended
def test_every_fault_at_every_place_over_every_transport(hv1):
    assert len(told(hv1, "hv1", "table.py all all all")) > 200


def test_one_fault_of_each_kind_over_the_socket_and_over_ssh(hv1):
    assert len(told(hv1, "hv1", "table.py unix,ssh each")) == 20


@pytest.mark.extended
def test_what_modules_ask_of_the_daemon_does_not_grow_out_of_bounds(hv1):
    asked = {(case["module"], case["what"]): case["calls_each"] for case in told(hv1, "hv1", "counting.py 1 2")}
    assert asked["kvm2_image", ""] == asked["kvm2_pool_check", ""] == 0
    assert asked["kvm2_overlay", "again"] + asked["kvm2_domain", "again"] < 40


@pytest.mark.extended
def test_ways_in_that_lead_nowhere(hv1):
    assert len(told(hv1, "hv1", "ways_in.py")) == 16


@pytest.mark.extended
def test_what_the_daemon_refuses_is_taken_for_what_it_is(hv1):
    assert len(told(hv1, "hv1", "classes.py")) == 27


@pytest.mark.extended
def test_a_module_that_is_asked_to_end(hv1):
    assert len(told(hv1, "hv1", "endings.py")) == 9


@pytest.mark.extended
def test_tls_with_good_and_wrong_certificates(hv1, tmp_path):
    assert len(told(hv1, "hv1", "tls.py", *certificates_in(tmp_path))) == 8


@pytest.mark.extended
def test_the_daemon_is_stopped_killed_or_restarted_in_the_middle_of_each_protocol(hv1):
    assert len(told(hv1, "hv1", "daemons.py all all")) == 75


@pytest.mark.extended
def test_storage_that_hangs(hv1, tmp_path):
    bare, packed = tmp_path / "filesystem", tmp_path / "filesystem.gz"
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    subprocess.run(["mke2fs", "-q", "-t", "ext4", bare, "64M"], env=dict(os.environ, PATH=path), check=True)
    with open(bare, "rb") as source, gzip.open(packed, "wb", 1) as target:
        shutil.copyfileobj(source, target)
    assert len(told(hv1, "hv1", "storage.py", packed)) == 8


@pytest.mark.extended
def test_no_connection_leaves_anything_behind_in_its_process(hv1):
    assert len(told(hv1, "hv1", "cycles.py 1000 20")) == 20


@pytest.mark.extended
def test_the_other_releases_tell_failures_apart_alike(other_release):
    hypervisors, host = other_release
    told(hypervisors, host, "classes.py")
    told(hypervisors, host, "ways_in.py")
    told(hypervisors, host, "table.py unix,ssh each")
    told(hypervisors, host, "daemons.py image,domain,absent,look,wait kill")
