# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of guests over libvirt's test driver, where libvirt answers, cannot, or answers in part."""

from __future__ import annotations

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import host_files, libvirt_connection
from ansible_collections.egress.kvm2.plugins.module_utils._host.deadline import Deadline
from ansible_collections.egress.kvm2.plugins.module_utils._host.libvirt_hypervisor import LibvirtHypervisor
from ansible_collections.egress.kvm2.plugins.module_utils._policy.model import Address

libvirt = libvirt_connection.libvirt
MAC = "aa:bb:cc:dd:ee:ff"
KNOWN = {MAC: ["192.168.122.7", "192.168.122.9"], "52:54:00:12:34:56": ["192.168.122.8"]}


@pytest.fixture
def hypervisor(monkeypatch):
    monkeypatch.setattr(host_files, "neighbours", lambda root="/": KNOWN)
    deadline = Deadline(600, "test:///default", leave=lambda text: None)
    hypervisor = LibvirtHypervisor("test:///default", deadline)
    yield hypervisor
    hypervisor.close()
    deadline.cancel()


@pytest.fixture
def uuid(hypervisor):
    """Of a guest that runs and has that MAC address."""
    made = hypervisor.define(
        f"<domain type='test'><name>told</name><memory>8192</memory><os><type>hvm</type></os><devices><interface type='network'>"
        f"<source network='default'/><mac address='{MAC}'/></interface></devices></domain>").uuid
    yield made
    # The test driver is one for all connections of the process, and knows none of the flags of undefine.
    hypervisor.destroy(made)
    libvirt.open("test:///default").lookupByUUIDString(made).undefine()


def answer(monkeypatch, given):
    def interfaces(self, source, flags):
        if isinstance(given, str):
            error = libvirt.libvirtError(given)
            error.err = (1, 0, given, 2, "", "", "", 0, 0)
            raise error
        return given
    monkeypatch.setattr(libvirt.virDomain, "interfaceAddresses", interfaces)


def arp(*addresses):
    return tuple(Address(MAC, address, 0, "arp") for address in addresses)


@pytest.mark.parametrize("told", ["wrong nlmsg len", {}, {"vnet0": {"hwaddr": MAC, "addrs": [{"addr": "192.168.122.7", "prefix": 0, "type": 0}]}}])
def test_neighbours_are_read_from_the_kernel_too(hypervisor, uuid, monkeypatch, told):
    answer(monkeypatch, {})
    assert hypervisor.addresses(uuid, "arp") == ()
    hypervisor.start(uuid)
    answer(monkeypatch, told)
    assert hypervisor.addresses(uuid, "arp") == arp("192.168.122.7", "192.168.122.9")
    assert hypervisor.addresses(uuid, "lease") == (() if isinstance(told, str) or not told else (Address(MAC, "192.168.122.7", 0, "lease"),))
    assert hypervisor.why_no_addresses(uuid, "arp") == (told if isinstance(told, str) else "")


def test_the_kernel_of_another_machine_cannot_be_read(hypervisor, uuid, monkeypatch):
    answer(monkeypatch, {})
    hypervisor.start(uuid)
    monkeypatch.setattr(hypervisor, "is_local", lambda: False)
    assert hypervisor.addresses(uuid, "arp") == ()


def test_a_guest_that_has_gone_has_no_addresses(hypervisor):
    nobody = "6695eb01-f6a4-8304-79aa-97f2502e1930"
    assert hypervisor.addresses(nobody, "arp") == ()
    assert hypervisor.why_no_addresses(nobody, "arp") == "it has gone"
