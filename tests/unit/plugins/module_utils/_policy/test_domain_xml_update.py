# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Updating a domain: the managed fields are set, and everything else that is there stays as it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy import domain_read, domain_xml, mark, names
from ansible_collections.egress.kvm2.plugins.module_utils._policy.domain_xml import DomainSpec, Interface, render, update
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import CONFLICT, Kvm2Error
from ansible_collections.egress.kvm2.plugins.module_utils._policy.xml import etree, parse

FOUND = Path(__file__).parent / "golden" / "libvirt"
UID = "bdcf2b7e-b780-5ade-85c5-cb0dd262285e"
MIB = 2 ** 20
# The mark and the specification that the files under golden/libvirt were defined with, apart from machine and CPU mode.
MARK = mark.to_element(mark.Mark(fleet="edge", name="p1", uid=UID, created_at=1000000000))
ONE, TWO = names.mac_address(UID, 0), names.mac_address(UID, 1)
IMAGES = "/var/lib/libvirt/images"
OVERLAY = f"{IMAGES}/kvm2-edge.p1-{UID}-aaaaaa.qcow2"
SPEC = DomainSpec(
    name="edge.p1", uuid=UID, memory=512 * MIB, vcpus=1, overlay_path=OVERLAY, overlay_chain=((f"{IMAGES}/base.qcow2", "qcow2"),),
    seed_path=f"{IMAGES}/kvm2-edge.p1-{UID}-aaaaaa.iso", interfaces=(Interface("network", "default", ONE),), virt_type="qemu", machine="q35",
    title="x & y")

# What an operator, libvirt or another tool may have put into a domain; none of it is ours.
FOREIGN_METADATA = "<o:info xmlns:o='urn:other'><o:uid>1</o:uid></o:info>"
FOREIGN_DEVICES = (
    "<disk type='file' device='disk'><driver type='raw' cache='none'/><source file='/data'/><target dev='vdc'/><serial>data</serial></disk>",
    "<disk type='volume' device='disk'><source pool='p' volume='v'/><target dev='vdd' bus='virtio'/></disk>",
    "<disk type='file' device='cdrom'><target dev='sda' bus='sata'/><readonly/></disk>",
    "<interface type='bridge'><mac address='02:11:22:33:44:55'/><source bridge='br9'/><model type='e1000'/></interface>",
    "<interface type='direct'><mac address='02:11:22:33:44:56'/><source dev='eth0' mode='bridge'/></interface>",
    "<hostdev mode='subsystem' type='pci' managed='yes'><source><address domain='0' bus='5' slot='0' function='0'/></source></hostdev>",
    "<filesystem type='mount'><source dir='/srv'/><target dir='srv'/></filesystem>",
    "<channel type='unix'><target type='virtio' name='org.other.0'/></channel>",
    "<graphics type='vnc' port='-1'/>", "<watchdog model='i6300esb' action='reset'/>")
FOREIGN_ELEMENTS = (
    "<cputune><shares>512</shares></cputune>", "<description>by hand</description>", "<memoryBacking><hugepages/></memoryBacking>",
    "<seclabel type='none'/>")

texts = st.text("abc &<>\"'", min_size=1, max_size=8)
interfaces = st.lists(
    st.builds(Interface, st.sampled_from(("network", "bridge")), texts, st.sampled_from((ONE, TWO)), st.sampled_from(("virtio", "e1000e"))),
    max_size=2, unique_by=lambda interface: interface.mac).map(tuple)
nonces = st.sampled_from(("aaaaaa", "bbbbbb"))
specs = st.builds(
    DomainSpec, name=st.just("edge.p1"), uuid=st.just(UID), memory=st.integers(MIB, 2 ** 36), vcpus=st.integers(1, 64),
    overlay_path=nonces.map(lambda nonce: f"/pool/kvm2-edge.p1-{UID}-{nonce}.qcow2"),
    overlay_chain=st.lists(st.tuples(texts, st.sampled_from(("raw", "qcow2"))), max_size=3).map(tuple),
    seed_path=nonces.map(lambda nonce: f"/pool/kvm2-edge.p1-{UID}-{nonce}.iso"), interfaces=interfaces,
    cpu_mode=st.sampled_from((None, "host-passthrough", "host-model", "maximum")),
    machine=st.sampled_from((None, "q35", "pc", "pc-q35-9.2", "pc-i440fx-9.2")), firmware=st.sampled_from(("bios", "efi")),
    virt_type=st.sampled_from(("kvm", "qemu")), emulator=st.none() | texts, title=st.none() | texts.map(lambda text: text.strip() or "t"))


