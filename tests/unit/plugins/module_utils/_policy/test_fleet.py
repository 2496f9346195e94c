# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A valid definition written out, and a hypervisor's share of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy import names
from ansible_collections.egress.kvm2.plugins.module_utils._policy.fleet import expand, normalise, passwords, problems, share

FIX = "List the addresses or networks of the clients, such as 192.0.2.0/24."
MINIMAL = {"name": "edge", "image": {"key": "debian-12", "src": "/srv/a.qcow2"}, "hypervisors": ["hv1"], "instances": {"count": 1}}


def test_defaults_are_filled_in():
    assert normalise(MINIMAL) == {
        "name": "edge",
        "image": {"key": "debian-12", "src": "/srv/a.qcow2", "format": "qcow2"},
        "pool": "default",
        "networks": [{"network": "default"}],
        "proxy": {"engine": "tinyproxy", "port": 3128, "allow": []},
        "dns": {},
        "authorized_keys": [],
        "hypervisors": {"hv1": 1},
        "instances": [{
            "name": "proxy-01", "uid": names.derive_uid("edge", "proxy-01"), "hypervisor": "hv1", "memory": "512MiB", "vcpus": 1,
            "disk": "4GiB", "proxy": {"engine": "tinyproxy", "port": 3128, "allow": []}, "addresses": [None], "domain": {}}],
        "placement": {"hv1": ["proxy-01"]},
        "warnings": [
            f"kvm2_fleet.proxy.allow is empty, so the proxies of fleet edge serve nobody. {FIX}"],
    }


def test_a_definition_that_allows_somebody_or_has_no_instance_warns_of_nothing():
    assert normalise(dict(MINIMAL, proxy={"allow": ["192.0.2.7"]}))["warnings"] == []
    assert normalise(dict(MINIMAL, instances={"count": 0}))["warnings"] == []


def test_allowed_networks_are_written_in_one_way():
    complete = normalise(dict(MINIMAL, proxy={"allow": ["192.0.2.7", "2001:DB8:0::/32"]}))
    assert complete["proxy"]["allow"] == ["192.0.2.7/32", "2001:db8::/32"]


def test_sizing_of_an_instance_overrides_the_fleet_and_the_default():
    definition = dict(
        MINIMAL, sizing={"memory": "1GiB", "vcpus": 2},
        instances=[{"name": "a"}, {"name": "b", "sizing": {"vcpus": 4, "disk": "8GiB"}}])
    sizes = [(item["memory"], item["vcpus"], item["disk"]) for item in normalise(definition)["instances"]]
    assert sizes == [("1GiB", 2, "4GiB"), ("1GiB", 4, "8GiB")]


def test_a_uid_of_zeros_is_refused():
    definition = dict(MINIMAL, instances=[{"name": "a", "uid": "00000000-0000-0000-0000-000000000000"}])
    (problem,) = problems(definition)
    assert problem.startswith("kvm2_fleet.instances[0].uid: '00000000-0000-0000-0000-000000000000': it stands for no UUID at all")


def test_given_uid_is_written_in_its_canonical_form():
    definition = dict(MINIMAL, instances=[{"name": "a", "uid": "0B0D2F1C-2A4D-5F2E-9C56-2F0C6F2F7F11"}])
    assert normalise(definition)["instances"][0]["uid"] == "0b0d2f1c-2a4d-5f2e-9c56-2f0c6f2f7f11"


def test_hypervisors_as_a_mapping_have_weights():
    definition = dict(MINIMAL, hypervisors={"hv1": None, "hv2": {}, "hv3": {"weight": 3}}, instances={"count": 5})
    complete = normalise(definition)
    assert complete["hypervisors"] == {"hv1": 1, "hv2": 1, "hv3": 3}
    assert {name: len(share_) for name, share_ in complete["placement"].items()} == {"hv1": 1, "hv2": 1, "hv3": 3}


@given(st.integers(0, 300), st.integers(0, 300))
def test_a_larger_count_keeps_the_names_of_the_first_ones(few, more):
    few, more = sorted((few, more))
    small, large = expand({"count": few, "prefix": "p"}), expand({"count": more, "prefix": "p"})
    assert large[:few] == small
    assert len({item["name"] for item in large}) == more


def test_names_have_two_digits_and_more_where_they_need_them():
    found = [item["name"] for item in expand({"count": 100})]
    assert (found[0], found[98], found[99]) == ("proxy-01", "proxy-99", "proxy-100")


