# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs under ansible-playbook, with pipelining and without, killed at their steps: the next converge ends whole, and the removal leaves nothing."""

from __future__ import annotations

import pytest

from .kill import Module, Runs, Shell, changing
from .kill.steps import without_downloads
from .living import FOLDER, living

SETUP = f"""set -e
mkdir -p {FOLDER}
qemu-img create -q -f qcow2 {FOLDER}-image-1.qcow2 1M
virsh -q pool-define-as life dir --target {FOLDER}
virsh -q pool-start life
"""
FLEET = {"fleet": "life-kills", "pool": "life", "instances": [{"name": "one"}]}
DOMAIN = "life-kills.one"
WHOLE = f"""set -e
[ "$(virsh domstate {DOMAIN} | head -n 1)" = running ]
[ "$(virsh -q domblklist {DOMAIN} --inactive)" = "$(virsh -q domblklist {DOMAIN})" ]
if virsh metadata {DOMAIN} urn:egress:kvm2:instance:1 | grep deleting; then exit 1; fi
files=$(virsh -q domblklist {DOMAIN} | awk '{{ print $2 }}')
[ "$(echo "$files" | wc -l)" = 2 ]
for file in $files; do qemu-img info -U --backing-chain "$file"; done
"""
NOTHING_LEFT = f"! virsh domstate {DOMAIN} 2> /dev/null && ! ls {FOLDER} | grep life-kills"
MODES = pytest.mark.parametrize("pipelining", [True, False], ids=["pipelining", "files"])
# So many places of a kind are gone through in one playbook.
TOGETHER = 8


def overlay(base, at=""):
    return Module("kvm2_overlay", {**FLEET, "base": base, "replace": True}, at=at)


def domain(at="", **given):
    options = {"memory": "64MiB", "networks": [], "virt_type": "qemu", "stop": {"mode": "force"}, "wait": {"for": "none"}}
    return Module("kvm2_domain", {**FLEET, **options, **given}, at=at)


def kinds_of(base):
    """What is there before, and the run that is killed, as a function of where."""
    there = (overlay(base), domain())
    return {
        "overlay": ((), lambda at="": overlay(base, at)),
        "create": ((overlay(base),), domain),
        "redefine": (there, lambda at="": domain(at, memory="96MiB")),
        "restart": (there, lambda at="": domain(at, memory="96MiB", user_data="#!restarted", on_change="restart")),
        "replace": (there, lambda at="": domain(at, user_data="#!replaced", on_change="replace")),
        "delete": (there, lambda at="": domain(at, state="absent")),
    }


def all_places(runs, kinds, end):
    """Each (run, place) there is, from runs that are left alone."""
    found = []
    for name, (before, run) in kinds.items():
        whole = runs.play(*before, run(), *end)[len(before)]
        assert not whole.result.get("failed"), whole.result
        found += [(name, at) for at in changing(without_downloads(whole.steps))]
    return found


def through_ansible(hypervisors, host, pipelining, wanted=None):
    """Each of the wanted (run, place), or all there are, is killed, converged, looked at, removed and looked for; what they were."""
    end = (domain(state="absent"), Shell(NOTHING_LEFT))
    with living(hypervisors, host), Runs(hypervisors, host, pipelining) as runs:
        _made, image = runs.play(Shell(SETUP), Module("kvm2_image", {"key": "life", "src": f"{FOLDER}-image-1.qcow2", "pool": "life"}))
        base = image.result["image"]["base"]
        kinds = kinds_of(base)
        wanted = wanted or all_places(runs, kinds, end)
        after = (overlay(base), domain(user_data="#!converged", on_change="replace"), Shell(WHOLE), *end)
        for begin in range(0, len(wanted), TOGETHER):
            jobs = [(name, at, job) for name, at in wanted[begin:begin + TOGETHER] for job in (*kinds[name][0], kinds[name][1](at), *after)]
            for (name, at, job), outcome in zip(jobs, runs.play(*(job for _name, _at, job in jobs)), strict=True):
                if isinstance(job, Module) and job.at:
                    assert outcome.killed == at
                else:
                    assert not outcome.result.get("failed"), f"{name} killed {at}: {outcome.result}"
        return wanted


@pytest.mark.parametrize("pipelining", [pytest.param(True, marks=pytest.mark.extended), False], ids=["pipelining", "files"])
def test_a_replacement_killed_under_ansible(hv1, pipelining):
    through_ansible(hv1, "hv1", pipelining, [("replace", "after virDomain.destroy 1")])


@pytest.mark.extended
@MODES
def test_killed_everywhere_under_ansible(hv1, pipelining):
    assert len(through_ansible(hv1, "hv1", pipelining)) > 50


@pytest.mark.extended
@MODES
def test_killed_everywhere_under_ansible_on_the_other_releases(other_release, pipelining):
    assert len(through_ansible(*other_release, pipelining)) > 50