def canonical(text):
    return etree.tostring(etree.fromstring(text, etree.XMLParser(remove_blank_text=True)), method="c14n2", strip_text=True).decode()


def with_foreign(text):
    tree = parse(text)
    for inside in FOREIGN_ELEMENTS:
        tree.append(parse(inside))
    for inside in FOREIGN_DEVICES:
        tree.find("devices").insert(0, parse(inside))
    tree.find("metadata").insert(0, parse(FOREIGN_METADATA))
    return etree.tostring(tree, encoding="unicode")


def assert_foreign_is_there(text):
    tree = parse(text)
    for parent, insides in ((tree, FOREIGN_ELEMENTS), (tree.find("devices"), FOREIGN_DEVICES), (tree.find("metadata"), (FOREIGN_METADATA,))):
        present = [canonical(etree.tostring(child)) for child in parent]
        for inside in insides:
            assert present.count(canonical(inside)) == 1, inside


@pytest.mark.parametrize(("file", "machine"), [("11.3-q35-defined", "q35"), ("11.3-pc-defined", "pc")])
def test_an_update_without_a_change_changes_nothing_in_what_libvirt_made_of_a_definition(file, machine):
    text = (FOUND / f"{file}.xml").read_text(encoding="utf-8")
    assert canonical(update(text, replace(SPEC, machine=machine), MARK)) == canonical(text)


@given(specs)
def test_an_update_of_what_was_rendered_changes_nothing(spec):
    assert update(render(spec, MARK), spec, MARK) == render(spec, MARK)


@given(specs, specs)
def test_an_update_gives_the_specification_and_a_second_one_changes_nothing(before, spec):
    text = update(render(before, MARK), spec, MARK)
    assert domain_xml.drift(text, spec) == ()
    assert update(text, spec, MARK) == text


@given(specs, specs)
def test_what_is_not_ours_survives_any_update(before, spec):
    text = update(with_foreign(render(before, MARK)), spec, MARK)
    assert_foreign_is_there(text)
    assert domain_xml.drift(text, spec) == ()


def test_settings_by_hand_on_our_own_devices_survive():
    tree = parse(render(SPEC, MARK))
    disk, interface = domain_read.find_disk(tree, "overlay"), domain_read.find_interface(tree, ONE)
    disk.find("driver").set("cache", "none")
    etree.SubElement(disk, "iotune")
    etree.SubElement(disk, "boot", order="1")
    interface.find("source").set("portgroup", "blue")
    etree.SubElement(interface, "bandwidth")
    tree.find("os").remove(tree.find("os/boot"))
    tree.find("vcpu").set("cpuset", "0-3")
    text = update(etree.tostring(tree), replace(SPEC, memory=2 ** 30, vcpus=2), MARK)
    tree = parse(text)
    assert tree.find("devices/disk/driver").get("cache") == "none" and tree.find("devices/disk/iotune") is not None
    # libvirt refuses a boot order beside the boot devices of <os>.
    assert tree.find("os/boot") is None
    assert tree.find("devices/interface/source").get("portgroup") == "blue" and tree.find("devices/interface/bandwidth") is not None
    assert tree.find("vcpu").get("cpuset") == "0-3" and tree.findtext("vcpu") == "2"


def test_the_mark_is_replaced_and_not_doubled():
    other = mark.to_element(mark.Mark(fleet="edge", name="p1", uid=UID, created_at=1000000001, hold="mine"))
    tree = parse(update(with_foreign(render(SPEC, MARK)), SPEC, other))
    assert mark.of_tree(tree) == mark.parse_element(other)
    # The caller's element stays usable.
    assert other.getparent() is None and mark.parse_element(other).hold == "mine"


