# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drift: what differs is told, field by field, and what libvirt adds or writes in another way is no difference."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy import domain_interface, domain_read, mark, names
from ansible_collections.egress.kvm2.plugins.module_utils._policy.domain_drift import Drift, machine_family, same_machine
from ansible_collections.egress.kvm2.plugins.module_utils._policy.domain_spec import CRASH_ACTIONS
from ansible_collections.egress.kvm2.plugins.module_utils._policy.domain_tuning import IO_LIMITS, OPTIONAL, WATCHDOG_ACTIONS
from ansible_collections.egress.kvm2.plugins.module_utils._policy.domain_xml import DomainSpec, Interface, drift, render, shown, update
from ansible_collections.egress.kvm2.plugins.module_utils._policy.xml import etree, parse

FOUND = Path(__file__).parent / "golden" / "libvirt"
UID = "bdcf2b7e-b780-5ade-85c5-cb0dd262285e"
MIB = 2 ** 20
MARK = mark.to_element(mark.Mark(fleet="edge", name="p1", uid=UID, created_at=1000000000))
ONE, TWO, MINE = names.mac_address(UID, 0), names.mac_address(UID, 1), "02:00:00:00:00:01"
IMAGES = "/var/lib/libvirt/images"
OVERLAY = f"{IMAGES}/kvm2-edge.p1-{UID}-aaaaaa.qcow2"
SEED = f"{IMAGES}/kvm2-edge.p1-{UID}-aaaaaa.iso"
SPEC = DomainSpec(
    name="edge.p1", uuid=UID, memory=512 * MIB, vcpus=1, overlay_path=OVERLAY, overlay_chain=((f"{IMAGES}/base.qcow2", "qcow2"),),
    seed_path=SEED, interfaces=(Interface("network", "default", ONE),), virt_type="qemu", machine="q35", title="x & y")

texts = st.text("abc &<>\"'", min_size=1, max_size=8)
files = st.sampled_from(("/a", "/b", "/pool/c d", OVERLAY))
macs = st.sampled_from((ONE, TWO, MINE))
chains = st.lists(st.tuples(files, st.sampled_from(("raw", "qcow2"))), min_size=1, max_size=3).map(tuple)
filters = st.one_of(
    st.just((None, ())),
    st.tuples(texts, st.lists(st.tuples(st.sampled_from(("IP", "MAC")), texts), max_size=3, unique=True).map(lambda pairs: tuple(sorted(pairs)))))
nics = st.builds(
    lambda kind, source, mac, model, vlan, mtu, filtered: Interface(kind, source, mac, model, vlan, mtu, *filtered),
    st.sampled_from(("network", "bridge")), texts, macs, st.sampled_from(("virtio", "e1000e")), st.none() | st.integers(1, 4094),
    st.none() | st.integers(68, 65535), filters)
EXTRA = (
    "<sound model='ich9'/>", "<sound model='ac97'/>", "<controller type='usb' model='qemu-xhci'/>", "<vsock model='virtio'><cid auto='yes'/></vsock>",
    "<interface type='network'><mac address='02:00:00:00:00:77'/><source network='other'/></interface>",
    "<disk type='file' device='disk'><source file='/data'/><target dev='vdc' bus='virtio'/></disk>")