@given(st.integers(0, 40), st.integers(1, 6))
def test_the_shares_of_all_hypervisors_are_the_fleet(count, hypervisors):
    fleet = normalise(dict(MINIMAL, hypervisors=[f"hv{number}" for number in range(hypervisors)], instances={"count": count}))
    found = [name for hypervisor in fleet["hypervisors"] for name in share(fleet, hypervisor)["names"]]
    assert sorted(found) == sorted(item["name"] for item in fleet["instances"])
    for hypervisor, placed in fleet["placement"].items():
        assert share(fleet, hypervisor)["names"] == placed


def test_share_is_in_the_form_of_the_modules():
    fleet = normalise(dict(
        MINIMAL, hypervisors=["hv1", "hv2"], networks=[{"network": "default"}, {"bridge": "br0", "model": "e1000"}],
        instances=[{"name": "a", "sizing": {"memory": "1GiB", "vcpus": 2}}, {"name": "b", "hypervisor": "hv1"}, {"name": "c"}]))
    uids = {name: names.derive_uid("edge", name) for name in "abc"}
    assert share(fleet, "hv1", [{"name": "a", "overlay": "kvm2-a.qcow2"}, {"name": "b", "overlay": None}]) == {
        "names": ["a", "b"],
        "overlays": [{"name": "a", "uid": uids["a"], "capacity": "4GiB"}, {"name": "b", "uid": uids["b"], "capacity": "4GiB"}],
        "domains": [
            {"name": "a", "uid": uids["a"], "memory": "1GiB", "vcpus": 2, "overlay": "kvm2-a.qcow2"},
            {"name": "b", "uid": uids["b"], "memory": "512MiB", "vcpus": 1}],
        "interfaces": [{"network": "default"}, {"bridge": "br0", "model": "e1000"}],
        "declared": [],
        "networks": ["default"],
        "bridges": ["br0"],
        "memory": (1024 + 512) * 1024 ** 2,
        "vcpus": 2,
    }


LOGIN = {"allow": ["192.0.2.0/24"], "user": "op", "password": "s3cret"}


def test_a_proxy_of_an_instance_overrides_the_fleets_key_by_key_and_no_password_stays():
    definition = dict(MINIMAL, proxy=LOGIN, instances=[
        {"name": "a"}, {"name": "b", "proxy": {"engine": "dante"}}, {"name": "c", "proxy": {"engine": "squid", "port": 8080, "password": "other"}}])
    complete = normalise(definition)
    assert "s3cret" not in str(complete) and "other" not in str(complete)
    assert [(one["proxy"]["engine"], one["proxy"]["port"], one["proxy"]["user"]) for one in complete["instances"]] == [
        ("tinyproxy", 3128, "op"), ("dante", 1080, "op"), ("squid", 8080, "op")]
    assert passwords(definition) == {"a": "s3cret", "b": "s3cret", "c": "other"}


def test_a_fleets_port_counts_for_every_engine():
    definition = dict(MINIMAL, proxy=dict(LOGIN, port=8080), instances=[{"name": "a", "proxy": {"engine": "dante"}}])
    assert normalise(definition)["instances"][0]["proxy"]["port"] == 8080


def test_instances_that_serve_nobody_are_named():
    definition = dict(MINIMAL, proxy=LOGIN, instances=[{"name": "a"}, {"name": "b", "proxy": {"allow": []}}])
    assert normalise(definition)["warnings"] == [f"kvm2_fleet.proxy.allow is empty, so b of fleet edge serve nobody. {FIX}"]


STATIC = {"network": "default", "subnet": "192.0.2.0/24", "first": "192.0.2.50"}


@given(st.integers(1, 100), st.integers(1, 100))
def test_an_instances_address_stays_whatever_the_count_is(few, more):
    def addresses(count):
        definition = dict(MINIMAL, networks=[STATIC, {"bridge": "br0"}], instances={"count": count})
        return {one["name"]: one["addresses"] for one in normalise(definition)["instances"]}
    small, large = addresses(min(few, more)), addresses(max(few, more))
    assert small == {name: large[name] for name in small}
    assert large["proxy-01"] == ["192.0.2.50", None]
    assert len({tuple(found) for found in large.values()}) == len(large)


