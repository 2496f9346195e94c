# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a hypervisor lacks is found and named before anything is defined."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import convert
from ansible_collections.egress.kvm2.plugins.module_utils._policy import capability, network_checks
from ansible_collections.egress.kvm2.plugins.module_utils._policy.capability import Require
from ansible_collections.egress.kvm2.plugins.module_utils._policy.model import Network
from ansible_collections.egress.kvm2.tests.unit.fake.hypervisor import FakeHypervisor

GIB = 1024 ** 3
NETWORKS = (
    Network("default", "n1", True, "virbr0", True), Network("lan", "n2", False, "virbr1", True), Network("late", "n3", True, "virbr2", False))

# What libvirt 11.3 with QEMU 10.0 answers on a machine without KVM and without OVMF, long lists shortened.
MEASURED = """
<domainCapabilities>
  <path>/usr/bin/qemu-system-x86_64</path>
  <domain>qemu</domain>
  <machine>pc-q35-10.0</machine>
  <arch>x86_64</arch>
  <vcpu max='4096'/>
  <iothreads supported='yes'/>
  <os supported='yes'>
    <enum name='firmware'/>
    <loader supported='yes'>
      <enum name='type'>
        <value>rom</value>
        <value>pflash</value>
      </enum>
      <enum name='secure'>
        <value>no</value>
      </enum>
    </loader>
  </os>
  <cpu>
    <mode name='host-passthrough' supported='no'/>
    <mode name='maximum' supported='yes'>
      <enum name='maximumMigratable'>
        <value>on</value>
        <value>off</value>
      </enum>
    </mode>
    <mode name='host-model' supported='yes'>
      <model fallback='forbid'>EPYC</model>
    </mode>
    <mode name='custom' supported='yes'>
      <model usable='yes' vendor='unknown'>qemu64</model>
    </mode>
  </cpu>
</domainCapabilities>
"""
HOST = """
<capabilities>
  <host><uuid>579df53b-e9b7-48bb-9151-2f78db07afe3</uuid><cpu><arch>x86_64</arch></cpu></host>
  <guest>
    <os_type>hvm</os_type>
    <arch name='x86_64'>
      <wordsize>64</wordsize>
      <emulator>/usr/bin/qemu-system-x86_64</emulator>
      <machine maxCpus='255'>pc-i440fx-10.0</machine>
      <machine canonical='pc-i440fx-10.0' maxCpus='255'>pc</machine>
      <machine maxCpus='4096'>pc-q35-10.0</machine>
      <machine canonical='pc-q35-10.0' maxCpus='4096'>q35</machine>
      <domain type='qemu'/>
    </arch>
  </guest>
  <guest>
    <os_type>xen</os_type>
    <arch name='armv7l'><machine>xenpv</machine><domain type='xen'/></arch>
  </guest>
</capabilities>
"""


@pytest.fixture
def fake():
    return FakeHypervisor()


def checks(fake, **require):
    found = capability.checks(fake.host(), NETWORKS, {"br0": True, "br1": False}, fake.domain_capabilities, Require(**require))
    assert all(check.message.endswith(".") and (check.hint.endswith(".") or not check.hint) for check in found)
    assert all(check.hint for check in found if check.status == "fail")
    return {check.name: check for check in found}


def test_measured_capabilities_are_read():
    found = capability.read_domain_capabilities(MEASURED)
    assert found == capability.DomainCapabilities(frozenset(), frozenset(("maximum", "host-model", "custom")), 4096)
    with_efi = MEASURED.replace("<enum name='firmware'/>", "<enum name='firmware'><value>bios</value><value>efi</value></enum>")
    assert capability.read_domain_capabilities(with_efi).firmwares == {"bios", "efi"}


def test_measured_host_capabilities_are_read():
    assert capability.read_guests(HOST) == {"x86_64": ({"pc", "q35", "pc-i440fx-10.0", "pc-q35-10.0"}, {"qemu"})}


def test_nothing_asked_nothing_said(fake):
    assert checks(fake) == {}