# Each field with its values; a title is trimmed by nobody, so it is of plain words.
VALUES = {
    "memory": st.integers(1, 2 ** 20).map(lambda count: count * MIB), "vcpus": st.integers(1, 300), "overlay_path": files, "overlay_chain": chains,
    "seed_path": st.sampled_from(("/s1", "/s2", SEED)),
    "interfaces": st.lists(nics, max_size=3, unique_by=lambda interface: interface.mac).map(tuple),
    "cpu_mode": st.sampled_from((None, "host-passthrough", "host-model", "maximum")),
    "machine": st.sampled_from(("q35", "pc", "virt", "pc-q35-10.0", "pc-i440fx-10.0")), "arch": st.sampled_from(("x86_64", "aarch64", "i686")),
    "firmware": st.sampled_from(("bios", "efi")), "virt_type": st.sampled_from(("kvm", "qemu")), "emulator": st.sampled_from(("/e1", "/e2")),
    "title": st.text("abc", min_size=1, max_size=5), "console_log": st.booleans(), "on_crash": st.sampled_from(CRASH_ACTIONS),
    "watchdog": st.sampled_from((None, *WATCHDOG_ACTIONS)), "cpu_shares": st.none() | st.integers(2, 10000), "cpu_quota": st.none() | st.integers(1, 1000),
    "cpu_pin": st.sampled_from((None, "0", "0-3", "1,3-4")),
    "io_tuning": st.lists(st.sampled_from(IO_LIMITS), max_size=3, unique=True).map(
        lambda limits: tuple((limit, 1000 + IO_LIMITS.index(limit)) for limit in IO_LIMITS if limit in limits)),
    "xml_extra": st.lists(st.sampled_from(EXTRA), max_size=3, unique=True).map(lambda found: tuple(sorted(found)))}
LEFT_ALONE = ("overlay_path", "seed_path", "machine", "emulator", "title")
FIELD_OF = {"overlay_path": "overlay", "seed_path": "seed"}
specs = st.fixed_dictionaries({
    field: (st.none() | values if field in LEFT_ALONE else values) for field, values in VALUES.items()}).map(
        lambda values: DomainSpec(name="edge.p1", uuid=UID, **values))


def differences(text, spec):
    """The drift but that of the device that tells of a crash: it comes with the first action but destroy, on machines that have it."""
    return [one for one in drift(text, spec) if one.field != "panic_device"]


def found_in(file):
    return (FOUND / f"{file}.xml").read_text(encoding="utf-8")


def edited(edit, text=None):
    tree = parse(render(SPEC, MARK) if text is None else text)
    edit(tree)
    return etree.tostring(tree, encoding="unicode")


def test_every_field_of_a_specification_is_in_these_tests():
    assert {field.name for field in fields(DomainSpec)} == {"name", "uuid", "former_macs", "former_options", *VALUES}


@given(specs)
def test_what_was_rendered_does_not_drift(spec):
    assert drift(render(spec, MARK), spec) == ()


@pytest.mark.parametrize("field", sorted(set(VALUES) - {"interfaces"}))
@settings(max_examples=30)
@given(st.data())
def test_a_changed_field_is_exactly_that_drift(field, data):
    have, want = data.draw(st.lists(VALUES[field], min_size=2, max_size=2, unique=True))
    # A version of a machine type is that machine type.
    if field == "machine" and same_machine(have, want):
        return
    # A specification without an overlay says nothing of its chain.
    spec = replace(data.draw(specs), overlay_path=OVERLAY, former_options=OPTIONAL)
    found = differences(render(replace(spec, **{field: have}), MARK), replace(spec, **{field: want}))
    assert [one.field for one in found] == [FIELD_OF.get(field, field)]
    assert found[0].needs == ("replace" if field in ("overlay_path", "overlay_chain", "seed_path") else "redefine")
    assert found[0].restart == (field not in ("title", "console_log"))
    if field not in ("overlay_chain", "memory", "console_log", "io_tuning", "xml_extra"):
        assert (found[0].have, found[0].want) == (have, want)


@given(specs, VALUES["interfaces"])
def test_changed_interfaces_are_exactly_those_drifts(spec, want):
    have = {interface.mac: interface for interface in spec.interfaces}
    wanted = {interface.mac: interface for interface in want}
    # An interface of another MAC than ours that is not wanted may be an operator's.
    differing = {
        f"interface {mac}" for mac in (ONE, TWO, MINE) if have.get(mac) != wanted.get(mac) and (mac in wanted or mac != MINE)}
    found = drift(render(spec, MARK), replace(spec, interfaces=want, former_options=domain_interface.OPTIONAL))
    assert {one.field for one in found} == differing
    assert all(one.needs == "redefine" and one.restart for one in found)


