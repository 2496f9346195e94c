# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nested hypervisors for the integration tests, and ansible-playbook against them."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "tests" / "tools"))

from nested import HOSTS, INVENTORY, command
from placement import place

COLLECTIONS = place()
sys.path.insert(0, str(COLLECTIONS))

CASE_TIMEOUT = 900


@dataclass(frozen=True)
class Hypervisors:
    """Running nested hypervisors: hosts maps each name to its inventory variables."""

    hosts: dict[str, dict]
    variables: dict

    def playbook(self, path, *arguments, check=True, environment=None, timeout=CASE_TIMEOUT):
        """Run ansible-playbook on a playbook; returns the finished process, output in stdout. With check it must succeed."""
        done = subprocess.run(
            [Path(sys.executable).with_name("ansible-playbook"), "-i", INVENTORY, *arguments, path],
            cwd=CHECKOUT, env=environment or ansible_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=timeout, check=False)
        if check:
            assert done.returncode == 0, f"{path} ended with {done.returncode}:\n{done.stdout}"
        return done

    def shell(self, host, script):
        """Output of a shell command on a hypervisor; it must succeed."""
        done = subprocess.run(
            [str(part) for part in command("ssh", host, script)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=120, check=False)
        assert done.returncode == 0, f"{script!r} on {host} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout


def ansible_environment():
    return dict(
        os.environ, ANSIBLE_COLLECTIONS_PATH=str(COLLECTIONS), ANSIBLE_FORCE_COLOR="0", ANSIBLE_NOCOLOR="1", ANSIBLE_RETRY_FILES_ENABLED="0",
        ANSIBLE_PIPELINING="1", ANSIBLE_STDOUT_CALLBACK="ansible.builtin.default", ANSIBLE_CALLBACK_RESULT_FORMAT="yaml",
        ANSIBLE_LOCALHOST_WARNING="0", ANSIBLE_INVENTORY_UNPARSED_WARNING="0")


def start(*hosts, release="trixie"):
    """Start nested hypervisors (kept when they run already) and describe them."""
    done = subprocess.run(
        [str(part) for part in command("up", "--hosts", ",".join(hosts), "--release", release)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=1800, check=False)
    assert done.returncode == 0, f"the nested hypervisors {hosts} did not start:\n{done.stdout}"
    group = yaml.safe_load(Path(INVENTORY).read_text(encoding="utf-8"))["hypervisors"]
    return Hypervisors(group["hosts"], group.get("vars", {}))


@functools.cache
def of_release(release):
    """The nested hypervisor of a release, HOSTS[release], started when a test first asks for it."""
    return start(HOSTS[release], release=release)


@pytest.fixture(scope="session")
def hv1():
    """One nested hypervisor of the default release."""
    return of_release("trixie")


@pytest.fixture(scope="session", params=[release for release, host in HOSTS.items() if host != "hv1"])
def other_release(request):
    """(hypervisors, name) of a nested hypervisor of each release that is not the default one."""
    return of_release(request.param), HOSTS[request.param]
