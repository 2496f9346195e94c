# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters fleet and fleet_problems: each fault of a definition is one line that names its place and what is allowed."""

from __future__ import annotations

import json

import jsonschema
import pytest
from ansible.errors import AnsibleFilterError
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.filter import fleet as fleet_module
from ansible_collections.egress.kvm2.plugins.filter.fleet import find_problems, fleet_filter
from ansible_collections.egress.kvm2.plugins.filter.fleet_problems import FilterModule
from ansible_collections.egress.kvm2.plugins.module_utils._policy.fleet import normalise

GOOD = {
    "name": "edge", "image": {"key": "debian-12", "url": "https://images.example/a.qcow2", "checksum": "sha256:" + "a" * 64},
    "pool": "default", "sizing": {"memory": "512MiB", "vcpus": 1, "disk": "4GiB"}, "networks": [{"network": "default"}],
    "hypervisors": ["hv1", "hv2.example.com"],
    "proxy": {"engine": "tinyproxy", "port": 3128, "allow": ["192.168.122.0/24"]}, "instances": {"count": 2, "prefix": "proxy"}}
LABEL = "a label: lower-case letters, digits and dashes, with a letter or digit at both ends, at most 32 characters"
SIZE = "a size with a unit, such as 512MiB, 4GiB or 10GB"
ALLOW = "the clients that may use the proxy, as addresses or networks such as 192.0.2.0/24; an empty list allows nobody"
WHOLE_NETWORK = "Write 10.0.0.0/8 for the whole network, or the address alone."
CHECKSUM = "sha256: or sha512: and the hexadecimal digest, or the URL of a file that lists it"
NAME = "a name of letters, digits, dots, dashes and underscores"
KEYS = st.sampled_from([
    *GOOD, "count", "prefix", "url", "key", "memory", "engine", "allow", "user", "password", "subnet", "first", "address", "network", "dns", "servers"])
ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMKp1Yr3dxmnpvOWaAsBKYc1v2m9uXHfd1gUHWmlR7tT"
STATIC = {"network": "default", "subnet": "192.0.2.0/24", "gateway": "192.0.2.1"}
COUNTED = dict(STATIC, first="192.0.2.50")
TINYPROXY = "tinyproxy reads letters, digits, dots, dashes and underscores only"
VISIBLE = (
    "it holds a line break, another control character, or one beyond ASCII, which clients write in different ways. Use visible ASCII characters and "
    "blanks")


def changed(path, value):
    """GOOD with the value at a dotted path replaced; a value of ... takes the key away."""
    definition = json.loads(json.dumps(GOOD))
    *parents, last = path.split(".")
    target = definition
    for key in parents:
        target = target[key]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return definition


def static(networks, *addresses):
    """GOOD with these networks and a listed instance for each address (or list of them)."""
    definition = changed("networks", networks)
    definition["instances"] = [{"name": f"i{number}", "address": address} for number, address in enumerate(addresses)]
    return definition