@given(specs)
def test_what_is_read_back_is_what_was_rendered(spec):
    text = render(spec, MARK)
    assert shown(spec).items() <= domain_read.read_fields(text).items()
    # What is managed only while it is asked for is compared by its fields alone.
    plain = replace(spec, xml_extra=(), on_crash=None, watchdog=None, cpu_shares=None, cpu_quota=None, cpu_pin=None, io_tuning=())
    found = shown(domain_read.read_spec(text))
    found.pop("interface 02:00:00:00:00:77", None)
    assert found == shown(plain)
    assert domain_read.overlay_path(text) == spec.overlay_path
    extra = {"02:00:00:00:00:77"} if any("<interface" in device for device in spec.xml_extra) else set()
    assert set(domain_read.macs(text)) == {interface.mac for interface in spec.interfaces} | extra


def as_libvirt_has_it(text):
    """The XML with what libvirt adds to it, and some of what it writes in another way."""
    tree = parse(text)
    tree.find("vcpu").set("placement", "static")
    for tag in ("memory", "currentMemory"):
        tree.find(tag).attrib.pop("unit")
    tree.append(parse("<resource><partition>/machine</partition></resource>"))
    tree.append(parse("<clock offset='utc'/>"))
    devices = tree.find("devices")
    for number, device in enumerate(list(devices)):
        if device.tag in ("emulator", "console"):
            continue
        if device.find("alias") is None:
            etree.SubElement(device, "alias", name=f"dev{number}")
        etree.SubElement(device, "address", type="pci", slot=f"0x{number:02x}")
        device[:] = sorted(device, key=lambda child: child.tag)
    for filterref in devices.iterfind("interface/filterref"):
        filterref[:] = sorted(filterref, key=lambda one: (one.get("value"), one.get("name")))
    watchdog = devices.find("watchdog")
    built_in = parse("<watchdog model='itco'/>")
    built_in.set("action", "reset" if watchdog is None else watchdog.get("action"))
    devices.append(built_in)
    for child in ("<input type='mouse' bus='ps2'/>", "<controller type='pci' index='1' model='pcie-root-port'/>", "<audio id='1' type='none'/>"):
        devices.append(parse(child))
    # Devices come grouped by their kind.
    order = ("emulator", "disk", "controller", "interface", "serial", "console", "channel")
    devices[:] = sorted(devices, key=lambda child: order.index(child.tag) if child.tag in order else len(order))
    return etree.tostring(tree, encoding="unicode")


@given(specs)
def test_what_libvirt_adds_and_writes_in_another_way_does_not_drift(spec):
    text = as_libvirt_has_it(render(spec, MARK))
    assert drift(text, replace(spec, former_options=OPTIONAL)) == ()
    assert drift(update(text, spec, MARK), spec) == ()


@given(specs, specs)
def test_between_two_specifications_an_update_takes_away_what_was_asked_for_once(before, spec):
    wanted = replace(spec, former_options=OPTIONAL, overlay_path=OVERLAY)
    text = update(as_libvirt_has_it(render(replace(before, overlay_path=OVERLAY), MARK)), wanted, MARK)
    assert drift(text, wanted) == ()


@given(specs)
def test_what_was_never_asked_for_stays_as_it_is(spec):
    cleared = {"on_crash": None, "watchdog": None, "cpu_shares": None, "cpu_quota": None, "cpu_pin": None, "io_tuning": ()}
    cleared["interfaces"] = tuple(replace(one, vlan=None, mtu=None, nwfilter=None, nwfilter_parameters=()) for one in spec.interfaces)
    text = render(spec, MARK)
    assert drift(text, replace(spec, **cleared)) == ()
    assert update(text, replace(spec, **cleared), MARK) == text


