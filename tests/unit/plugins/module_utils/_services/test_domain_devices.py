# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices and limits of an instance through kvm2_domain: made, kept, told as drift, taken away again; and the console's log to the end."""

from __future__ import annotations

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import console_log, host_files
from ansible_collections.egress.kvm2.plugins.module_utils._policy import mark, names, network_checks
from ansible_collections.egress.kvm2.plugins.module_utils._policy.domain_spec import console_log_path
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import PERMANENT
from ansible_collections.egress.kvm2.tests.unit.domains import UID, acts, domain
from ansible_collections.egress.kvm2.tests.unit.fake.hypervisor import FakeHypervisor
from ansible_collections.egress.kvm2.tests.unit.running import run_module

LOG = console_log_path("edge.one", UID)
ASKED = {
    "watchdog": "reset", "on_crash": "restart", "cpu_tuning": {"shares": 200, "quota": 50, "pin": "0,1"}, "io_tuning": {"total_iops": 100},
    "xml_extra": ["<sound model='ich9'/>"], "networks": [{"network": "default", "mtu": 1400, "nwfilter": "clean-traffic"}]}


def fields(result):
    return [(one["field"].split()[0], one["pending"]) for one in result.instances[0]["drift"]]


def test_what_is_asked_for_is_made_and_kept(hypervisor):
    predicted = domain(hypervisor, check=True, **ASKED)
    made = domain(hypervisor, **ASKED)
    assert not made.failed, made.msg
    assert acts(predicted) == acts(made) and made.instances[0]["drift"] == []
    assert mark.of_domain(hypervisor.domain(UID)).options == (
        f"watchdog cpu_shares cpu_quota cpu_pin io_tuning on_crash mtu nwfilter mtu/{names.mac_address(UID, 0)}")
    again = domain(hypervisor, **ASKED)
    assert not again.changed and again.instances[0]["drift"] == []


@pytest.mark.parametrize(("option", "found"), [
    ("watchdog", ["watchdog"]), ("on_crash", ["on_crash"]), ("cpu_tuning", ["cpu_pin", "cpu_quota", "cpu_shares"]), ("io_tuning", ["io_tuning"]),
    ("xml_extra", ["xml_extra"]), ("networks", ["interface"])])
def test_an_option_taken_out_is_drift_that_waits_for_a_restart_until_there_is_one(hypervisor, option, found):
    without = {name: value for name, value in ASKED.items() if name != option}
    domain(hypervisor, **ASKED)
    reported = domain(hypervisor, on_change="report", **without)
    assert not reported.changed and fields(reported) == [(field, False) for field in found]
    taken = domain(hypervisor, **without)
    assert acts(taken) == [("redefine", "domain")] and fields(taken) == [(field, True) for field in found]
    # The definition's mark knows nothing of it any more, and the guest still has it.
    again = domain(hypervisor, **without)
    assert not again.changed and fields(again) == [(field, True) for field in found]
    assert acts(domain(hypervisor, on_change="restart", **without)) == [("stop", "domain"), ("start", "domain")]
    settled = domain(hypervisor, on_change="restart", **without)
    assert not settled.changed and settled.instances[0]["drift"] == []


def given_by_the_network(hypervisor, element):
    """The running guest shows what its network gave it."""
    state = hypervisor.machine.domain_state("edge.one")
    assert "<source network" in state.live
    state.live = state.live.replace("<source network=", f"{element}<source network=", 1)


@pytest.mark.parametrize(("option", "element"), [({"vlan": 5}, "<vlan><tag id='7'/></vlan>"), ({"mtu": 1400}, "<mtu size='1300'/>")])
def test_a_vlan_or_mtu_taken_out_waits_for_a_restart_and_one_of_the_network_does_not(hypervisor, monkeypatch, option, element):
    monkeypatch.setattr(network_checks, "vlans", lambda *_arguments: ())
    domain(hypervisor, networks=[{"network": "default", **option}])
    for _run in range(2):
        taken = domain(hypervisor)
        assert fields(taken) == [("interface", True)]
    assert acts(domain(hypervisor, on_change="restart")) == [("stop", "domain"), ("start", "domain")]
    given_by_the_network(hypervisor, element)
    settled = domain(hypervisor, on_change="restart")
    assert not settled.changed and settled.instances[0]["drift"] == []