def test_all_is_there(fake):
    fake.machine.virt_types = ["kvm", "qemu"]
    found = checks(
        fake, virt_type="kvm", machine="q35", firmware="efi", cpu_mode="host-model", arch="x86_64", networks=("default",), bridges=("br0",),
        memory=GIB, vcpus=2)
    assert {check.status for check in found.values()} == {"ok"}
    assert len(found) == 9


def test_all_problems_at_once(fake):
    fake.machine.firmwares.clear()
    found = checks(
        fake, virt_type="qemu", machine="pc-q35-99", firmware="efi", cpu_mode="host-passthrough", networks=("lan", "wan"), bridges=("br9",),
        memory=64 * GIB, vcpus=300)
    failed = {name for name, check in found.items() if check.status == "fail"}
    assert failed == {
        "machine pc-q35-99", "firmware efi", "cpu_mode host-passthrough", "vcpus 300", "network lan", "network wan", "bridge br9", "memory"}
    assert found["network lan"].hint == "Start it: virsh net-start lan."
    assert "default, lan, late" in found["network wan"].message
    assert "host-model, maximum" in found["cpu_mode host-passthrough"].hint


def test_virt_types(fake):
    assert checks(fake, virt_type="qemu")["virt_type qemu"].status == "ok"
    kvm = checks(fake, virt_type="kvm", cpu_mode="maximum")
    assert kvm["virt_type kvm"].status == "fail"
    assert "/dev/kvm" in kvm["virt_type kvm"].hint
    assert kvm["cpu_mode maximum"].status == "skipped"
    auto = checks(fake, virt_type="auto")["virt_type auto"]
    assert (auto.status, "slow" in auto.message) == ("warn", True)
    fake.machine.virt_types = ["kvm", "qemu"]
    assert checks(fake, virt_type="auto")["virt_type auto"].message == "Guests run with kvm."


def test_another_arch(fake):
    found = checks(fake, arch="aarch64", firmware="efi")
    assert found["arch aarch64"].status == "fail"
    assert "x86_64" in found["arch aarch64"].message
    assert found["firmware efi"].status == "skipped"


@pytest.mark.parametrize("name", ["q35", "pc", "pc-q35-10.0", "pc-i440fx-10.0"])
def test_machines_by_alias_and_by_name(fake, name):
    assert checks(fake, machine=name)[f"machine {name}"].status == "ok"


def test_bios_is_always_there(fake):
    fake.machine.firmwares.clear()
    assert checks(fake, firmware="bios")["firmware bios"].status == "ok"


def test_more_processors_than_the_host_has_is_a_warning(fake):
    assert [checks(fake, vcpus=vcpus)[f"vcpus {vcpus}"].status for vcpus in (8, 9, 256)] == ["ok", "warn", "fail"]


def test_bridges_that_cannot_be_seen_are_skipped(fake):
    found = capability.checks(fake.host(), NETWORKS, None, fake.domain_capabilities, Require(bridges=("br0",)))
    assert [check.status for check in found] == ["skipped"]


def test_a_bridge_that_is_down(fake):
    down = checks(fake, bridges=("br1", "br0"))
    assert [(check.status, check.hint) for check in down.values()] == [("fail", "Bring it up: ip link set br1 up."), ("ok", "")]


def test_a_network_that_does_not_start_at_boot_is_a_warning(fake):
    late = checks(fake, networks=("late",))["network late"]
    assert (late.status, late.hint) == ("warn", "Have it started: virsh net-autostart late.")


def test_what_is_returned(fake):
    assert checks(fake, networks=("default",))["network default"].as_dict() == {
        "name": "network default", "status": "ok", "message": "The network default is active.", "hint": ""}


@pytest.mark.parametrize(("inside", "since"), [
    ("", None), ("<forward/>", None), ("<forward mode='nat'/>", None), ("<forward mode='route'/>", None), ("<forward mode='open'/>", None),
    ("<forward mode='bridge'/><bridge name='br0'/>", 11_000_000), ("<forward mode='hostdev'/>", 0),
    ("<forward mode='bridge'/><bridge name='ovs0'/><virtualport type='openvswitch'/>", 0),
    ("<forward mode='bridge'/><bridge name='ovs0'/><portgroup name='a'><virtualport type='openvswitch'/></portgroup>", 0)])