@pytest.mark.parametrize(("file", "changes"), [
    ("11.3-q35-defined", {}), ("11.3-q35-defined", {"machine": None, "title": None}), ("11.3-q35-defined", {"machine": "pc-q35-10.0"}),
    ("11.3-q35-defined", {"emulator": "/usr/bin/qemu-system-x86_64"}), ("11.3-pc-defined", {"machine": "pc"}),
    ("11.3-q35-defined", {"memory": 512 * MIB - 5}), ("11.3-q35-running", {}), ("11.3-q35-maximum-running", {"cpu_mode": "maximum"}),
    ("11.3-q35-host-model-running", {"cpu_mode": "host-model"})])
def test_what_libvirt_made_of_a_definition_does_not_drift(file, changes):
    assert drift(found_in(file), replace(SPEC, **changes)) == ()


@pytest.mark.parametrize(("file", "changes", "field"), [
    ("11.3-q35-defined", {"machine": "pc"}, "machine"), ("11.3-q35-defined", {"machine": "pc-q35-9.2"}, "machine"),
    ("11.3-pc-defined", {}, "machine"), ("11.3-q35-defined", {"cpu_mode": "host-model"}, "cpu_mode"),
    ("11.3-q35-maximum-running", {}, "cpu_mode"), ("11.3-q35-defined", {"memory": 512 * MIB + 1}, "memory"),
    ("11.3-q35-running", {"vcpus": 2}, "vcpus"), ("11.3-q35-running", {"virt_type": "kvm"}, "virt_type"),
    ("11.3-q35-running", {"overlay_path": "/other"}, "overlay"), ("11.3-q35-running", {"firmware": "efi"}, "firmware"),
    ("11.3-q35-running", {"interfaces": ()}, f"interface {ONE}"), ("11.3-q35-running", {"overlay_chain": (("/b", "raw"),)}, "overlay_chain")])
def test_in_what_libvirt_made_of_a_definition_a_change_is_seen(file, changes, field):
    assert [one.field for one in drift(found_in(file), replace(SPEC, **changes))] == [field]


@pytest.mark.parametrize(("have", "want", "same"), [
    ("pc-q35-10.0", "q35", True), ("q35", "q35", True), ("pc-q35-rhel9.4.0", "q35", True), ("pc-i440fx-9.2", "pc", True), ("pc", "pc", True),
    ("pc-q35-10.0", "pc", False), ("pc-i440fx-9.2", "q35", False), ("pc-q35-10.0", "pc-q35-10.0", True), ("pc-q35-10.0", "pc-q35-10.1", False),
    ("q35", "pc-q35-10.0", False), ("virt-9.2", "virt", True), ("virtual", "virt", False), (None, "q35", False), ("microvm", "microvm", True)])
def test_machines_and_their_versions(have, want, same):
    assert same_machine(have, want) == same


def test_families_of_machines():
    families = [machine_family(machine) for machine in ("q35", "pc-q35-9.2", "pc", "pc-i440fx-9.2", "microvm", None)]
    assert families == ["q35", "q35", "pc", "pc", "microvm", None]


@pytest.mark.parametrize(("unit", "number"), [
    (None, "524288"), ("KiB", "524288"), ("k", "524288"), ("MiB", "512"), ("M", "512"), ("bytes", "536870912"), ("b", "536870912"),
    ("KB", "536870"), ("MB", "536"), ("KiB", "524287")])
def test_memory_in_any_unit_is_compared_as_qemu_has_it(unit, number):
    def edit(tree):
        tree.find("memory").text = number
        tree.find("memory").attrib.clear()
        if unit is not None:
            tree.find("memory").set("unit", unit)
    assert drift(edited(edit), SPEC) == ()


def chain_edit(xml):
    """Replace the chain below the overlay by that XML."""
    def edit(tree):
        disk = domain_read.find_disk(tree, "overlay")
        disk.remove(disk.find("backingStore"))
        if xml:
            disk.append(parse(xml))
    return edit