def test_a_new_overlay_and_seed_take_the_places_of_the_old_ones():
    text = (FOUND / "11.3-q35-defined.xml").read_text(encoding="utf-8")
    spec = replace(
        SPEC, overlay_path=OVERLAY.replace("aaaaaa", "bbbbbb"), seed_path=SPEC.seed_path.replace("aaaaaa", "bbbbbb"),
        overlay_chain=(("/new.raw", "raw"),))
    before, after = parse(text), parse(update(text, spec, MARK))
    assert len(after.findall("devices/disk")) == 2
    for kind, path in (("overlay", spec.overlay_path), ("seed", spec.seed_path)):
        disk = domain_read.find_disk(after, kind)
        assert domain_read.disk_path(disk) == path
        assert disk.find("address").attrib == domain_read.find_disk(before, kind).find("address").attrib
    assert domain_read.read_chain(domain_read.find_disk(after, "overlay")) == ((("/new.raw", "raw"),), True)


def test_a_disk_as_a_pools_volume_becomes_a_file():
    tree = parse(render(SPEC, MARK))
    disk = domain_read.find_disk(tree, "overlay")
    disk.set("type", "volume")
    source = disk.find("source")
    source.attrib.clear()
    source.attrib.update({"pool": "default", "volume": "x"})
    assert domain_read.disk_path(disk) is None
    assert canonical(update(etree.tostring(tree), SPEC, MARK)) == canonical(render(SPEC, MARK))


@pytest.mark.parametrize("kind", ["overlay", "seed"])
def test_our_disk_is_known_by_its_file_name_where_it_lost_its_serial_and_moved(kind):
    tree = parse(render(SPEC, MARK))
    disk = domain_read.find_disk(tree, kind)
    disk.remove(disk.find("serial"))
    disk.find("target").set("dev", "vdx")
    disk.find("target").set("bus", "sata")
    etree.SubElement(disk, "address", type="drive")
    after = parse(update(etree.tostring(tree), SPEC, MARK))
    assert len(after.findall("devices/disk")) == 2
    disk = domain_read.find_disk(after, kind)
    assert (disk.find("target").get("dev"), disk.find("target").get("bus"), disk.find("address")) == ("vdx", "virtio", None)
    assert len(disk.findtext("serial")) == 20


@pytest.mark.parametrize(("kind", "target"), [("overlay", "vda"), ("seed", "vdb")])
@pytest.mark.parametrize("serial", [None, "operator"])
def test_somebody_elses_disk_in_the_place_of_ours_is_never_taken(kind, target, serial):
    tree = parse(render(SPEC, MARK))
    disk = domain_read.find_disk(tree, kind)
    disk.find("source").set("file", "/precious.raw")
    disk.remove(disk.find("serial"))
    if serial is not None:
        etree.SubElement(disk, "serial").text = serial
    with pytest.raises(Kvm2Error, match=rf"the disk /precious\.raw is in the place of ours, {target}") as caught:
        update(etree.tostring(tree), SPEC, MARK)
    assert caught.value.kind == CONFLICT
    disk.find("target").set("bus", "sata")
    with pytest.raises(Kvm2Error, match="is in the place of ours"):
        update(etree.tostring(tree), SPEC, MARK)


def test_what_was_made_by_hand_in_our_place_with_our_file_is_taken():
    tree = parse(render(replace(SPEC, overlay_path="/pool/restored.qcow2"), MARK))
    disk = domain_read.find_disk(tree, "overlay")
    disk.remove(disk.find("serial"))
    text = etree.tostring(tree)
    assert domain_read.overlay_path(text) == "/pool/restored.qcow2"
    after = update(text, replace(SPEC, overlay_path="/pool/restored.qcow2"), MARK)
    assert domain_read.find_disk(parse(after), "overlay").findtext("serial") == SPEC.overlay_serial