def test_networks_that_tag_frames(inside, since):
    text = f"<network><name>n</name><uuid>n1</uuid>{inside}</network>"
    assert convert.network(text, True, True).vlans_since == since


@pytest.mark.parametrize(("version", "failed"), [
    (9_000_000, ["network lan", "network wan", "bridge br0"]), (10_999_000, ["network lan", "network wan", "bridge br0"]), (11_000_000, ["network lan"]),
    (12_008_000, ["network lan"])])
def test_what_tags_no_frames_takes_no_guest_into_a_vlan(fake, version, failed):
    networks = tuple(Network(name, name, True, None, True, since) for name, since in (("lan", None), ("wan", 11_000_000), ("ovs", 0)))
    wanted = Require(vlan_networks=("lan", "wan", "ovs", "nowhere"), vlan_bridges=("br0",))
    found = capability.checks(replace(fake.host(), libvirt_version=version), networks, {"br0": True}, fake.domain_capabilities, wanted)
    assert [(check.name, check.status) for check in found] == [(f"vlan on {name}", "fail") for name in failed]


def test_a_bridge_that_keeps_no_vlans_apart_takes_no_guest_into_one():
    known = (Network("lan", "1", True, "virbr0"), Network("wan", "2", True, "br1", True, 11_000_000), Network("ovs", "3", True, "ovs0", True, 0))
    filtering = {"br0": False, "br1": False, "br2": True, "ovs0": False, "virbr0": False}
    found = list(network_checks.vlans_kept_apart(known, ("lan", "wan", "ovs", "nowhere"), ("br0", "br2", "nowhere"), filtering))
    assert [(check.name, check.status) for check in found] == [("vlan on bridge br0", "fail"), ("vlan on bridge br1", "fail")]
    assert found[0].hint == "Have it filter them: ip link set br0 type bridge vlan_filtering 1."
    assert list(network_checks.vlans_kept_apart(known, ("wan",), ("br2",), {**filtering, "br1": True})) == []


def test_network_filters(fake):
    def found(known):
        return [(check.status, check.message) for check in capability.checks(
            fake.host(), NETWORKS, {}, fake.domain_capabilities, Require(nwfilters=("clean-traffic", "mine")), known)]
    assert found(("clean-traffic",)) == [
        ("ok", "The network filter clean-traffic is there."), ("fail", "There is no network filter mine (there are: clean-traffic).")]
    assert [status for status, _message in found(None)] == ["fail", "fail"]


def test_processors_to_pin_to_have_to_be_there(fake):
    topology = "".join(f"<cpu id='{number}'/>" for number in (0, 1, 2, 5))
    listed = replace(fake.host(), capabilities_xml=(
        f"<capabilities><host><topology><cells num='1'><cell id='0'><cpus num='4'>{topology}</cpus></cell></cells></topology></host></capabilities>"))

    def found(facts, wanted):
        return [check.message for check in capability.checks(facts, NETWORKS, {}, fake.domain_capabilities, Require(cpu_pin=frozenset(wanted)))]
    assert found(listed, {0, 5}) == []
    assert found(listed, {1, 3, 4}) == ["The host has no processor 3-4 (there are: 0-2,5)."]
    # Where libvirt lists none, it says so itself at the start.
    assert found(fake.host(), {99}) == []


def test_a_processor_that_cannot_be_passed_through_does_not_fail_where_the_nearest_mode_does(fake):
    assert checks(fake, virt_type="qemu", cpu_mode="host-passthrough")["cpu_mode host-passthrough"].status == "fail"
    assert checks(fake, virt_type="qemu", cpu_mode="host-passthrough", cpu_fallback=True)["cpu_mode maximum"].status == "ok"


def test_the_default_machine_is_one_that_the_host_has(fake):
    assert capability.default_machine(fake.host()) == "q35"
    del fake.machine.machines["q35"]
    assert capability.default_machine(fake.host()) is None
    fake.machine.arch = "aarch64"
    assert capability.default_machine(fake.host()) is None