BASE = f"<source file='{IMAGES}/base.qcow2'/>"


@pytest.mark.parametrize(("xml", "drifts"), [
    ("", False), (f"<backingStore type='file' index='3'><format type='qcow2'/>{BASE}<backingStore/></backingStore>", False),
    (f"<backingStore type='file'><format type='qcow2'/>{BASE}</backingStore>", False), (f"<backingStore type='file'>{BASE}</backingStore>", False),
    ("<backingStore/>", True), (f"<backingStore type='file'><format type='raw'/>{BASE}</backingStore>", True),
    ("<backingStore type='file'><format type='qcow2'/><source file='/other'/><backingStore/></backingStore>", True),
    (f"<backingStore type='file'><format type='qcow2'/>{BASE}<backingStore type='file'><source file='/x'/></backingStore></backingStore>", True),
    ("<backingStore type='network'><format type='raw'/><source protocol='nbd'/></backingStore>", True)])
def test_a_chain_differs_only_in_what_it_says(xml, drifts):
    found = drift(edited(chain_edit(xml)), SPEC)
    assert [(one.field, one.needs) for one in found] == ([("overlay_chain", "replace")] if drifts else [])


@pytest.mark.parametrize(("edit", "field"), [
    (lambda tree: tree.remove(tree.find("on_crash")), None),
    (lambda tree: setattr(tree.find("on_poweroff"), "text", "restart"), "on_poweroff"),
    (lambda tree: setattr(tree.find("on_crash"), "text", "preserve"), None),
    (lambda tree: tree.find("devices").remove(tree.find("devices/channel")), "guest_agent"),
    (lambda tree: tree.find("devices").remove(tree.find("devices/serial")), "serial_console"),
    (lambda tree: tree.find("devices").remove(tree.find("devices/rng")), "rng"),
    (lambda tree: tree.find("devices/serial").append(parse("<log file='/x' append='on'/>")), None),
    (lambda tree: tree.find("devices").append(parse("<sound model='ich9'><alias name='ua-kvm2-0'/></sound>")), "xml_extra"),
    (lambda tree: tree.find("devices").append(parse("<sound model='ich9'><alias name='ua-mine'/></sound>")), None),
    (lambda tree: tree.find("devices/interface").append(parse("<vlan><tag id='1'/></vlan>")), None),
    (lambda tree: tree.find("devices/interface").append(parse("<vlan trunk='yes'><tag id='1'/><tag id='2'/></vlan>")), None),
    (lambda tree: tree.find("devices/interface").append(parse("<mtu size='1400'/>")), None),
    (lambda tree: tree.find("devices/interface").append(parse("<filterref filter='clean-traffic'><parameter name='IP' value='a'/></filterref>")),
     None),
    (lambda tree: tree.append(parse("<cputune><shares>3</shares></cputune>")), None),
    (lambda tree: tree.find("devices").remove(domain_read.find_disk(tree, "seed")), "seed"),
    (lambda tree: tree.find("devices").append(parse(f"<interface type='network'><mac address='{TWO.upper()}'/><source network='x'/></interface>")),
     f"interface {TWO}"),
    (lambda tree: tree.find("devices").append(parse("<interface type='network'><mac address='02:00:00:00:00:09'/><source network='x'/></interface>")),
     None)])
def test_edits_by_hand(edit, field):
    assert [one.field for one in drift(edited(edit), SPEC)] == ([] if field is None else [field])


@pytest.mark.parametrize(("option", "xml"), [
    ("vlan", "<vlan><tag id='1'/></vlan>"), ("vlan", "<vlan trunk='yes'><tag id='1'/><tag id='2'/></vlan>"), ("mtu", "<mtu size='9000'/>"),
    ("nwfilter", "<filterref filter='clean-traffic'/>")])