@pytest.mark.parametrize("definition", [
    GOOD,
    changed("image", {"key": "a", "src": "/srv/a.raw", "format": "raw"}),
    changed("image.checksum", "sha512:https://images.example/SHA512SUMS"),
    changed("hypervisors", {"hv1": None, "hv2": {"weight": 2}}),
    changed("networks", [{"bridge": "br0"}, {"network": "default", "model": "e1000"}]),
    changed("instances", [{"name": "a", "uid": "0b0d2f1c-2a4d-5f2e-9c56-2f0c6f2f7f11", "hypervisor": "hv1"}]),
    changed("instances", [{"name": "a", "sizing": {"memory": "1.5 GiB"}}]),
    changed("instances", []),
    changed("proxy", {"allow": ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"]}),
    changed("proxy", ...),
    changed("proxy", {"engine": "tinyproxy", "user": "Op.e-r_a", "password": "S3.c-r_et"}),
    changed("proxy", {"engine": "squid", "user": "op@x#", "password": "a b:c%41\"#"}),
    changed("proxy", {"engine": "dante", "user": "op_1-x", "password": "p:w d" * 51}),
    changed("instances", [{"name": "a", "proxy": {"engine": "squid"}}, {"name": "b", "proxy": {"engine": "dante", "port": 1080}}]),
    changed("authorized_keys", [ED25519, f"{ED25519} op@example.com with words"]),
    changed("dns", {"servers": ["192.0.2.53", "2001:db8::53"], "search": ["example.com", "local"]}),
    changed("dns", {}),
    changed("networks", [COUNTED, {"bridge": "br0"}]),
    changed("networks", [dict(COUNTED, first="192.0.2.253")]),
    changed("networks", [{"bridge": "br0", "subnet": "2001:db8::/64", "gateway": "fe80::1", "first": "2001:db8::ffff:ffff:ffff:fffe"}]),
    static([STATIC], "192.0.2.254", ["192.0.2.2"]),
    static([STATIC, {"bridge": "br0"}, {"bridge": "br1", "subnet": "2001:db8::/64"}], ["192.0.2.50", "2001:db8::50"]),
])
def test_valid_definitions_have_no_problem(definition):
    assert find_problems(definition) == []


@pytest.mark.parametrize(("path", "value", "problem"), [
    ("name", "Edge", f"name: 'Edge' is not {LABEL}"),
    ("name", "edge\n",
     "name: 'edge\\n': it is not a label. Use lower-case letters, digits and dashes, with a letter or digit at both ends."),
    ("name", "e" * 33, f"name: '{'e' * 33}' is not {LABEL}"),
    ("name", 7, f"name: 7 is a whole number; it has to be text: {LABEL}"),
    ("name", ..., ": name is missing"),
    ("image", {"key": "a"}, "image: exactly one of url and src is needed, none is there"),
    ("image.src", "/a", "image: exactly one of url and src is needed, both are there"),
    ("image.url", "images.example/a", "image.url: 'images.example/a' is not an http or https URL"),
    ("image.checksum", "md5:1", f"image.checksum: 'md5:1' is not {CHECKSUM}"),
    ("image.format", "vmdk", "image.format: 'vmdk' is not allowed; allowed are qcow2, raw"),
    ("image.sha256", "a", "image: unknown key sha256; allowed are checksum, format, key, src, url"),
    ("sizing.memory", 512, f"sizing.memory: 512 is a whole number; it has to be text: {SIZE}"),
    ("sizing.disk", "4", f"sizing.disk: '4' is not {SIZE}"),
    ("sizing.memory", "1MiB", "sizing.memory: '1MiB': no guest boots in so little. Give at least 16MiB."),
    ("sizing.disk", "0GiB", "sizing.disk: '0GiB': it is less than one byte. Give a size above zero."),
    ("sizing.vcpus", 0, "sizing.vcpus: 0 is less than the smallest that is allowed, 1"),
    ("sizing.vcpus", "2", "sizing.vcpus: '2' is text; it has to be a whole number: a number of virtual processors"),
    ("sizing.vcpus", True, "sizing.vcpus: True is true or false; it has to be a whole number: a number of virtual processors"),
    ("sizing.vcpus", None, "sizing.vcpus: it is empty; it has to be a whole number: a number of virtual processors"),
    ("sizing.ram", "1GiB", "sizing: unknown key ram; allowed are disk, memory, vcpus"),
    ("networks", [], "networks: it is empty; at least one entry is needed"),
    ("networks", [{}], "networks[0]: exactly one of network and bridge is needed, none is there"),
    ("hypervisors", [], "hypervisors: it is empty; at least one entry is needed"),
    ("hypervisors", {}, "hypervisors: it is empty; at least one entry is needed"),
    ("hypervisors", ["hv 1"], f"hypervisors[0]: 'hv 1' is not {NAME}"),
    ("hypervisors", {"hv 1": {}}, f"hypervisors: 'hv 1' is not {NAME}"),
    ("hypervisors", {"hv1": {"weight": 0}}, "hypervisors.hv1.weight: 0 is less than the smallest that is allowed, 1"),
    ("hypervisors", ["hv1", "hv1"], "hypervisors: the name hv1 is there more than once; each needs its own"),
    ("proxy.engine", "socks9", "proxy.engine: 'socks9' is not allowed; allowed are tinyproxy, squid, dante"),
    ("proxy.port", 0, "proxy.port: 0 is less than the smallest that is allowed, 1"),
    ("proxy.port", 65536, "proxy.port: 65536 is more than the largest that is allowed, 65535"),
    ("proxy.passwd", "x", "proxy: unknown key passwd; allowed are allow, engine, password, port, user"),
    ("proxy.allow", "10.0.0.0/8",
     f"proxy.allow: '10.0.0.0/8' is text; it has to be a list: {ALLOW}"),
    ("proxy.allow", ["10.0.0.1/8"],
     f"proxy.allow[0]: '10.0.0.1/8': it has bits set that the length of its prefix leaves out. {WHOLE_NETWORK}"),
    ("proxy.allow", ["192.0.2.0/24", "everybody"],
     "proxy.allow[1]: 'everybody': it is neither an address nor a network. Write for example 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32."),
    ("instances", {"prefix": "a"}, "instances: count is missing"),
    ("instances", {"count": -1}, "instances.count: -1 is less than the smallest that is allowed, 0"),
    ("instances", {"count": 1, "prefix": "p" * 31},
     f"instances: '{'p' * 31}-01': it has 34 characters, at most 32 are allowed. Choose a shorter name."),
    ("instances", [{"name": "a"}, {"name": "a"}], "instances: the name a is there more than once; each needs its own"),
    ("instances", [{"name": name, "uid": "0b0d2f1c-2a4d-5f2e-9c56-2f0c6f2f7f11"} for name in "ab"],
     "instances: the uid 0b0d2f1c-2a4d-5f2e-9c56-2f0c6f2f7f11 is there more than once; each needs its own"),
    ("instances", [{"name": "a", "hypervisor": "hv9"}],
     "instances[0].hypervisor: 'hv9' is not among the fleet's hypervisors, hv1, hv2.example.com"),
    ("instances", [{"name": "a", "sizing": {"disk": "9"}}], f"instances[0].sizing.disk: '9' is not {SIZE}"),
    ("instances", [{"nam": "a"}], "instances[0]: name is missing"),
    ("fleet", "edge",
     ": unknown key fleet; allowed are authorized_keys, dns, domain, hypervisors, image, instances, name, networks, pool, proxy, sizing"),
])
def test_each_fault_is_one_line_that_names_its_place(path, value, problem):
    separator = "" if problem.startswith(":") else "."
    assert f"kvm2_fleet{separator}{problem}" in find_problems(changed(path, value))


def login(engine, user, password):
    return changed("proxy", {"engine": engine, "user": user, "password": password, "allow": ["192.0.2.0/24"]})


@pytest.mark.parametrize(("definition", "problem"), [
    (changed("proxy.user", "op"), "proxy: user is there without password; give both or none"),
    (changed("proxy.password", "hunter2"), "proxy: password is there without user; give both or none"),
    (changed("instances", [{"name": "a", "proxy": {"user": "op"}}]), "instances[0].proxy: user is there without password; give both or none"),
    (login("tinyproxy", "a:b", "x"), f"proxy.user: {TINYPROXY}"),
    (login("tinyproxy", "op", "hunter 2"), f"proxy.password: {TINYPROXY}"),
    (login("tinyproxy", "op", "é"), f"proxy.password: {TINYPROXY}"),
    (login("tinyproxy", "u" * 128, "p" * 128), "proxy.password: tinyproxy takes a name and a password of together less than 255 characters"),
    (login("squid", "a:b", "x"), "proxy.user: a colon ends the name in squid's password file and in what clients send"),
    (login("squid", "#a", "x"), "proxy.user: squid's password file takes a line that begins with # for a comment"),
    (login("squid", "a b", "x"), "proxy.user: squid's password file holds names of visible ASCII characters only"),
    (login("squid", "op", "hunter2\nroot:x"), f"proxy.password: {VISIBLE}"),
    (login("squid", "op", "hünter"), f"proxy.password: {VISIBLE}"),
    (login("dante", "root", "x"),
     "proxy.user: for dante it is the name of an account in the guest, and one of that name is there already. Choose another"),
    (login("dante", "Op", "x"),
     ("proxy.user: for dante it is the name of an account in the guest, which is made of lower-case letters, digits, dashes and underscores, begins "
      "with a letter or underscore and has at most 32 characters")),
    (login("dante", "op", "\x7f"), f"proxy.password: {VISIBLE}"),
    (login("dante", "op", "p" * 256), "proxy.password: it has more than the 255 characters that are allowed"),
    (login("squid", "op", ""), "proxy.password: it is empty"),
    (login("squid", "", "x"), "proxy.user: it is empty"),
    (login("squid", "op", 12345), "proxy.password: the value is a whole number; it has to be text: the password of that user"),
    # A user of the fleet has to suit every engine that has it.
    (dict(login("squid", "Op", "x"), instances=[{"name": "a"}, {"name": "b", "proxy": {"engine": "dante"}}]),
     ("proxy.user: for dante it is the name of an account in the guest, which is made of lower-case letters, digits, dashes and underscores, begins "
      "with a letter or underscore and has at most 32 characters")),
    (changed("instances", [{"name": "a", "proxy": {"user": "a b", "password": "x"}}]), f"instances[0].proxy.user: {TINYPROXY}"),
    (changed("instances", [{"name": "a", "proxy": {"engine": "socks9"}}]),
     "instances[0].proxy.engine: 'socks9' is not allowed; allowed are tinyproxy, squid, dante"),
    (changed("instances", [{"name": "a", "proxy": {"port": 0}}]), "instances[0].proxy.port: 0 is less than the smallest that is allowed, 1"),
    (changed("instances", [{"name": "a", "proxy": {"allow": ["x"]}}]),
     "instances[0].proxy.allow[0]: 'x': it is neither an address nor a network. Write for example 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32."),
    (changed("authorized_keys", ["-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA"]),
     "authorized_keys[0]: it is a private key, which must not be here. Give the line of the public one, from the file whose name ends in .pub"),
    (changed("authorized_keys", [ED25519, ED25519 + "\n" + ED25519]), "authorized_keys[1]: it has several lines. Give each key as an entry of its own"),
    (changed("authorized_keys", [ED25519[:-20]]),
     "authorized_keys[0]: what follows ssh-ed25519 is not a key of that type, perhaps cut off or broken by a copy"),
    (changed("authorized_keys", [ED25519.replace("ssh-ed25519", "ssh-rsa")]),
     "authorized_keys[0]: what follows ssh-rsa is not a key of that type, perhaps cut off or broken by a copy"),
    (changed("authorized_keys", ["ssh-ed25519"]),
     "authorized_keys[0]: what follows ssh-ed25519 is not a key of that type, perhaps cut off or broken by a copy"),
    (changed("dns", {"servers": ["ns1"]}), "dns.servers[0]: 'ns1': it is not an address. Write one such as 192.0.2.53"),
    (changed("dns", {"search": ["a b"]}), "dns.search[0]: 'a b' is not a domain such as example.com"),
    (changed("dns", {"server": []}), "dns: unknown key server; allowed are search, servers"),
    (changed("networks", [dict(COUNTED, subnet="192.0.2.7/24")]),
     ("networks[0].subnet: '192.0.2.7/24': it has bits set that the length of its prefix leaves out. Write 192.0.2.0/24 for the whole network, or the "
      "address alone.")),
    (changed("networks", [dict(COUNTED, subnet="192.0.2.0/31")]),
     "networks[0].subnet: '192.0.2.0/31': it has no room for instances. Write for example 192.168.122.0/24 or 2001:db8::/64."),
    (changed("networks", [{"network": "default", "first": "192.0.2.1"}]),
     "networks[0].first: '192.0.2.1': it needs the subnet that it is in. Add subnet."),
    (changed("networks", [STATIC]),
     "networks[0]: '192.0.2.0/24': the instances come from a count and there is no first address for them. Add first."),
    (changed("networks", [dict(COUNTED, gateway="198.51.100.1")]), "networks[0].gateway: '198.51.100.1': it is outside of 192.0.2.0/24"),
    (changed("networks", [dict(COUNTED, gateway="gw")]),
     "networks[0].gateway: 'gw': it is not an address. Write one such as 192.168.122.50"),
    (changed("networks", [dict(STATIC, subnet="2001:db8::/64", gateway="fe80::1%eth0", first="2001:db8::5")]),
     "networks[0].gateway: 'fe80::1%eth0': it is not an address. Write one such as 192.168.122.50"),
    (changed("networks", [dict(COUNTED, first="192.0.2.1")]), "networks[0].first: '192.0.2.1': it is the gateway's"),
    (changed("networks", [dict(COUNTED, first="192.0.2.0")]),
     "networks[0].first: '192.0.2.0': it is not an address for a host of 192.0.2.0/24"),
    (changed("networks", [dict(COUNTED, first="192.0.2.254")]),
     "networks[0].first: '192.0.2.254': instance number 2 of 2 would be outside of 192.0.2.0/24"),
    (changed("networks", [dict(COUNTED, gateway="192.0.2.51")]),
     "networks[0].first: '192.0.2.50': instance number 2 would have the gateway's address, 192.0.2.51"),
    (static([COUNTED], "192.0.2.50"),
     "networks[0].first: '192.0.2.50': it counts for instances that come from a count only. Give each instance its address."),
    (static([STATIC], "198.51.100.7"), "instances[0].address: '198.51.100.7': it is outside of 192.0.2.0/24"),
    (static([STATIC], "2001:db8::7"), "instances[0].address: '2001:db8::7': it is outside of 192.0.2.0/24"),
    (static([STATIC], "192.0.2.255"), "instances[0].address: '192.0.2.255': it is not an address for a host of 192.0.2.0/24"),
    (static([STATIC], "192.0.2.1"), "instances[0].address: '192.0.2.1': it is the gateway's"),
    (static([STATIC], "192.0.2.7", "192.0.2.7"), "instances[1].address: '192.0.2.7': instance i0 has this address too; each needs its own"),
    (static([STATIC], "192.0.2.300"), "instances[0].address: '192.0.2.300': it is not an address. Write one such as 192.168.122.50"),
    (static([STATIC], []),
     "instances[0].address: []: the instance needs an address in each network that has a subnet, in their order: 192.0.2.0/24"),
    (dict(changed("networks", [STATIC, {"bridge": "br1", "subnet": "2001:db8::/64"}]), instances=[{"name": "a"}]),
     "instances[0].address: the instance needs an address in each network that has a subnet, in their order: 192.0.2.0/24, 2001:db8::/64"),
    (static([{"network": "default"}], "192.0.2.7"), "instances[0].address: '192.0.2.7': no network of the fleet has a subnet. Add subnet to one"),
    (static([dict(STATIC, subnet="2001:db8::/64", gateway="2001:db8::1")], "2001:db8::"),
     "instances[0].address: '2001:db8::': it is not an address for a host of 2001:db8::/64"),
])
def test_each_fault_of_access_and_addresses_is_one_line_that_names_its_place(definition, problem):
    assert find_problems(definition) == [f"kvm2_fleet.{problem}"]


@pytest.mark.parametrize("place", [
    {"proxy": {"user": "op", "password": "hunter2\n"}}, {"proxy": {"password": "hunter2"}}, {"proxy": {"user": "op:hunter2", "password": "x"}},
    {"proxy": "op:hunter2"}, {"proxy": [{"password": "hunter2"}]}, {"proxy": {"password": ["hunter2"]}}, {"proxy": {"password": {"a": "hunter2"}}},
    {"proxy": {"user": "op", "password": "hunter2" * 40}}, {"proxy": {"engine": {"password": "hunter2"}}},
    {"instances": [{"name": "a", "proxy": {"user": "op", "password": "hunter2 "}}]}, {"instances": [["a", {"proxy": {"password": "hunter2"}}]]},
    {"instances": [{"name": {"proxy": {"password": "hunter2"}}}]}, {"name": {"password": "hunter2"}},
    {"authorized_keys": ["-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2"]}, {"authorized_keys": "hunter2"}, {"authorized_keys": ["hunter2"]},
])
def test_no_problem_shows_a_secret(place):
    problems = find_problems(dict(GOOD, **place))
    assert problems
    assert "hunter2" not in str(problems)
    for whole in ([dict(GOOD, **place)], json.dumps(dict(GOOD, **place))):
        assert "hunter2" not in str(find_problems(whole))


def test_all_faults_are_named_at_once():
    definition = changed("name", "Edge")
    definition["proxy"]["port"] = 0
    definition["sizing"]["disk"] = "4"
    assert len(find_problems(definition)) == 3


@pytest.mark.parametrize("definition", [None, [], "edge", 7, {"name": {1, 2}}])
def test_what_is_no_definition_at_all_is_said_to_be_none(definition):
    assert len(find_problems(definition)) >= 1


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-5, 70000) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner), max_leaves=8))
def test_any_value_is_judged_and_what_passes_can_be_written_out(value):
    for key in GOOD:
        definition = dict(GOOD, **{key: value})
        if not find_problems(definition):
            complete = normalise(definition)
            placed = [name for names in complete["placement"].values() for name in names]
            assert sorted(placed) == sorted(one["name"] for one in complete["instances"])