def test_a_share_says_of_which_families_its_addresses_are_known():
    definition = dict(MINIMAL, networks=[STATIC, {"bridge": "br0", "subnet": "2001:db8::/64", "first": "2001:db8::10"}])
    assert share(normalise(definition), "hv1")["declared"] == ["ipv4", "ipv6"]
    assert share(normalise(dict(MINIMAL, networks=[STATIC, {"bridge": "br0"}])), "hv1")["declared"] == ["ipv4"]


def test_guests_without_name_servers_are_warned_of():
    words = "kvm2_fleet.dns.servers is missing"
    allowing = dict(MINIMAL, proxy=LOGIN)
    assert normalise(dict(allowing, networks=[STATIC]))["warnings"][0].startswith(words)
    assert normalise(dict(allowing, networks=[STATIC], dns={"servers": ["192.0.2.1"]}))["warnings"] == []
    assert normalise(dict(allowing, networks=[STATIC, {"bridge": "br0"}]))["warnings"] == []


def test_an_unknown_hypervisor_gets_nothing():
    assert share(normalise(MINIMAL), "hv9") == {
        "names": [], "overlays": [], "domains": [], "interfaces": [{"network": "default"}], "declared": [], "networks": ["default"],
        "bridges": [], "memory": 0, "vcpus": 0}


DOMAIN = {"firmware": "efi", "watchdog": "reset", "cpu_tuning": {"quota": 50}, "io_tuning": {"total_iops": 100}, "xml_extra": ["<sound model='ich9'/>"]}


def test_options_of_domains_and_interfaces_reach_the_module():
    network = {
        "network": "default", "model": "virtio", "vlan": 3, "mtu": 1400, "nwfilter": "clean-traffic", "nwfilter_parameters": {"IP": ["192.0.2.1"]}}
    definition = dict(
        MINIMAL, networks=[network], domain=DOMAIN,
        instances=[{"name": "a"}, {"name": "b", "domain": {"watchdog": "none", "cpu_tuning": {"shares": 5}}}])
    assert problems(definition) == []
    found = share(normalise(definition), "hv1")
    assert found["interfaces"] == [network]
    assert [{key: one[key] for key in DOMAIN} for one in found["domains"]] == [DOMAIN, {**DOMAIN, "watchdog": "none", "cpu_tuning": {"shares": 5}}]


def test_what_is_wrong_with_them_is_said_with_its_place():
    definition = dict(
        MINIMAL, networks=[{"network": "default", "nwfilter_parameters": {"IP": "192.0.2.1"}}], domain={"cpu_tuning": {"pin": "x"}},
        instances=[{"name": "a", "domain": {"cpu_tuning": {}, "io_tuning": {"total_bytes": "1MiB", "read_bytes": "1MiB"}}}])
    assert problems(definition) == [
        "kvm2_fleet.networks[0] nwfilter_parameters: there is no nwfilter that they are for. Name the filter too, or leave them out.",
        "kvm2_fleet.domain: cpu_tuning.pin 'x': it is no list of processors. Write numbers and ranges, such as 0-3,6.",
        "kvm2_fleet.instances[0].domain: io_tuning: total_bytes excludes read_bytes and write_bytes. Give the total alone, or the other two."]


def test_a_filter_is_told_of_the_address_that_an_instance_has():
    networks = [
        {"network": "a", "nwfilter": "clean-traffic", "subnet": "192.0.2.0/24"}, {"network": "b", "nwfilter": "clean-traffic"},
        {"network": "c", "nwfilter": "mine", "nwfilter_parameters": {"IP": "198.51.100.9"}, "subnet": "198.51.100.0/24"},
        {"network": "d", "nwfilter": "mine", "subnet": "2001:db8::/64"}, {"network": "e", "subnet": "203.0.113.0/24"}]
    addresses = ["192.0.2.7", "198.51.100.7", "2001:db8::7", "203.0.113.7"]
    definition = dict(MINIMAL, networks=networks, instances=[{"name": "one", "address": addresses}])
    assert problems(definition) == []
    found = share(normalise(definition), "hv1")
    assert [one.get("nwfilter_parameters") for one in found["domains"][0]["networks"]] == [
        {"IP": "192.0.2.7"}, None, {"IP": "198.51.100.9"}, None, None]
    assert [one.get("nwfilter_parameters") for one in found["interfaces"]] == [None, None, {"IP": "198.51.100.9"}, None, None]
