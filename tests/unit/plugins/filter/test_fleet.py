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
KEYS = st.sampled_from([*GOOD, "count", "prefix", "url", "key", "memory"])


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
     ": unknown key fleet; allowed are authorized_keys, dns, hypervisors, image, instances, name, networks, pool, proxy, sizing"),
])
def test_each_fault_is_one_line_that_names_its_place(path, value, problem):
    separator = "" if problem.startswith(":") else "."
    assert f"kvm2_fleet{separator}{problem}" in find_problems(changed(path, value))


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