def test_the_filter_fails_with_every_problem():
    with pytest.raises(AnsibleFilterError) as caught:
        fleet_filter(changed("proxy.port", 0))
    assert "kvm2_fleet.proxy.port: 0 is less than" in str(caught.value)


def test_the_filter_returns_the_definition_written_out():
    assert fleet_filter(GOOD) == normalise(GOOD)


def test_an_empty_allow_list_is_warned_of(monkeypatch):
    shown = []
    monkeypatch.setattr(fleet_module.Display, "warning", lambda self, text: shown.append(text))
    fleet_filter(changed("proxy.allow", []))
    assert [text.split(",")[0] for text in shown] == ["kvm2_fleet.proxy.allow is empty"]


def test_without_jsonschema_the_fix_is_named(monkeypatch):
    monkeypatch.setattr(fleet_module, "jsonschema", None)
    with pytest.raises(AnsibleFilterError, match="Install it for the Python that runs Ansible"):
        FilterModule().filters()["fleet_problems"](GOOD)


def test_the_schema_is_a_valid_schema_and_every_object_in_it_is_closed():
    with open(fleet_module.SCHEMA, encoding="utf-8") as handle:
        schema = json.load(handle)
    jsonschema.Draft7Validator.check_schema(schema)

    def objects(node):
        if isinstance(node, dict):
            if "object" in node.get("type", ()) and "properties" in node:
                yield node
            for value in node.values():
                yield from objects(value)

    assert all(node["additionalProperties"] is False for node in objects(schema["definitions"]))
