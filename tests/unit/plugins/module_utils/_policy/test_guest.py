# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a guest gets, to the letter: the engines' configuration files, cloud-init's user data and network configuration."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from ansible_collections.egress.kvm2.plugins.module_utils._policy import meta_data, names, seed
from ansible_collections.egress.kvm2.plugins.module_utils._policy.cloud_config import render
from ansible_collections.egress.kvm2.plugins.module_utils._policy.engines import ENGINES, Settings
from ansible_collections.egress.kvm2.plugins.module_utils._policy.fleet_guests import guests
from ansible_collections.egress.kvm2.plugins.module_utils._policy.guest_config import cloud_config, merge
from ansible_collections.egress.kvm2.plugins.module_utils._policy.guest_network import network_config
from ansible_collections.egress.kvm2.plugins.module_utils._policy.password_hash import derive_salt, sha512_crypt

GOLDEN = Path(__file__).parent / "golden" / "guest"
UID = "bdcf2b7e-b780-5ade-85c5-cb0dd262285e"
PROXY = {"port": 3128, "allow": ["192.0.2.0/24", "2001:db8::/32"]}
LOGIN = {"user": "op", "password": "s3cret"}
SETTINGS = Settings()
OTHER = Settings(connect_ports=(), max_clients=7, client_timeout=60, interfaces=("eth0", "eth1"))
STATIC = {"network": "default", "subnet": "192.0.2.0/24", "gateway": "192.0.2.1"}
STATIC6 = {"bridge": "br0", "subnet": "2001:db8::/64", "gateway": "fe80::1"}
DNS = {"servers": ["192.0.2.53", "2001:db8::53"], "search": ["example.com"]}

KNOWN = {
    ("a", 0): "$6$a$Z6IPkDduHdwavesVY2NFMpOHkigshxPYdhfLg0D3A7/XFQcso9RV2E8qczyJ2su.dj6RRLaTpvgwN1rZfK0I9.",
    ("0123456789abcdef", 40): "$6$0123456789abcdef$Mm7jJRxBkSuy/8sRqS1xoWnR4rp7uF.oDXn80o.O7lgtNB2mXTalaj78.4OMmDjnMD0LAhITPA4Fxt1/TstMd0",
    ("ab", 64): "$6$ab$jJ0JKpcKeTClUMLQxap/pY8XzZDlO4biLLovk8fVGLaE4t52bto0gyekQs9CufrDwjH.bpV74nlWd0KNS.pxj0",
    ("ab", 65): "$6$ab$Qrsuy1a2TfJysu4UFCqiqIJv.iKGAuoEl2KLDyngwYNx7JTjCKuYR70dUCnC7LwC/dPAjDQUzbXOt8aJkwR3o/",
}


def file_of(engine, settings=SETTINGS, **more):
    proxy = dict(PROXY, engine=engine, **more)
    return ENGINES[engine].render(proxy, settings)


def user_data(engine, *arguments, **more):
    return render(cloud_config(UID, dict(PROXY, engine=engine, **more), SETTINGS, *arguments))