TWO = [{"network": "default"}, {"network": "default", "mac": "02:00:00:00:00:05"}]


@pytest.mark.parametrize(("asked", "without", "found"), [
    (ASKED, {}, {"watchdog", "on_crash", "cpu_pin", "cpu_quota", "cpu_shares", "io_tuning", "xml_extra", "interface"}), ({"networks": TWO}, {}, {"interface"})])
def test_a_hold_hides_nothing_that_waits_for_a_restart(hypervisor, asked, without, found):
    seed = {"network_config": "version: 2\n"}
    domain(hypervisor, **asked, **seed)
    domain(hypervisor, **without, **seed)
    for hold, act in (("forensics", "hold"), ("", "release")):
        done = domain(hypervisor, hold=hold, **without, **seed)
        assert acts(done) == [(act, "domain")] and {field for field, pending in fields(done) if pending} == found
        again = domain(hypervisor, **without, **seed)
        assert not again.changed and {field for field, pending in fields(again) if pending} == found == {field for field, _pending in fields(again)}
    assert acts(domain(hypervisor, on_change="restart", **without, **seed)) == [("stop", "domain"), ("start", "domain")]
    settled = domain(hypervisor, on_change="restart", **without, **seed)
    assert not settled.changed and settled.instances[0]["drift"] == []


def test_a_mac_taken_out_waits_for_a_restart_too(hypervisor):
    # The same seed whatever the interfaces are.
    seed = {"network_config": "version: 2\n"}
    domain(hypervisor, networks=TWO, **seed)
    assert acts(domain(hypervisor, **seed)) == [("redefine", "domain")]
    again = domain(hypervisor, **seed)
    assert not again.changed and fields(again) == [("interface", True)]
    assert acts(domain(hypervisor, on_change="restart", **seed)) == [("stop", "domain"), ("start", "domain")]


def test_an_upgrade_restarts_no_guest_and_leaves_what_is_by_hand(hypervisor):
    domain(hypervisor, console_log=False)
    _by_hand(hypervisor, "<on_crash>destroy<", "<on_crash>preserve<")
    _by_hand(hypervisor, "</interface>", "<mtu size='9000'/></interface>")
    upgraded = domain(hypervisor, on_change="restart")
    assert acts(upgraded) == [("redefine", "domain")] and upgraded.instances[0]["drift"] == []
    xml = hypervisor.domain(UID).xml
    assert LOG in xml and "<on_crash>preserve<" in xml and "9000" in xml
    again = domain(hypervisor, on_change="replace")
    assert not again.changed and again.instances[0]["drift"] == []


def _by_hand(hypervisor, old, new):
    state = hypervisor.machine.domains[UID]
    state.config, state.live = state.config.replace(old, new), state.live.replace(old, new)


EXTRA_MAC = "<interface type='network'><mac address='02:00:00:00:00:09'/><source network='default'/></interface>"


@pytest.mark.parametrize(("given", "part"), [
    ({"instances": [{"name": "one"}, {"name": "two"}], "xml_extra": [EXTRA_MAC]}, "both have the MAC address 02:00:00:00:00:09"),
    ({"networks": [{"network": "default", "mac": "02:00:00:00:00:09"}], "xml_extra": [EXTRA_MAC]}, "two interfaces have the same MAC"),
    ({"xml_extra": [EXTRA_MAC, EXTRA_MAC.replace("default", "other")]}, "two interfaces have the same MAC")])
def test_a_mac_is_there_once_wherever_it_is_given(hypervisor, given, part):
    failed = domain(hypervisor, **given)
    assert failed.failed and part in failed.msg and hypervisor.writes == []


