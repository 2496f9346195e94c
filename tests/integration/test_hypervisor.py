# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role hypervisor on a nested hypervisor, which it has made itself: what is there stays, what is missing is made, what differs is refused."""

from __future__ import annotations

import json
import re

import pytest
from nested import HOSTS

from .conftest import of_release

LOOK = "virsh -q pool-list --all; virsh -q net-list --all; ls -d /srv/kvm2-role 2>&1; dpkg-query -W | sha256sum"
OTHER = {
    "hypervisor_pool": "role-pool", "hypervisor_pool_path": "/srv/kvm2-role/pool", "hypervisor_network": "role-net",
    "hypervisor_network_address": "10.77.0.1/20", "hypervisor_network_dhcp": {"start": "10.77.0.10", "end": "10.77.0.20"},
}
UNDO = (
    "for pool in $(virsh -q pool-list --all --name | grep role-); do virsh -q pool-destroy $pool; virsh -q pool-undefine $pool; done;"
    "for net in $(virsh -q net-list --all --name | grep role-); do virsh -q net-destroy $net; virsh -q net-undefine $net; done; rm -rf /srv/kvm2-role"
)


class Host:
    """One hypervisor, and runs of the role's playbook on it."""

    def __init__(self, release):
        self.hypervisors, self.name = of_release(release), HOSTS[release]

    def apply(self, *arguments, **variables):
        """The number of changes of a run that must succeed."""
        done = self.hypervisors.playbook(
            "egress.kvm2.hypervisor", "--limit", self.name, "-e", json.dumps(OTHER | variables), *arguments)
        return int(re.search(rf"{self.name} .*changed=(\d+)", done.stdout)[1])

    def refusal(self, **variables):
        """The output of a run that must fail."""
        done = self.hypervisors.playbook(
            "egress.kvm2.hypervisor", "--limit", self.name, "-e", json.dumps(OTHER | variables), check=False)
        assert done.returncode != 0, done.stdout
        return " ".join(done.stdout.split())

    def shell(self, script):
        return self.hypervisors.shell(self.name, script)


@pytest.fixture(params=["trixie", *(pytest.param(name, marks=pytest.mark.extended) for name in HOSTS if name != "trixie")])
def host(request):
    host = Host(request.param)
    before = host.shell(LOOK)
    yield host
    host.shell(UNDO)
    assert host.shell(LOOK) == before


DEFAULTS = {
    "hypervisor_pool": "default", "hypervisor_pool_path": "/var/lib/libvirt/images/", "hypervisor_network": "default",
    "hypervisor_network_address": "192.168.122.1/24", "hypervisor_network_dhcp": {"start": "192.168.122.2", "end": "192.168.122.254"},
}


def test_what_the_harness_made_with_it_is_as_wished(host):
    assert host.apply(**DEFAULTS) == 0
    assert host.apply("--check", **DEFAULTS) == 0


def test_a_pool_and_a_network_are_predicted_made_kept_and_started_again(host):
    before = host.shell(LOOK)
    assert host.apply("--check") == 3
    assert host.shell(LOOK) == before
    assert host.apply() == 3
    assert re.search(r"role-pool\s+active\s+yes\s+role-net\s+active\s+yes", " ".join(sorted(host.shell(LOOK).split("\n"), reverse=True)))
    assert "mode>0711" in host.shell("virsh pool-dumpxml role-pool")
    assert "10.77.0.20" in host.shell("virsh net-dumpxml role-net")
    assert host.apply() == 0
    host.shell("virsh pool-destroy role-pool; virsh pool-autostart --disable role-pool; virsh net-destroy role-net")
    assert host.apply("--check") == 2
    assert host.apply() == 2
    assert host.apply() == 0


def test_what_differs_is_named_and_left_alone(host):
    host.apply()
    before = host.shell("virsh pool-dumpxml role-pool; virsh net-dumpxml role-net")
    said = host.refusal(
        hypervisor_pool_path="/srv/kvm2-role/elsewhere", hypervisor_network_forward="route", hypervisor_network_bridge="br-role",
        hypervisor_network_address="10.77.0.1/24", hypervisor_network_dhcp={})
    for words in (
        "pool role-pool is in /srv/kvm2-role/pool and not in /srv/kvm2-role/elsewhere", "has the forward mode nat and not route",
        "and not br-role", "has the address 10.77.0.1/20 and not 10.77.0.1/24", "gives out by DHCP 10.77.0.10 to 10.77.0.20 and not none",
    ):
        assert words in said
    assert host.shell("virsh pool-dumpxml role-pool; virsh net-dumpxml role-net; ls /srv/kvm2-role") == before + "pool\n"


def test_a_network_with_a_netmask_is_read_too(host):
    host.shell(
        "echo \"<network><name>role-net</name><forward mode='nat'/><ip address='10.77.0.1' netmask='255.255.240.0'/></network>\""
        " | virsh net-define /dev/stdin")
    assert host.apply(hypervisor_pool="", hypervisor_network_dhcp={}) == 1


def test_a_network_that_cannot_start_is_not_kept(host):
    said = host.refusal(hypervisor_pool="", hypervisor_network_address="192.168.122.1/24", hypervisor_network_dhcp={})
    assert "Failed to prepare network role-net" in said
    assert "in use" in said
    assert "role-net" not in host.shell(LOOK)


@pytest.mark.parametrize("variables, words", [
    ({"__hypervisor_oldest_debian": 99}, "this role prepares Debian 99 and newer"),
    ({"hypervisor_network_forward": "bridge"}, "value of hypervisor_network_forward must be one of"),
    ({"hypervisor_network_address": "10.77.0.1"}, "is no address with the length of a prefix"),
    ({"hypervisor_network_dhcp": {"start": "10.77.0.10"}}, "hypervisor_network_dhcp"),
    ({"hypervisor_pool_path": "srv"}, "is no absolute path"),
    ({"hypervisor_pool": "two words"}, "is no name"),
    ({"hypervisor_uri": "qemu:///system?socket=/nowhere"}, "Failed to reach the libvirt daemon"),
])
def test_what_cannot_be_prepared_is_refused(host, variables, words):
    before = host.shell(LOOK)
    assert words in host.refusal(**variables)
    assert host.shell(LOOK) == before


def test_check_mode_tells_what_would_be_installed(host):
    assert host.apply("--check", **DEFAULTS, hypervisor_extra_packages=["nbd-client"]) == 1
