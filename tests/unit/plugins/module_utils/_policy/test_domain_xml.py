# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The XML of a new domain, to the letter, for every option; and what cannot be rendered."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._policy import domain_xml, mark, names
from ansible_collections.egress.kvm2.plugins.module_utils._policy.domain_xml import DomainSpec, Interface
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import InvalidInput
from ansible_collections.egress.kvm2.plugins.module_utils._policy.xml import parse

GOLDEN = Path(__file__).parent / "golden"
UID = "bdcf2b7e-b780-5ade-85c5-cb0dd262285e"
OTHER = "11111111-2222-5333-8444-555555555555"
MIB = 2 ** 20
MARK = mark.to_element(mark.Mark(fleet="edge", name="p1", uid=UID, created_at=1764448000, host="hv1"))
PLAIN = DomainSpec(
    name="edge.p1", uuid=UID, memory=512 * MIB, vcpus=1, overlay_path=f"/pool/kvm2-edge.p1-{UID}-abcdef.qcow2",
    overlay_chain=(("/pool/kvm2-base-a-0123456789abcdef-abcdef.qcow2", "qcow2"),), seed_path=f"/pool/kvm2-edge.p1-{UID}-abcdef.iso")
ONE, TWO = names.mac_address(UID, 0), names.mac_address(UID, 1)
CASES = {
    "domain-plain": PLAIN,
    "domain-network": replace(PLAIN, interfaces=(Interface("network", "default", ONE),)),
    "domain-interfaces": replace(
        PLAIN, interfaces=(Interface("bridge", "br0", "02:00:00:00:00:01"), Interface("network", "a&b", TWO, "e1000e"))),
    "domain-sizes": replace(PLAIN, memory=1536 * MIB + 1, vcpus=4),
    "domain-host-passthrough": replace(PLAIN, cpu_mode="host-passthrough", machine="q35"),
    "domain-host-model": replace(PLAIN, cpu_mode="host-model", machine="pc"),
    "domain-maximum": replace(PLAIN, cpu_mode="maximum", machine="pc-q35-9.2", virt_type="qemu"),
    "domain-efi": replace(PLAIN, firmware="efi", machine="q35"),
    "domain-arm": replace(PLAIN, arch="aarch64", machine="virt", firmware="efi", emulator="/usr/bin/qemu-system-aarch64"),
    "domain-arm-bios": replace(PLAIN, arch="aarch64", machine="virt"),
    "domain-title": replace(PLAIN, title="Proxy <1> & \"2\""),
    "domain-chain": replace(PLAIN, overlay_chain=(("/pool/middle.qcow2", "qcow2"), ("/other pool/base.raw", "raw"))),
    "domain-chain-unknown": replace(PLAIN, overlay_chain=()),
    "domain-no-disks": replace(PLAIN, overlay_path=None, overlay_chain=(), seed_path=None),
    "domain-console-log": replace(PLAIN, console_log=True),
    "domain-on-crash": replace(PLAIN, on_crash="coredump-restart"),
    "domain-on-crash-arm": replace(PLAIN, on_crash="restart", arch="aarch64", machine="virt"),
    "domain-watchdog": replace(PLAIN, watchdog="poweroff"),
    "domain-cpu-tuning": replace(PLAIN, vcpus=2, cpu_shares=512, cpu_quota=50, cpu_pin="0-1,3"),
    "domain-io-tuning": replace(PLAIN, io_tuning=(("read_bytes", 10 * MIB), ("write_bytes", 5 * MIB), ("total_iops", 200))),
    "domain-filtered": replace(PLAIN, interfaces=(
        Interface("network", "default", ONE, vlan=42, mtu=1400, nwfilter="clean-traffic", nwfilter_parameters=(("IP", "192.0.2.1"), ("IP", "192.0.2.2"))),)),
    "domain-extra": replace(PLAIN, xml_extra=(
        "<sound model='ich9'/>", "<controller type='usb' model='qemu-xhci'/>",
        """<disk type="file" device="disk"><!-- data --><driver name='qemu' type="raw"/><source file="/data &amp; more"/>
        <target dev='vdc' bus='virtio'/></disk>""")),
    "domain-other": replace(PLAIN, name="other.p2", uuid=OTHER, overlay_path="/o.qcow2", seed_path="/s.iso"),
}


def rendered(spec):
    return domain_xml.render(spec, MARK)