def test_an_interface_that_moves_to_the_devices_as_xml_settles(hypervisor):
    seed = {"network_config": "version: 2\n", "on_change": "restart"}
    domain(hypervisor, networks=[{"network": "default"}, {"network": "default", "mac": "02:00:00:00:00:09"}], **seed)
    moved = domain(hypervisor, xml_extra=[EXTRA_MAC], **seed)
    assert acts(moved) == [("stop", "domain"), ("redefine", "domain"), ("start", "domain")]
    assert hypervisor.domain(UID).xml.count("02:00:00:00:00:09'") + hypervisor.domain(UID).xml.count('02:00:00:00:00:09"') == 1
    assert not domain(hypervisor, xml_extra=[EXTRA_MAC], **seed).changed


def test_one_instance_has_its_own(hypervisor):
    own = {"name": "one", "watchdog": "none", "console_log": False, "cpu_tuning": {"quota": 10}}
    made = domain(hypervisor, **{**ASKED, "instances": [own]})
    assert made.instances[0]["console_log"] is None
    assert mark.of_domain(hypervisor.domain(UID)).options == f"cpu_quota io_tuning on_crash mtu nwfilter mtu/{names.mac_address(UID, 0)}"


def test_what_was_chosen_is_in_the_result(hypervisor):
    predicted = domain(hypervisor, check=True, cpu_mode="host-passthrough").instances[0]
    made = domain(hypervisor, cpu_mode="host-passthrough").instances[0]
    for one in (predicted, made):
        # There is no processor to pass through under emulation.
        assert (one["virt_type"], one["cpu_mode"], one["console_log"]) == ("qemu", "maximum", LOG)
    assert (predicted["machine"], made["machine"]) == ("q35", "pc-q35-10.0")
    assert not domain(hypervisor, cpu_mode="host-passthrough").changed
    gone = domain(hypervisor, state="absent").instances[0]
    assert (gone["virt_type"], gone["machine"], gone["cpu_mode"], gone["console_log"]) == (None, None, None, None)


@pytest.mark.parametrize(("given", "shown"), [
    ({"on_change": "report", "console_log": True}, ("pc-q35-10.0", None)), ({"console_log": True}, ("pc-q35-10.0", LOG)),
    ({"machine": "q35", "console_log": False}, ("pc-q35-10.0", None)), ({"on_change": "restart", "memory": "256MiB"}, ("pc-q35-10.0", LOG)),
    ({"state": "absent"}, (None, None))])
def test_check_mode_shows_what_the_run_shows(hypervisor, given, shown):
    domain(hypervisor, console_log=False)
    predicted, done = domain(hypervisor, check=True, **given), domain(hypervisor, **given)
    assert not done.failed, done.msg
    for one in (predicted.instances[0], done.instances[0]):
        assert (one["machine"], one["console_log"]) == shown
    assert acts(predicted) == acts(done)


@pytest.mark.parametrize(("uri", "log"), [
    ("qemu:///system", LOG), ("qemu:///session", None), ("qemu+ssh://user@h/session?keyfile=/k", None), ("qemu+ssh://session/system", LOG)])
def test_the_daemon_of_a_user_logs_no_console(hypervisor, uri, log):
    made = domain(hypervisor, uri=uri, console_log=True)
    assert not made.failed and made.instances[0]["console_log"] == log
    assert not domain(hypervisor, uri=uri, console_log=True).changed


def test_with_kvm_the_processor_is_passed_through(hypervisor):
    hypervisor.machine.virt_types.insert(0, "kvm")
    hypervisor.machine.cpu_modes.append("host-passthrough")
    one = domain(hypervisor, cpu_mode="host-passthrough").instances[0]
    assert (one["virt_type"], one["cpu_mode"]) == ("kvm", "host-passthrough")


def test_a_host_without_q35_gets_what_it_has(hypervisor):
    del hypervisor.machine.machines["q35"]
    hypervisor.machine.virt_types.insert(0, "kvm")
    one = domain(hypervisor).instances[0]
    assert (one["virt_type"], one["machine"]) == ("kvm", "pc-i440fx-10.0")


