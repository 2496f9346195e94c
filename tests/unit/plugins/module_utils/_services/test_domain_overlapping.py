# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kvm2_domain does for several instances at the same time: how many, and that nothing depends on which one is ready first."""

from __future__ import annotations

import re

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error
from ansible_collections.egress.kvm2.tests.unit.domains import domain, files, overlay

FOUR = [{"name": name} for name in ("one", "two", "three", "four")]


@pytest.fixture
def overlapped(hypervisor, monkeypatch):
    """(jobs, at_once) of each time that work overlapped; the hypervisor has overlays for four instances."""
    seen, real = [], hypervisor.overlap

    def overlap(jobs, at_once, check_stop):
        seen.append((len(jobs), at_once))
        return real(jobs, at_once, check_stop)
    monkeypatch.setattr(hypervisor, "overlap", overlap)
    overlay(hypervisor, instances=FOUR)
    return seen


@pytest.mark.parametrize(("given", "at_once"), [({}, 4), ({"max_requests": 1}, 1), ({"max_requests": 64}, 64)])
def test_seeds_and_starts_overlap_as_far_as_they_may(hypervisor, overlapped, given, at_once):
    done = domain(hypervisor, instances=FOUR, **given)
    assert not done.failed and [one["state"] for one in done.instances] == ["provisioning"] * 4
    assert overlapped == [(4, at_once)] * 2
    del overlapped[:]
    done = domain(hypervisor, instances=FOUR, on_change="restart", max_parallel="50%", user_data="#!other", stop={"mode": "force"}, **given)
    # Nothing for those that need no change; then two by two, their seeds and their starts.
    assert not done.failed and overlapped == [(0, at_once), *[(2, at_once)] * 4]


@pytest.mark.parametrize("operation", ["upload", "start"])
@pytest.mark.parametrize("failing", [{"one"}, {"two", "four"}, {"one", "two", "three", "four"}])
def test_what_is_told_does_not_depend_on_the_order(hypervisor, overlapped, operation, failing):
    machine, results = hypervisor.machine, []
    for at_once in (1, 4):
        hypervisor.machine = machine.copy()
        with pytest.MonkeyPatch.context() as patched:
            real = getattr(hypervisor, operation)

            def call(*args, real=real, **named):
                if any(f"edge.{name}-" in str(args) or _name_of(hypervisor, args) == name for name in failing):
                    raise Kvm2Error("transient", operation, "it", "the daemon is busy")
                return real(*args, **named)
            patched.setattr(hypervisor, operation, call)
            failed = domain(hypervisor, instances=FOUR, max_requests=at_once)
        assert [error["item"] for error in failed.errors] == [one["name"] for one in FOUR if one["name"] in failing]
        results.append(([(one["name"], one["state"]) for one in failed.instances], [
            dict(action, name=re.sub(r"-[0-9a-f]{6}\.", ".", action["name"])) for action in failed.actions], failed.msg, len(files(hypervisor))))
    assert results[0] == results[1]


def _name_of(hypervisor, args):
    found = hypervisor.domain(args[0])
    return found and found.name.partition(".")[2]


def test_a_run_that_is_to_end_starts_no_further_guest(hypervisor, overlapped):
    domain(hypervisor, instances=FOUR, state="defined")
    gone = Kvm2Error("transient", "go on with", "the work", "the controller has gone")

    def stop():
        if any(found.active for found in hypervisor.domains()):
            raise gone
    failed = domain(hypervisor, instances=FOUR, check_stop=stop)
    assert failed.failed and "the controller has gone" in failed.msg
    assert sum(found.active for found in hypervisor.domains()) == 1