def test_what_an_interface_got_by_hand_stays_until_it_was_asked_for(option, xml):
    text = edited(lambda tree: tree.find("devices/interface").append(parse(xml)))
    # Another interface setting of the same kind, or another change, is no reason to take it away.
    other = tuple({"vlan", "mtu", "nwfilter"} - {option})
    for spec in (SPEC, replace(SPEC, former_options=other), replace(SPEC, vcpus=2)):
        assert f"interface {ONE}" not in [one.field for one in drift(text, spec)]
        assert parse(update(text, spec, MARK)).find(f"devices/interface/{parse(xml).tag}") is not None
    once = replace(SPEC, former_options=(option,))
    assert [one.field for one in drift(text, once)] == [f"interface {ONE}"]
    assert drift(update(text, once, MARK), once) == () and update(text, once, MARK) == render(SPEC, MARK)


def test_the_action_of_a_crash_is_managed_while_it_is_asked_for_and_goes_back_then():
    text = edited(lambda tree: setattr(tree.find("on_crash"), "text", "preserve"))
    assert parse(update(text, SPEC, MARK)).findtext("on_crash") == "preserve"
    once = replace(SPEC, former_options=("on_crash",))
    for spec in (once, replace(SPEC, on_crash="destroy")):
        assert [(one.field, one.have, one.want) for one in drift(text, spec)] == [("on_crash", "preserve", "destroy")]
        assert update(text, spec, MARK) == render(SPEC, MARK)
    assert drift(render(SPEC, MARK), once) == ()


def test_a_word_in_the_mark_that_is_not_managed_here_is_no_drift():
    spec = replace(SPEC, former_options=("tpm", "vlan", "memory", "name"))
    assert drift(render(SPEC, MARK), spec) == () and update(render(SPEC, MARK), spec, MARK) == render(SPEC, MARK)


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("append", ["on", "off"])
def test_a_log_of_somebody_elses_stays(wanted, append):
    text = edited(lambda tree: tree.find("devices/serial").append(parse(f"<log file='/srv/log/a.log' append='{append}'/>")))
    spec = replace(SPEC, console_log=wanted)
    assert drift(text, spec) == ()
    logs = parse(update(text, spec, MARK)).findall("devices/serial/log")
    assert [dict(log.attrib) for log in logs] == [{"file": "/srv/log/a.log", "append": append}]


def test_the_log_of_a_second_console_is_not_that_of_the_first():
    text = edited(lambda tree: tree.find("devices/serial").addnext(parse("<serial type='pty'><log file='/srv/log/b.log' append='on'/></serial>")))
    wanted = replace(SPEC, console_log=True)
    assert [(one.field, one.have) for one in drift(text, wanted)] == [("console_log", None)]
    assert drift(text, SPEC) == () and drift(update(text, wanted, MARK), wanted) == ()


def test_an_interface_moves_between_the_networks_and_the_devices_as_xml():
    asked = replace(SPEC, interfaces=(*SPEC.interfaces, Interface("network", "other", "02:00:00:00:00:77")))
    extra = replace(SPEC, xml_extra=(EXTRA[4],))
    for have, want in ((asked, replace(extra, former_macs=("02:00:00:00:00:77",))), (extra, asked)):
        text = render(have, MARK)
        assert {one.field for one in drift(text, want)} == {"interface 02:00:00:00:00:77", "xml_extra"}
        after = update(text, want, MARK)
        assert drift(after, want) == () and sorted(domain_read.macs(after)) == sorted((ONE, "02:00:00:00:00:77"))
        assert update(after, want, MARK) == after


def test_a_console_log_that_each_start_empties_is_none_of_ours():
    wanted = replace(SPEC, console_log=True)

    def edit(tree):
        tree.find("devices/serial/log").set("append", "off")
    text = edited(edit, render(wanted, MARK))
    assert [(one.field, one.have) for one in drift(text, wanted)] == [("console_log", None)]
    assert update(text, wanted, MARK) == render(wanted, MARK)


