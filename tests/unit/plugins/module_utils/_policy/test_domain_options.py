# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of devices and limits: what they become, and what is refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy import domain_extra, domain_options, domain_tuning, names
from ansible_collections.egress.kvm2.plugins.module_utils._policy.domain_spec import effective_cpu_mode
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import InvalidInput
from ansible_collections.egress.kvm2.plugins.module_utils._policy.xml import parse

UID = "bdcf2b7e-b780-5ade-85c5-cb0dd262285e"
WHO = "of instance p1"
MIB = 2 ** 20
NOTHING = {"console_log": True, "on_crash": None, "watchdog": None, "cpu_tuning": None, "io_tuning": None, "xml_extra": None}


def values(**given):
    return domain_options.device_values({**NOTHING, **given}, WHO, UID)


def test_nothing_asked_for_is_nothing_managed():
    assert values() == {
        "console_log": True, "on_crash": None, "watchdog": None, "cpu_shares": None, "cpu_quota": None, "cpu_pin": None, "io_tuning": (),
        "xml_extra": ()}


def test_everything_asked_for():
    found = values(
        console_log=False, on_crash="restart", watchdog="pause", cpu_tuning={"shares": 2, "quota": 150, "pin": "3, 0-1,^1,2"},
        io_tuning={"total_iops": 7, "write_bytes": "2MiB", "read_bytes": "1MB", "total_bytes": None}, xml_extra=["<sound model='ich9'/>"])
    assert found == {
        "console_log": False, "on_crash": "restart", "watchdog": "pause", "cpu_shares": 2, "cpu_quota": 150, "cpu_pin": "0,2-3",
        "io_tuning": (("read_bytes", 1000000), ("write_bytes", 2 * MIB), ("total_iops", 7)), "xml_extra": ("<sound model='ich9'/>",)}
    assert values(watchdog="none")["watchdog"] is None


@pytest.mark.parametrize(("given_options", "obj", "part"), [
    ({"cpu_tuning": {"shares": 1}}, "cpu_tuning.shares of instance p1 1", "out of range"),
    ({"cpu_tuning": {"shares": 10001}}, "cpu_tuning.shares of instance p1 10001", "out of range"),
    ({"cpu_tuning": {"quota": 0}}, "cpu_tuning.quota of instance p1 0", "out of range"),
    ({"cpu_tuning": {"pin": ""}}, "cpu_tuning.pin of instance p1 ''", "no list of processors"),
    ({"cpu_tuning": {"pin": "0-"}}, "cpu_tuning.pin of instance p1 '0-'", "no list of processors"),
    ({"cpu_tuning": {"pin": "1,^1"}}, "cpu_tuning.pin of instance p1 '1,^1'", "no list of processors"),
    ({"io_tuning": {"read_bytes": "12"}}, "io_tuning.read_bytes of instance p1 '12'", "unit"),
    ({"io_tuning": {"read_iops": 0}}, "io_tuning.read_iops of instance p1 0", "nothing could be read or written"),
    ({"io_tuning": {"total_bytes": "1MB", "write_bytes": "1MB"}}, "io_tuning of instance p1", "total_bytes excludes read_bytes and write_bytes"),
    ({"io_tuning": {"total_iops": 1, "read_iops": 1}}, "io_tuning of instance p1", "total_iops excludes read_iops and write_iops"),
    ({"xml_extra": ["<sound model='ich9'/>", "<!-- x --><sound  model=\"ich9\"></sound>"]}, "xml_extra[1] of instance p1", "there twice")])
def test_what_cannot_be_is_refused_by_name(given_options, obj, part):
    with pytest.raises(InvalidInput, match=part) as caught:
        values(**given_options)
    assert caught.value.object == obj and caught.value.hint


def test_interfaces():
    assert domain_options.network_values({"network": "default"}, "networks[0]") == {
        "vlan": None, "mtu": None, "nwfilter": None, "nwfilter_parameters": ()}
    assert domain_options.network_values({
        "vlan": 4094, "mtu": 68, "nwfilter": "clean-traffic", "nwfilter_parameters": {"MAC": "52:54:00:00:00:01", "IP": ["192.0.2.2", "192.0.2.1"], "N": 5}},
        "networks[0]") == {
            "vlan": 4094, "mtu": 68, "nwfilter": "clean-traffic",
            "nwfilter_parameters": (("IP", "192.0.2.1"), ("IP", "192.0.2.2"), ("MAC", "52:54:00:00:00:01"), ("N", "5"))}


@pytest.mark.parametrize(("entry", "part"), [
    ({"vlan": 0}, "vlan 0"), ({"vlan": 4095}, "vlan 4095"), ({"mtu": 67}, "mtu 67"), ({"mtu": 65536}, "mtu 65536"),
    ({"nwfilter_parameters": {"IP": "192.0.2.1"}}, "there is no nwfilter"),
    ({"nwfilter": "a", "nwfilter_parameters": {"I P": "192.0.2.1"}}, "no name of a parameter"),
    ({"nwfilter": "a", "nwfilter_parameters": {"IP": "192.0.2.1 or so"}}, "no value that a filter takes"),
    ({"nwfilter": "a", "nwfilter_parameters": {"IP": {"a": 1}}}, "no value that a filter takes"),
    ({"nwfilter": "a", "nwfilter_parameters": {"IP": True}}, "no value that a filter takes")])
def test_interfaces_that_cannot_be(entry, part):
    with pytest.raises(InvalidInput, match=part):
        domain_options.network_values(entry, "networks[0] of instance p1")


