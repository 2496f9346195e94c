# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collectors, importers and makers of overlays at once on a real daemon: no overlay that was made with success is ever without its base."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from .shipping import run_long, ship

FOLDER = "/srv/gcrace"
SETUP = f"""
set -e
mkdir -p {FOLDER} {FOLDER}-images {FOLDER}-code
for name in a b; do qemu-img create -q -f qcow2 {FOLDER}-images/$name.qcow2 1M; done
qemu-io -c 'write -P 7 0 64k' {FOLDER}-images/b.qcow2 > /dev/null
virsh -q pool-define-as gcrace dir --target {FOLDER}
virsh -q pool-start gcrace
"""
TEAR_DOWN = f"virsh -q pool-destroy gcrace; virsh -q pool-undefine gcrace; rm -rf {FOLDER} {FOLDER}-images {FOLDER}-code"


@pytest.fixture
def ground(hv1):
    hv1.shell("hv1", TEAR_DOWN)
    hv1.shell("hv1", SETUP)
    ship(hv1, f"{FOLDER}-code", Path(__file__).parent / "racing" / "worker.py")
    yield
    hv1.shell("hv1", TEAR_DOWN)


def race(hv1, creators, collectors, amount):
    """Sums of what all workers counted, once each creator has made `amount` overlays with success. Nothing may be broken."""
    numbers = range(creators + collectors)
    roles = ["creator"] * creators + ["collector"] * collectors
    start = "".join(
        f"python3 worker.py {role} {number} {amount} > out-{number} 2> err-{number} & pids=\"$pids $!\"\n" for number, role in enumerate(roles))
    wait = f"set -- $pids\nwait {' '.join(f'${number + 1}' for number in range(creators))}\ntouch created\nwait"
    run_long(hv1, f"{FOLDER}-code", start + wait)
    counts, errors, broken = Counter(), Counter(), []
    for number in numbers:
        seen = json.loads(hv1.shell("hv1", f"cd {FOLDER}-code; tail -n 20 err-{number} >&2; test -s out-{number} && cat out-{number}"))
        counts.update(seen["counts"])
        broken += seen["broken"]
        for *what, number_of_it in seen["errors"]:
            errors[tuple(what)] += number_of_it
    print(dict(counts), dict(errors))
    assert broken == []
    assert counts["overlay succeeded"] >= creators * amount
    return counts


def test_no_overlay_without_its_base(hv1, ground):
    counts = race(hv1, creators=3, collectors=2, amount=24)
    # Both sides met: bases went and were made anew, overlays that were given up went.
    assert counts["base collected"] > 2
    assert counts["overlay collected"] > 2


@pytest.mark.extended
def test_no_overlay_without_its_base_for_long(hv1, ground):
    counts = race(hv1, creators=5, collectors=3, amount=400)
    assert counts["base collected"] > 50
    assert counts["overlay collected"] > 500
