# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Endpoints and the table of them."""

from __future__ import annotations

from ansible_collections.egress.kvm2.plugins.module_utils._policy.endpoints import drift, endpoints, proxies, table

FLEET = {"name": "edge", "proxy": {"port": 3128}}
RUNNING = {"name": "proxy-01", "state": "running", "primary_address": "192.168.122.17"}
BOOTING = {"name": "proxy-02", "state": "provisioning", "primary_address": None}


def test_endpoint_has_exactly_these_fields():
    assert endpoints(FLEET, "hv1", [RUNNING], [{"name": "proxy-01", "egress_address": "192.0.2.7"}]) == [{
        "name": "proxy-01", "fleet": "edge", "hypervisor": "hv1", "address": "192.168.122.17", "port": 3128, "scheme": "http",
        "url": "http://192.168.122.17:3128", "state": "running", "egress_address": "192.0.2.7"}]


def test_without_an_address_there_is_no_url():
    entry = endpoints(FLEET, "hv1", [BOOTING])[0]
    assert (entry["address"], entry["url"], entry["egress_address"]) == (None, None, None)


def test_an_ipv6_address_is_bracketed():
    assert endpoints(FLEET, "hv1", [dict(RUNNING, primary_address="2001:db8::7")])[0]["url"] == "http://[2001:db8::7]:3128"


def test_only_proxies_with_an_address_can_be_asked():
    assert proxies(endpoints(FLEET, "hv1", [RUNNING, BOOTING])) == [
        {"name": "proxy-01", "address": "192.168.122.17", "port": 3128, "scheme": "http"}]


def test_table_has_columns_of_one_width():
    assert table(endpoints(FLEET, "hv1", [RUNNING, BOOTING])) == [
        "INSTANCE  HYPERVISOR  ADDRESS         PROXY                       STATE",
        "proxy-01  hv1         192.168.122.17  http://192.168.122.17:3128  running",
        "proxy-02  hv1         -               -                           provisioning"]


def test_table_of_nothing_is_its_head():
    assert table([]) == ["INSTANCE  HYPERVISOR  ADDRESS  PROXY  STATE"]


def test_each_difference_is_a_line():
    found = [
        {"field": "memory", "have": 1024, "want": 2048, "needs": "restart", "pending": True},
        {"field": "seed", "have": "a" * 64, "want": "b" * 64, "needs": "replace", "pending": False},
        {"field": "machine", "have": "pc", "want": None, "needs": "redefine", "pending": False}]
    assert drift([dict(RUNNING, drift=found), dict(BOOTING, drift=[])]) == [
        "proxy-01: memory is 1024 where 2048 is declared; its restart is needed",
        "proxy-01: seed is not what is declared; on_change replace is needed",
        "proxy-01: machine is pc where - is declared; on_change redefine is needed"]