CASES = {
    **{f"{engine}-open.conf": file_of(engine) for engine in ENGINES},
    **{f"{engine}-login.conf": file_of(engine, **LOGIN) for engine in ENGINES},
    **{f"{engine}-nobody.conf": file_of(engine, allow=[], **LOGIN) for engine in ENGINES},
    **{f"{engine}-settings.conf": file_of(engine, OTHER) for engine in ENGINES},
    **{f"{engine}.user-data": user_data(engine, **LOGIN) for engine in ENGINES},
    "keys.user-data": user_data("tinyproxy", ["ssh-ed25519 AAAA a", "ssh-ed25519 AAAA b"], [], {"packages": ["curl"], "users": ["default"]}),
    "dhcp.network-config": network_config(UID, [{"network": "default"}], [None]),
    "dhcp-both.network-config": network_config(UID, [{"network": "default"}], [None], DNS, "ipv6"),
    "static.network-config": network_config(UID, [STATIC, {"bridge": "br0"}], ["192.0.2.50", None], DNS),
    "static6.network-config": network_config(UID, [STATIC6], ["2001:db8::50"], {"servers": ["2001:db8::53"]}),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_text_is_the_golden_one(case):
    assert CASES[case] == (GOLDEN / case).read_text(encoding="utf-8")


def test_there_is_no_golden_file_without_a_case():
    assert {path.name for path in GOLDEN.iterdir()} == set(CASES)


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_secrets_are_in_files_that_only_their_reader_reads(engine):
    config = cloud_config(UID, dict(PROXY, engine=engine, **LOGIN), SETTINGS)
    for file in config["write_files"]:
        text = base64.b64decode(file["content"]).decode()
        if "s3cret" in text or "$6$" in text:
            assert file["permissions"] == "0600"
            # tinyproxy reads its file again as itself when logs are rotated, and squid's helper runs as proxy.
            assert file["owner"] in ("tinyproxy:tinyproxy", "proxy:proxy")
    assert "s3cret" not in str(config)


def test_only_tinyproxy_stores_a_password_as_it_is():
    def files(engine):
        config = cloud_config(UID, dict(PROXY, engine=engine, **LOGIN), SETTINGS)
        return "".join(base64.b64decode(file["content"]).decode() for file in config["write_files"])
    assert {engine for engine in ENGINES if "s3cret" in files(engine)} == {"tinyproxy"}


def test_the_seed_is_the_same_every_time_and_another_for_another_password():
    def hashed(engine, **more):
        return seed.inputs_hash(user_data(engine, **dict(LOGIN, **more)), meta_data.default(UID, "p1"))
    for engine in ENGINES:
        assert hashed(engine) == hashed(engine)
        assert len({hashed(engine), hashed(engine, password="other"), hashed(engine, user="oq")}) == 3


def test_two_instances_have_two_hashes_of_one_password():
    salts = {derive_salt(uid, user) for uid in (UID, names.derive_uid("a", "b")) for user in ("op", "oq")}
    assert len(salts) == 4
    assert all(len(salt) == 16 for salt in salts)


@pytest.mark.parametrize(("salt", "password", "expected"), [
    # The first is from the scheme's own description, the others were made by crypt(3) of glibc.
    ("saltstring", "Hello world!", "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1"),
    ("a", "", None), ("0123456789abcdef", "é" * 40, None), ("ab", "x" * 64, None), ("ab", "x" * 65, None),
])
def test_hash_is_the_schemes_own(salt, password, expected):
    assert sha512_crypt(password, salt) == (expected or KNOWN[salt, len(password)])


def test_other_engines_are_stopped_and_this_one_starts_again():
    script = cloud_config(UID, dict(PROXY, engine="squid"), SETTINGS)["runcmd"][0][2]
    assert "for other in tinyproxy danted;" in script
    assert script.endswith("systemctl enable squid.service && systemctl restart squid.service; fi")


def test_more_configuration_is_merged_in():
    assert merge({"a": [1], "b": {"c": 1, "d": 2}, "e": 1}, {"a": [2], "b": {"c": 3}, "f": 4}) == {
        "a": [1, 2], "b": {"c": 3, "d": 2}, "e": 1, "f": 4}


def test_an_operators_list_of_users_decides_on_the_default_one():
    def users(more):
        return [user if isinstance(user, str) else user["name"] for user in cloud_config(
            UID, dict(PROXY, engine="dante", **LOGIN), SETTINGS, more=more)["users"]]
    assert users({}) == ["default", "op"]
    assert users({"users": [{"name": "ansible"}]}) == ["op", "ansible"]


def test_guests_are_in_the_form_of_the_module_and_each_has_its_own_engine():
    definition = {
        "name": "edge", "image": {"key": "a", "src": "/a"}, "hypervisors": ["hv1", "hv2"], "networks": [STATIC],
        "proxy": dict(allow=["192.0.2.0/24"], **LOGIN), "authorized_keys": ["ssh-ed25519 AAAA a"],
        "instances": [
            {"name": "a", "address": "192.0.2.50", "hypervisor": "hv1"}, {"name": "b", "address": "192.0.2.51", "hypervisor": "hv2"},
            {"name": "c", "address": "192.0.2.52", "hypervisor": "hv1", "proxy": {"engine": "dante"}}]}
    found = guests(definition, "hv1", [{"name": "a", "overlay": "o.qcow2"}], packages=[], more={"timezone": "UTC"}, max_clients=9)
    assert [(one["name"], one.get("overlay")) for one in found] == [("a", "o.qcow2"), ("c", None)]
    first, second = (yaml.safe_load(one["user_data"]) for one in found)
    assert (first["packages"], first["timezone"], first["ssh_authorized_keys"]) == ([], "UTC", ["ssh-ed25519 AAAA a"])
    assert b"MaxClients 9" in base64.b64decode(first["write_files"][0]["content"])
    assert second["users"][1]["name"] == "op"
    network = yaml.safe_load(found[1]["network_config"])["ethernets"]["eth0"]
    assert network["addresses"] == ["192.0.2.52/24"]
    assert network["match"]["macaddress"] == names.mac_address(found[1]["uid"], 0)


def test_dante_listens_to_the_families_of_its_clients():
    def internal(allow):
        lines = ENGINES["dante"].render({"port": 1, "allow": allow}, replace(SETTINGS)).splitlines()
        return [line for line in lines if line.startswith("internal")]
    assert internal([]) == internal(["192.0.2.0/24"]) == ["internal: 0.0.0.0 port = 1"]
    assert internal(["2001:db8::/32"]) == ["internal: :: port = 1"]
    assert internal(["192.0.2.0/24", "2001:db8::/32"]) == ["internal: 0.0.0.0 port = 1", "internal: :: port = 1"]