def test_an_interface_that_is_not_wanted_any_more_goes_and_foreign_ones_stay():
    two = replace(SPEC, interfaces=(*SPEC.interfaces, Interface("bridge", "br0", TWO)))
    text = with_foreign(render(two, MARK))
    after = update(text, replace(SPEC, interfaces=(Interface("bridge", "br1", TWO),)), MARK)
    assert ONE not in domain_read.macs(after) and TWO in domain_read.macs(after)
    assert_foreign_is_there(after)


def test_an_interface_that_moves_leaves_what_belonged_to_its_old_network():
    tree = parse(render(SPEC, MARK))
    interface = domain_read.find_interface(tree, ONE)
    interface.find("source").set("portgroup", "blue")
    etree.SubElement(interface, "virtualport", type="openvswitch")
    etree.SubElement(interface, "address", type="pci")
    after = domain_read.find_interface(parse(update(etree.tostring(tree), replace(SPEC, interfaces=(Interface("bridge", "br0", ONE),)), MARK)), ONE)
    assert dict(after.find("source").attrib) == {"bridge": "br0"}
    assert after.find("virtualport") is None
    assert after.find("address") is not None


@pytest.mark.parametrize(("file", "machine", "kept"), [
    ("11.3-q35-defined", "pc", False), ("11.3-pc-defined", "q35", False), ("11.3-q35-defined", "pc-q35-9.2", True),
    ("11.3-pc-defined", "pc-i440fx-9.2", True)])
def test_pci_addresses_are_kept_within_a_family_of_machines_and_dropped_between_two(file, machine, kept):
    text = (FOUND / f"{file}.xml").read_text(encoding="utf-8")
    after = parse(update(text, replace(SPEC, machine=machine), MARK))
    assert after.find("os/type").get("machine") == machine
    for path in ("devices/controller[@type='pci']", "devices/*/address[@type='pci']"):
        assert bool(after.findall(path)) == kept
    # A q35 brings its own watchdog, which no other machine has.
    assert (after.find("devices/watchdog") is not None) == (machine == "pc-q35-9.2")


def test_a_version_of_the_wanted_machine_stays_the_version_it_is():
    text = (FOUND / "11.3-q35-defined.xml").read_text(encoding="utf-8")
    assert parse(update(text, replace(SPEC, vcpus=2), MARK)).find("os/type").get("machine") == "pc-q35-10.0"


def test_what_was_said_for_another_number_of_cpus_goes():
    tree = parse(render(SPEC, MARK))
    tree.find("vcpu").set("current", "1")
    tree.append(parse("<vcpus><vcpu id='0' enabled='yes'/></vcpus>"))
    tree.append(parse("<cpu><topology sockets='1' cores='1' threads='1'/><numa/></cpu>"))
    same = parse(update(etree.tostring(tree), SPEC, MARK))
    assert same.find("cpu/topology") is not None and same.find("vcpus") is not None
    after = parse(update(etree.tostring(tree), replace(SPEC, vcpus=3), MARK))
    assert after.find("cpu/topology") is None and after.find("vcpus") is None and after.find("cpu/numa") is not None
    assert dict(after.find("vcpu").attrib) == {}


def test_firmware_changes_take_its_files_along():
    efi = parse(render(replace(SPEC, firmware="efi"), MARK))
    for inside in ("<loader readonly='yes' type='pflash'>/code.fd</loader>", "<nvram template='/vars.fd'>/nvram/p1</nvram>", "<firmware/>"):
        efi.find("os").append(parse(inside))
    text = etree.tostring(efi)
    assert canonical(update(text, replace(SPEC, firmware="efi"), MARK)) == canonical(text)
    bios = parse(update(text, SPEC, MARK)).find("os")
    assert [child.tag for child in bios] == ["type", "boot"] and "firmware" not in bios.attrib
    by_hand = parse(render(SPEC, MARK))
    by_hand.find("os").append(parse("<loader readonly='yes' type='pflash'>/code.fd</loader>"))
    assert domain_read.firmware(by_hand) == "efi"


def test_text_that_is_no_xml_is_an_error_that_says_so():
    for text in ("", "<domain>", "no"):
        with pytest.raises(ValueError, match="not well-formed"):
            update(text, SPEC, MARK)