@pytest.mark.parametrize(("given", "part"), [
    ({"networks": [{"network": "default", "nwfilter": "nowhere"}]}, "no network filter nowhere"), ({"watchdog": "none", "xml_extra": ["<a/>"]}, "xml_extra"),
    ({"io_tuning": {"read_bytes": "1"}}, "io_tuning.read_bytes of instance one"), ({"cpu_tuning": {"pin": "x"}}, "cpu_tuning.pin of instance one")])
def test_what_cannot_be_changes_nothing(hypervisor, given, part):
    failed = domain(hypervisor, **given)
    assert failed.failed and part in failed.msg and failed.error["kind"] == "permanent" and hypervisor.writes == []


def test_a_vlan_needs_a_bridge_that_keeps_vlans_apart(hypervisor, monkeypatch):
    monkeypatch.setattr(host_files, "bridges", lambda root="/": {"br0": True})
    hypervisor.machine.bridges.add("br0")
    for filters in (False, True):
        monkeypatch.setattr(host_files, "vlan_filtering", lambda root="/", filters=filters: {"br0": filters})
        hypervisor.forget_calls()
        done = domain(hypervisor, networks=[{"bridge": "br0", "vlan": 5}], state="defined")
        assert done.failed != filters and bool(hypervisor.writes) == filters
        if not filters:
            assert "br0 does not keep VLANs apart" in done.msg and "vlan_filtering 1" in done.msg and done.error["kind"] == PERMANENT


# -- the console's log

def test_the_log_goes_with_the_instance(hypervisor):
    domain(hypervisor)
    hypervisor.machine.consoles.update({LOG: b"words", "/var/log/libvirt/qemu/other.log": b"x"})
    would, gone = domain(hypervisor, check=True, state="absent"), domain(hypervisor, state="absent")
    assert would.actions[-1]["name"] == gone.actions[-1]["name"] == "edge.one (dropped: console log)"
    assert list(hypervisor.machine.consoles) == ["/var/log/libvirt/qemu/other.log"]


def test_the_collector_takes_the_log_along(hypervisor):
    domain(hypervisor)
    hypervisor.machine.consoles[LOG] = b"words"
    hypervisor.machine.advance(7200)
    gone = run_module("gc", hypervisor, fleet="edge", live=[], allow_empty_live=True, max_delete="100%")
    assert "edge.one (dropped: console log)" in [action["name"] for action in gone.actions] and hypervisor.machine.consoles == {}


def test_over_a_remote_connection_the_log_stays_and_is_named(hypervisor):
    remote = FakeHypervisor(hypervisor.machine)
    run_module("overlay", remote, fleet="edge", base=hypervisor.base, instances=[{"name": "one"}])
    domain(remote)
    remote.machine.consoles[LOG] = b"words"
    would, gone = domain(remote, check=True, state="absent"), domain(remote, state="absent")
    assert would.actions[-1]["name"] == gone.actions[-1]["name"] == f"edge.one (left on the hypervisor: {LOG})"
    assert LOG in remote.machine.consoles


def test_a_log_and_its_older_pieces_are_removed_and_nothing_else(tmp_path):
    path = tmp_path / "kvm2-edge.one-x.console"
    others = [tmp_path / name for name in ("kvm2-edge.one-x.console.old", "kvm2-edge.one-x.console.1.gz", "kvm2-edge.one-xxconsole", "edge.one.log")]
    for file in (path, tmp_path / f"{path.name}.0", tmp_path / f"{path.name}.12", *others):
        file.write_text("x", encoding="utf-8")
    assert console_log.remove(str(path)) and sorted(tmp_path.iterdir()) == sorted(others)
    assert not console_log.remove(str(path)) and not console_log.remove(str(tmp_path / "nowhere" / "x"))
    assert console_log.removable(str(tmp_path)) and not console_log.removable(str(tmp_path / "nowhere"))