@given(st.sets(st.integers(0, 9999), min_size=1, max_size=20))
def test_lists_of_processors_are_written_in_one_way(numbers):
    text = ",".join(str(number) for number in numbers)
    canonical = domain_tuning.canonical_cpus(text)
    assert domain_tuning.parse_cpus(canonical) == numbers
    assert domain_tuning.canonical_cpus(canonical) == canonical


@given(st.text("0123456789,-^ a", max_size=12))
def test_any_text_is_a_list_of_processors_or_none(text):
    found = domain_tuning.parse_cpus(text)
    assert found is None or min(found) >= 0


@pytest.mark.parametrize(("asked", "virt_type", "mode"), [
    (None, "kvm", "host-model"), (None, "qemu", None), ("host-passthrough", "kvm", "host-passthrough"), ("host-passthrough", "qemu", "maximum"),
    ("host-model", "qemu", "host-model"), ("maximum", "kvm", "maximum")])
def test_the_cpu_mode_that_a_guest_can_have(asked, virt_type, mode):
    assert effective_cpu_mode(asked, virt_type) == mode


# -- devices as XML

GOOD = (
    "<sound model='ich9'/>", " <sound model='ich9'>\n</sound> ", "<hostdev mode='subsystem' type='pci'><source><address bus='5'/></source></hostdev>",
    "<disk type='file'><source file='/x'/><target dev='vdc'/></disk>", "<interface type='network'><mac address='02:00:00:00:00:01'/></interface>",
    "<channel type='unix'><target type='virtio' name='org.example.0'/></channel>", "<tpm model='tpm-crb'><backend type='emulator'/></tpm>",
    "<!-- first --><video><model type='virtio'/></video>")


@pytest.mark.parametrize("text", GOOD)
def test_devices_that_may_be_added(text):
    domain_extra.check(text, "xml_extra[0]", UID)


@pytest.mark.parametrize(("text", "part"), [
    ("", "does not parse"), ("sound", "does not parse"), ("<sound>", "does not parse"), ("<sound/><sound/>", "does not parse"),
    ("<!DOCTYPE sound [<!ENTITY x SYSTEM '/etc/passwd'>]><sound model='&x;'/>", "does not parse|document type"),
    ("<!DOCTYPE sound><sound/>", "document type"),
    ("<emulator>/bin/sh</emulator>", "<emulator> is no device"), ("<devices><sound/></devices>", "<devices> is no device"),
    ("<domain><devices/></domain>", "<domain> is no device"), ("<graphics type='vnc'/>", "<graphics> is no device"),
    ("<commandline xmlns='http://libvirt.org/schemas/domain/qemu/1.0'/>", "<commandline> is no device"),
    ("<rng model='virtio'/>", "<rng> is no device"), ("<watchdog model='i6300esb'/>", "<watchdog> is no device"),
    ("<disk><name>x</name><target dev='vdc'/></disk>", "holds <name>"), ("<disk><uuid>x</uuid><target dev='vdc'/></disk>", "holds <uuid>"),
    ("<disk><metadata/><target dev='vdc'/></disk>", "holds <metadata>"), ("<sound><alias name='ua-x'/></sound>", "holds <alias>"),
    ("<sound xmlns:k='urn:egress:kvm2:instance:1'><k:instance/></sound>", "holds <instance>"),
    ("<disk type='file'><source file='/x'/></disk>", "target is not given"), ("<disk><target dev='vda'/></disk>", "target is vda"),
    ("<disk><target dev='vdb'/></disk>", "target is vdb"), ("<disk><target dev='vdc'/><serial>kvm2-x</serial></disk>", "serial is one of"),
    ("<disk><target dev='vdc'/><serial>\n kvm2-x</serial></disk>", "serial is one of"),
    ("<disk><target dev='vdc'/><serial><!-- c -->kvm2-x</serial></disk>", "serial is one of"),
    ("<disk><target dev='vdc'/><boot order='1'/></disk>", "holds <boot>"),
    ("<interface type='network'><source network='x'/></interface>", "no MAC address"),
    (f"<interface type='network'><mac address='{names.mac_address(UID, 3).upper()}'/></interface>", "of the instance's own"),
    ("<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>", "already")])
def test_what_is_no_device_to_add_is_refused(text, part):
    with pytest.raises(InvalidInput, match=part) as caught:
        domain_extra.check(text, "xml_extra[0]", UID)
    assert caught.value.object == "xml_extra[0]" and caught.value.hint


def test_the_alias_follows_from_what_a_device_is_and_not_from_how_it_is_written():
    same = ("<sound model='ich9' a='1'/>", "  <sound a=\"1\"\n model='ich9'></sound>", "<sound a='1' model='ich9'><!-- x --></sound>\n")
    assert len({domain_extra.alias(text) for text in same}) == 1
    assert domain_extra.alias(GOOD[0]) != domain_extra.alias("<sound model='ac97'/>")
    assert domain_extra.alias(GOOD[0]).startswith("ua-kvm2-")


def test_an_extra_device_that_changes_is_taken_out_and_put_in_anew():
    tree = parse("<domain><devices><sound model='es1370'/></devices></domain>")
    domain_extra.apply(tree, tree.find("devices"), ("<sound model='ich9'/>", "<input type='tablet' bus='usb'/>"))
    before = domain_extra.read(tree)
    domain_extra.apply(tree, tree.find("devices"), ("<sound model='ac97'/>", "<input type='tablet' bus='usb'/>"))
    assert [device.get("model") for device in tree.iterfind("devices/sound")] == ["es1370", "ac97"]
    assert domain_extra.read(tree) != before and domain_extra.read(tree) == domain_extra.shown(
        ("<input type='tablet' bus='usb'/>", "<sound model='ac97'/>"))
