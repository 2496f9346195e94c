# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role and its playbooks, and the demo itself, against a nested hypervisor."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import CHECKOUT, INVENTORY, ansible_environment

FLEET = Path(__file__).with_name("fleet.yml")
LISTING = "virsh -q list --all --name | sort; virsh -q vol-list default | awk '{ print $1 }' | sort"


def playbook(hypervisors, name, *arguments, change=None, check=True):
    extra = [] if change is None else ["-e", json.dumps({"test_change": change})]
    return hypervisors.playbook(f"egress.kvm2.{name}", "--limit", "hv1", "-e", f"@{FLEET}", *extra, *arguments, check=check)


def changes(done):
    return int(re.search(r"hv1 .*changed=(\d+)", done.stdout)[1])


@pytest.fixture
def clean(hv1):
    """The listing of pool and domains before the test; after it, the fleet is gone and the pool is as it was."""
    before = hv1.shell("hv1", LISTING)
    yield before
    playbook(hv1, "decommission", "-e", "proxy_fleet_remove_image=true")
    assert hv1.shell("hv1", LISTING) == before


@pytest.mark.parametrize("guest, fleet", [
    ("micro", "fleet-micro.yml"),
    pytest.param("debian", "fleet.yml", marks=pytest.mark.extended),
])
def test_demo(hv1, guest, fleet):
    """Two proxies answer, with the address of their hypervisor; a second run changes nothing; then all of it is removed."""
    before = hv1.shell("hv1", LISTING)
    command = [sys.executable, str(CHECKOUT / "tests" / "tools"), "demo", "--guest", guest]
    outputs = []
    for _run in range(2):
        done = subprocess.run(
            command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=2400, check=False)
        assert done.returncode == 0, done.stdout
        outputs.append(done.stdout)
    address = hv1.hosts["hv1"]["ansible_host"]
    for output in outputs:
        assert len(re.findall(rf"proxy-0[12] .*answered.*{re.escape(address)}", output)) == 2, output
    assert "changed=0" in outputs[1]
    hv1.playbook("egress.kvm2.decommission", "--limit", "hv1", "-e", f"@tests/demo/{fleet}", "-e", "proxy_fleet_remove_image=true")
    assert hv1.shell("hv1", LISTING) == before


def test_check_mode_predicts_everything_and_changes_nothing(hv1, clean):
    predicted = playbook(hv1, "provision", "--check", "--diff")
    assert hv1.shell("hv1", LISTING) == clean
    done = playbook(hv1, "provision")
    assert changes(predicted) == changes(done) == 3
    listing = hv1.shell("hv1", LISTING)
    assert changes(playbook(hv1, "provision", "--check")) == 0
    assert changes(playbook(hv1, "check")) == 0
    assert changes(playbook(hv1, "provision")) == 0
    assert hv1.shell("hv1", LISTING) == listing


@pytest.mark.parametrize("change, words", [
    ({"name": "Test"}, ["name", "Test"]),
    ({"sizing": {"disk": "4"}}, ["sizing.disk", "unit"]),
    ({"sizing": {"memory": "lots"}}, ["sizing.memory"]),
    ({"proxy": {"port": 0}}, ["proxy.port"]),
    ({"proxy": {"engine": "socks9"}}, ["proxy.engine", "tinyproxy"]),
    ({"proxy": {"allow": ["nonsense"]}}, ["proxy.allow"]),
    ({"instances": [{"name": "a"}, {"name": "a"}]}, ["instances", "a"]),
    ({"proxy": {"password": "for-nobody"}}, ["proxy", "password is there without user"]),
    ({"networks": [{"network": "default", "subnet": "192.168.122.0/24"}], "instances": [{"name": "a", "address": "192.168.123.7"}]},
     ["instances[0].address", "it is outside of 192.168.122.0/24"]),
    ({"colour": "blue"}, ["colour"]),
    ({"hypervisors": []}, ["hypervisors"]),
])
def test_wrong_definitions_reach_no_hypervisor(hv1, change, words):
    before = hv1.shell("hv1", LISTING)
    done = playbook(hv1, "provision", change=change, check=False)
    assert done.returncode != 0
    assert "The fleet definition is not valid" in done.stdout
    for word in words:
        assert word in done.stdout
    assert "kvm2_" not in "".join(re.findall(r"^TASK \[(.*)\]", done.stdout, re.MULTILINE))
    assert hv1.shell("hv1", LISTING) == before


@pytest.mark.parametrize("change, words", [
    ({"image": {"url": "http://127.0.0.1:9/none.qcow2", "checksum": "sha256:" + "0" * 64}}, ["refused"]),
    ({"image": {"checksum": "sha256:" + "0" * 64}}, ["was asked for"]),
    ({"pool": "nowhere"}, ["there is no such pool"]),
    ({"networks": [{"network": "nowhere"}]}, ["There is no network nowhere"]),
    ({"sizing": {"disk": "1MiB"}}, ["smaller than"]),
    ({"sizing": {"disk": "900TiB"}}, ["missing"]),
])
def test_what_cannot_be_is_said_and_leaves_nothing(hv1, clean, change, words):
    done = playbook(hv1, "provision", "-e", "proxy_fleet_retry_delay=0", change=change, check=False)
    assert done.returncode != 0
    for word in words:
        assert word in done.stdout
    left = [line for line in hv1.shell("hv1", LISTING).splitlines() if line not in clean.splitlines()]
    # Where the image was right it stays, published; nothing of an instance is made.
    assert [line for line in left if not line.startswith("kvm2-base-micro-")] == []


@pytest.mark.parametrize("seconds", [4, 9, 15, 22])
def test_killed_at_any_moment_the_next_run_succeeds(hv1, seconds):
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(INVENTORY), "egress.kvm2.provision", "--limit", "hv1", "-e", f"@{FLEET}",
        "-e", json.dumps({"test_change": {"name": "killed"}})]
    victim = subprocess.Popen(
        command, cwd=CHECKOUT, env=ansible_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True)
    try:
        victim.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait()
    playbook(hv1, "provision", change={"name": "killed"})
    assert changes(playbook(hv1, "provision", change={"name": "killed"})) == 0
    playbook(hv1, "decommission", change={"name": "killed"})
    assert "killed." not in hv1.shell("hv1", LISTING)
