# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Endpoints and the table of them."""

from __future__ import annotations

from ansible_collections.egress.kvm2.plugins.module_utils._policy.endpoints import drift, endpoints, proxies, table
from ansible_collections.egress.kvm2.plugins.module_utils._policy.fleet import normalise

DEFINITION = {
    "name": "edge", "image": {"key": "debian-12", "src": "/srv/a.qcow2"}, "hypervisors": ["hv1"], "proxy": {"allow": ["192.0.2.0/24"]},
    "instances": {"count": 2}}
FLEET = normalise(DEFINITION)
RUNNING = {"name": "proxy-01", "state": "running", "primary_address": "192.168.122.17"}
BOOTING = {"name": "proxy-02", "state": "provisioning", "primary_address": None}


def test_endpoint_has_exactly_these_fields():
    assert endpoints(FLEET, "hv1", [RUNNING], [{"name": "proxy-01", "egress_address": "192.0.2.7"}]) == [{
        "name": "proxy-01", "fleet": "edge", "hypervisor": "hv1", "address": "192.168.122.17", "port": 3128, "scheme": "http",
        "engine": "tinyproxy", "url": "http://192.168.122.17:3128", "state": "running", "egress_address": "192.0.2.7"}]


def test_without_an_address_there_is_no_url():
    entry = endpoints(FLEET, "hv1", [BOOTING])[0]
    assert (entry["address"], entry["url"], entry["egress_address"]) == (None, None, None)


def test_an_ipv6_address_is_bracketed():
    assert endpoints(FLEET, "hv1", [dict(RUNNING, primary_address="2001:db8::7")])[0]["url"] == "http://[2001:db8::7]:3128"


def test_only_proxies_with_an_address_can_be_asked():
    assert proxies(endpoints(FLEET, "hv1", [RUNNING, BOOTING])) == [
        {"name": "proxy-01", "address": "192.168.122.17", "port": 3128, "scheme": "http"}]


STATIC = dict(
    DEFINITION, networks=[{"network": "default", "subnet": "192.168.122.0/24"}],
    instances=[{"name": "proxy-01", "address": "192.168.122.50", "proxy": {"engine": "dante"}}, {"name": "proxy-02", "address": "192.168.122.51"}])


def test_a_declared_address_counts_before_one_that_was_seen():
    entries = endpoints(normalise(STATIC), "hv1", [RUNNING, BOOTING])
    assert [entry["url"] for entry in entries] == ["socks5://192.168.122.50:1080", "http://192.168.122.51:3128"]


def test_a_guest_with_another_seed_is_where_it_was_seen():
    seed = [{"field": "seed", "have": "a", "want": "b", "needs": "replace", "pending": False}]
    assert endpoints(normalise(STATIC), "hv1", [dict(RUNNING, drift=seed)])[0]["address"] == "192.168.122.17"
    assert endpoints(normalise(STATIC), "hv1", [dict(BOOTING, drift=seed)])[0]["address"] == "192.168.122.51"


def test_a_predicted_guest_has_no_address():
    predicted = dict(BOOTING, seed="kvm2-edge.proxy-02-b5a28f7d-99ad-512f-9274-7986455d5fd8-xxxxxx.iso")
    assert endpoints(normalise(STATIC), "hv1", [predicted])[0]["address"] is None


def test_an_address_of_the_other_family_does_not_count():
    assert endpoints(normalise(STATIC), "hv1", [BOOTING], family="ipv6")[0]["address"] is None


def test_a_guest_that_answers_runs():
    def state(check):
        return endpoints(normalise(STATIC), "hv1", [BOOTING], [dict(check, name="proxy-02")])[0]["state"]
    assert (state({"ok": True}), state({"ok": False})) == ("running", "provisioning")


def test_a_proxy_with_a_user_is_asked_with_its_password_and_with_a_wrong_one():
    definition = dict(DEFINITION, proxy={"allow": ["192.0.2.0/24"], "user": "op", "password": "s3cret"})
    entries = endpoints(normalise(definition), "hv1", [RUNNING])
    right, wrong = proxies(entries, definition)
    where = {"address": "192.168.122.17", "port": 3128, "scheme": "http", "user": "op"}
    assert right == dict(where, name="proxy-01", password="s3cret")
    assert wrong == dict(where, name="proxy-01 with a wrong password", password=wrong["password"], expect="refused")
    assert wrong["password"] != "s3cret"
    assert "s3cret" not in str(entries)


def test_the_wrong_password_is_wrong_whatever_the_right_one_is():
    definition = dict(DEFINITION, proxy={"allow": ["192.0.2.0/24"], "user": "op", "password": "s3cret"})
    wrong = proxies(endpoints(normalise(definition), "hv1", [RUNNING]), definition)[1]["password"]
    definition["proxy"]["password"] = wrong
    assert proxies(endpoints(normalise(definition), "hv1", [RUNNING]), definition)[1]["password"] != wrong


def test_a_proxy_that_serves_nobody_is_not_asked():
    definition = dict(DEFINITION, instances=[{"name": "proxy-01", "proxy": {"allow": []}}, {"name": "proxy-02"}])
    here = dict(BOOTING, primary_address="192.168.122.18")
    assert [one["name"] for one in proxies(endpoints(normalise(definition), "hv1", [RUNNING, here]), definition)] == ["proxy-02"]


def test_table_has_columns_of_one_width():
    assert table(endpoints(FLEET, "hv1", [RUNNING, BOOTING])) == [
        "INSTANCE  HYPERVISOR  ENGINE     ADDRESS         PROXY                       STATE",
        "proxy-01  hv1         tinyproxy  192.168.122.17  http://192.168.122.17:3128  running",
        "proxy-02  hv1         tinyproxy  -               -                           provisioning"]


def test_table_of_nothing_is_its_head():
    assert table([]) == ["INSTANCE  HYPERVISOR  ENGINE  ADDRESS  PROXY  STATE"]


def test_each_difference_is_a_line():
    found = [
        {"field": "memory", "have": 1024, "want": 2048, "needs": "restart", "pending": True},
        {"field": "seed", "have": "a" * 64, "want": "b" * 64, "needs": "replace", "pending": False},
        {"field": "machine", "have": "pc", "want": None, "needs": "redefine", "pending": False}]
    assert drift([dict(RUNNING, drift=found), dict(BOOTING, drift=[])]) == [
        "proxy-01: memory is 1024 where 2048 is declared; its restart is needed",
        "proxy-01: seed is not what is declared; on_change replace is needed",
        "proxy-01: machine is pc where - is declared; on_change redefine is needed"]
