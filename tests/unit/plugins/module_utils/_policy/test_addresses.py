# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._policy.addresses import sources, usable
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import InvalidInput
from ansible_collections.egress.kvm2.plugins.module_utils._policy.model import Address

FIRST, SECOND, OTHER = "52:54:00:00:00:01", "52:54:00:00:00:02", "52:54:00:00:00:03"


def at(address, mac=FIRST, source="lease"):
    return Address(mac, address, 24, source)


def texts(found):
    return [entry.address for entry in found]


@pytest.mark.parametrize("address", [
    "127.0.0.1", "127.8.9.1", "::1", "169.254.3.4", "fe80::5054:ff:fe00:1", "fe80::1%eth0", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "", "not an address",
    "192.168.122.300"])
def test_what_is_no_address_of_a_guest(address):
    assert usable([at(address)], [FIRST]) == ()


@pytest.mark.parametrize("address", ["192.168.122.7", "10.0.0.1", "203.0.113.9", "fd00::7", "2001:db8::1"])
def test_what_is_one(address):
    assert texts(usable([at(address)], [FIRST])) == [address]


def test_only_our_interfaces_count_however_their_macs_are_written():
    assert texts(usable([at("10.0.0.1", OTHER), at("10.0.0.2", FIRST.upper()), at("10.0.0.3", "")], [FIRST])) == ["10.0.0.2"]
    assert texts(usable([at("10.0.0.1", FIRST)], [FIRST.upper()])) == ["10.0.0.1"]
    assert usable([at("10.0.0.1")], []) == ()


def test_in_the_order_of_the_interfaces_and_each_once():
    found = usable([at("10.0.0.9", SECOND), at("fd00::1"), at("10.0.0.20"), at("10.0.0.3"), at("10.0.0.3", source="agent")], [FIRST, SECOND])
    assert texts(found) == ["10.0.0.3", "10.0.0.20", "fd00::1", "10.0.0.9"] and found[0].source == "lease"


def test_the_family():
    both = [at("10.0.0.1"), at("fd00::1")]
    assert texts(usable(both, [FIRST], "ipv4")) == ["10.0.0.1"] and texts(usable(both, [FIRST], "ipv6")) == ["fd00::1"]


@pytest.mark.parametrize(("asked", "kinds", "found"), [
    ("auto", {"network"}, ("lease", "agent")), ("auto", {"bridge"}, ("agent", "arp")), ("auto", {"bridge", "network"}, ("lease", "agent")),
    ("auto", set(), ("agent", "arp")), ("lease", {"network"}, ("lease",)), ("agent", {"bridge"}, ("agent",)), ("arp", {"network"}, ("arp",))])
def test_sources_by_the_kind_of_interface(asked, kinds, found):
    assert sources(asked, kinds) == found


def test_a_lease_of_a_guest_on_bridges_is_refused_at_once():
    with pytest.raises(InvalidInput, match="keeps no leases"):
        sources("lease", {"bridge"})