@pytest.mark.parametrize(("on_crash", "arch", "there"), [
    ("destroy", "x86_64", False), ("restart", "x86_64", True), ("preserve", "i686", True), ("restart", "aarch64", False)])
def test_the_device_that_tells_of_a_crash_is_there_where_something_follows_from_it(on_crash, arch, there):
    wanted = replace(SPEC, on_crash=on_crash, arch=arch)
    text = render(wanted, MARK)
    assert (parse(text).find("devices/panic") is not None) == there
    found = drift(edited(lambda tree: [tree.find("devices").remove(one) for one in tree.findall("devices/panic")], text), wanted)
    assert [one.field for one in found] == (["panic_device"] if there else [])


def test_a_running_guest_shows_what_its_network_gave_it_too():
    def edit(tree):
        tree.set("id", "3")
        tree.find("devices/interface").append(parse("<vlan><tag id='7'/></vlan>"))
        tree.find("devices/interface").append(parse("<mtu size='1400'/>"))
    assert drift(edited(edit), SPEC) == ()
    wanted = replace(SPEC, interfaces=(Interface("network", "default", ONE, vlan=8, mtu=1400),))
    assert [one.have for one in drift(edited(edit), wanted)] == ["network default, virtio, vlan 7, mtu 1400"]


def test_the_watchdog_that_a_machine_has_by_itself_follows_the_one_asked_for():
    wanted = replace(SPEC, watchdog="poweroff")
    tree = parse(update(as_libvirt_has_it(render(SPEC, MARK)), wanted, MARK))
    assert sorted((dog.get("model"), dog.get("action")) for dog in tree.findall("devices/watchdog")) == [("i6300esb", "poweroff"), ("itco", "poweroff")]
    tree = parse(update(etree.tostring(tree), replace(SPEC, former_options=("watchdog",)), MARK))
    assert [(dog.get("model"), dog.get("action")) for dog in tree.findall("devices/watchdog")] == [("itco", "reset")]


@pytest.mark.parametrize(("period", "quota", "percent"), [(None, "25000", 25), ("50000", "25000", 50), ("30000", "10000", 33.333), (None, "-1", None)])
def test_a_quota_is_read_as_percent(period, quota, percent):
    inside = (f"<period>{period}</period>" if period else "") + f"<quota>{quota}</quota>"
    text = edited(lambda tree: tree.append(parse(f"<cputune>{inside}</cputune>")))
    assert domain_read.read_fields(text)["cpu_quota"] == percent


def test_a_running_guest_on_a_bridged_network_shows_the_network():
    def edit(tree):
        interface = domain_read.find_interface(tree, ONE)
        interface.set("type", "bridge")
        interface.find("source").attrib.update({"bridge": "br7", "portid": "1"})
    assert drift(edited(edit), SPEC) == ()


def test_host_model_is_the_custom_model_only_in_a_running_guest():
    def edit(tree):
        del tree.attrib["id"]
    stopped = edited(edit, found_in("11.3-q35-host-model-running"))
    assert [one.field for one in drift(stopped, replace(SPEC, cpu_mode="host-model"))] == ["cpu_mode"]


def test_a_domain_of_another_tool_drifts_and_breaks_nothing():
    text = "<domain type='xen'><name>a</name><uuid>11111111-2222-3333-4444-555555555555</uuid></domain>"
    found = {one.field for one in drift(text, SPEC)}
    assert {"virt_type", "arch", "memory", "vcpus", "overlay", "seed", "machine", "guest_agent", f"interface {ONE}"} <= found
    assert domain_read.overlay_path(text) is None and domain_read.macs(text) == ()
    assert domain_read.read_spec(text).memory == 0


def test_drift_as_results_show_it():
    found = drift(render(SPEC, MARK), replace(SPEC, vcpus=2))
    assert found == (Drift("vcpus", 1, 2, "redefine", True),)
    assert found[0].as_dict() == {"field": "vcpus", "have": 1, "want": 2, "needs": "redefine", "restart": True}