@pytest.mark.parametrize("case", sorted(CASES))
def test_xml_is_the_golden_one(case):
    assert rendered(CASES[case]) == (GOLDEN / f"{case}.xml").read_text(encoding="utf-8")


def test_there_is_no_golden_file_without_a_case():
    assert {path.stem for path in GOLDEN.glob("domain-*.xml")} == set(CASES)


# What was asked for once only takes something out of a domain that is there.
@pytest.mark.parametrize("field", [field.name for field in fields(DomainSpec) if field.name not in ("former_macs", "former_options")])
def test_every_field_of_a_specification_is_in_the_golden_files(field):
    assert len({getattr(spec, field) for spec in CASES.values()}) > 1


@pytest.mark.parametrize("field", [field.name for field in fields(Interface)])
def test_every_field_of_an_interface_is_in_the_golden_files(field):
    assert len({getattr(interface, field) for spec in CASES.values() for interface in spec.interfaces}) > 1


def test_the_serials_fit_into_what_a_guest_sees():
    for spec in CASES.values():
        serials = parse(rendered(spec)).findall("devices/disk/serial")
        assert len(serials) == (0 if spec.overlay_path is None else 2)
        assert len({serial.text for serial in serials}) == len(serials)
        assert all(len(serial.text) == 20 for serial in serials)


def test_memory_is_rounded_up_to_whole_mebibytes():
    for memory, kib in ((MIB, 1024), (MIB + 1, 2048), (2 * MIB, 2048)):
        assert parse(rendered(replace(PLAIN, memory=memory))).findtext("memory") == str(kib)


@pytest.mark.parametrize(("changes", "part"), [
    ({"memory": 0}, "too small"), ({"memory": 1023}, "too small"), ({"vcpus": 0}, "too small"), ({"vcpus": -1}, "too small"),
    ({"on_crash": "rename-restart"}, "on_crash 'rename-restart' is not known"),
    ({"interfaces": (Interface("network", "a", ONE, nwfilter="b", nwfilter_parameters=(("IP", "\x02"),)),)}, "XML cannot carry"),
    ({"cpu_mode": "custom"}, "cpu_mode 'custom' is not known"), ({"firmware": "uefi"}, "firmware 'uefi'"), ({"virt_type": "auto"}, "virt_type 'auto'"),
    ({"interfaces": (Interface("ethernet", "eth0", ONE),)}, "names no network or bridge"),
    ({"interfaces": (Interface("network", "", ONE),)}, "names no network or bridge"),
    ({"interfaces": (Interface("network", "a", "52:54:00:00:00"),)}, "malformed"),
    ({"interfaces": (Interface("network", "a", ONE.upper()),)}, "malformed"),
    ({"interfaces": (Interface("network", "a", "53:54:00:00:00:00"),)}, "multicast"),
    ({"interfaces": (Interface("network", "a", ONE), Interface("bridge", "b", ONE))}, "used twice"),
    ({"title": "a\0b"}, "XML cannot carry"), ({"interfaces": (Interface("network", "a\x1b", ONE),)}, "XML cannot carry"),
    ({"overlay_path": "/pool/\udcff"}, "XML cannot carry"), ({"overlay_chain": (("/pool/\ufffe", "raw"),)}, "XML cannot carry"),
    ({"machine": "q35\x01"}, "XML cannot carry")])
def test_what_cannot_be_rendered_is_refused_by_name(changes, part):
    with pytest.raises(InvalidInput, match=part) as caught:
        rendered(replace(PLAIN, **changes))
    assert caught.value.object == "specification of domain edge.p1" and caught.value.hint


def test_what_is_shown_is_what_is_asked_for():
    shown = domain_xml.shown(CASES["domain-network"])
    assert shown["memory"] == 512 * MIB
    assert shown[f"interface {ONE}"] == "network default, virtio"
    assert shown["overlay_chain"] == "/pool/kvm2-base-a-0123456789abcdef-abcdef.qcow2 (qcow2)"
    assert "machine" not in shown and "title" not in shown


def test_the_generation_tells_specifications_apart_and_not_the_order_of_interfaces():
    generations = {case: domain_xml.generation(spec) for case, spec in CASES.items()}
    # Name and uid are the identity of an instance and no part of its generation.
    assert len(set(generations.values())) == len(CASES)
    two = CASES["domain-interfaces"]
    assert domain_xml.generation(replace(two, interfaces=two.interfaces[::-1])) == generations["domain-interfaces"]
