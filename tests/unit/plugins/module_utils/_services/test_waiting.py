# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import host_files
from ansible_collections.egress.kvm2.plugins.module_utils._policy import names
from ansible_collections.egress.kvm2.plugins.module_utils._policy.domain_spec import console_log_path
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error
from ansible_collections.egress.kvm2.tests.unit.domains import POOL, UID, acts, domain, overlay
from ansible_collections.egress.kvm2.tests.unit.fake.machine import Guest

OTHER = "52:54:00:99:99:99"
LOG = console_log_path("edge.one", UID)
BRIDGED = [{"bridge": "br0"}]


def guest(hypervisor, **given):
    hypervisor.machine.guest = Guest(**given)


def wait_for(what, **given):
    return {"for": what, "timeout": "3s", **given}


def logged(hypervisor, content):
    """What the log of the guest's console holds, None where it cannot be read."""
    hypervisor.machine.consoles.pop(LOG, None)
    if content is not None:
        hypervisor.machine.consoles[LOG] = content


@pytest.mark.parametrize(("given", "networks", "source", "family", "found", "by"), [
    ({"addresses": ("10.0.0.1",)}, None, "auto", "ipv4", "10.0.0.1", "lease"),
    ({"addresses": ("10.0.0.1",), "polls": 4}, None, "lease", "ipv4", "10.0.0.1", "lease"),
    # No lease, as with an address of its own: the agent tells.
    ({"agent": ((None, "10.0.0.2"),)}, None, "auto", "ipv4", "10.0.0.2", "agent"),
    ({"agent": ((None, "127.0.0.1"), (None, "fe80::1"), (OTHER, "10.0.0.8"), (None, "10.0.0.2"))}, None, "agent", "ipv4", "10.0.0.2", "agent"),
    ({"arp": ((OTHER, "10.0.0.8"), (None, "10.0.0.3"))}, BRIDGED, "auto", "ipv4", "10.0.0.3", "arp"),
    ({"arp": ((None, "10.0.0.3"),), "agent": ((None, "10.0.0.2"),)}, BRIDGED, "auto", "ipv4", "10.0.0.2", "agent"),
    # The lease is of the other family, so the next source is asked.
    ({"addresses": ("10.0.0.1",), "agent": ((None, "fd00::2"),)}, None, "auto", "ipv6", "fd00::2", "agent"),
])
def test_an_address(hypervisor, monkeypatch, given, networks, source, family, found, by):
    guest(hypervisor, **given)
    hypervisor.machine.bridges.add("br0")
    # The bridges of a local hypervisor are read from its kernel.
    monkeypatch.setattr(host_files, "bridges", lambda root="/": {"br0": True})
    options = {"networks": networks} if networks else {}
    done = domain(hypervisor, wait=wait_for("address", source=source, family=family), **options)
    assert not done.failed, done.msg
    one = done.instances[0]
    assert one["primary_address"] == found and one["state"] == "running"
    assert {entry["source"] for entry in one["addresses"] if entry["address"] == found} == {by}
    assert {entry["mac"] for entry in one["addresses"]} == {names.mac_address(UID, 0)}


@pytest.mark.parametrize(("given", "family", "seen"), [
    ({"addresses": ("169.254.7.7",)}, "ipv4", "lease: 169.254.7.7; agent: it does not answer"),
    ({"agent": ((None, "127.0.0.1"),)}, "ipv4", "lease: none; agent: 127.0.0.1"),
    ({"agent": ((None, "fe80::1"),)}, "ipv6", "lease: none; agent: fe80::1"),
    ({"agent": ((OTHER, "10.0.0.8"),)}, "ipv4", "lease: none; agent: none"),
    ({"addresses": ("10.0.0.1",)}, "ipv6", "lease: 10.0.0.1; agent: it does not answer"),
])
def test_no_address_in_time_says_what_was_seen(hypervisor, given, family, seen):
    guest(hypervisor, **given)
    failed = domain(hypervisor, wait=wait_for("address", family=family))
    assert failed.error["kind"] == "transient" and failed.changed
    text = {"ipv4": "IPv4", "ipv6": "IPv6"}[family]
    assert f"not there with an {text} address within 3 s; its state is running (booted)" in failed.msg
    assert f"{names.mac_address(UID, 0)}: {seen}." in failed.msg and "The guest was left as it is." in failed.msg
    assert hypervisor.domain(UID).active
    assert failed.instances[0]["primary_address"] is None


def test_a_source_that_libvirt_cannot_read_is_told_as_such(hypervisor):
    guest(hypervisor, unreadable={"arp": "internal error: wrong nlmsg len"})
    failed = domain(hypervisor, wait=wait_for("address", source="arp"))
    assert f"{names.mac_address(UID, 0)}: arp: libvirt cannot tell (internal error: wrong nlmsg len); its agent" in failed.msg


# -- leases of an earlier life

LEASED = (names.mac_address(UID, 0), "10.0.0.1")


def leased(hypervisor, until=1000):
    """Guests have an address at once: the lease that the one before has left, until it is renewed."""
    guest(hypervisor, addresses=("10.0.0.1",))
    hypervisor.machine.leases = {LEASED: until, (OTHER, "10.0.0.8"): 1000}


def renew(hypervisor, nth):
    """The guest asks for its lease before that question for its addresses."""
    hypervisor.hook("addresses", lambda *_args: hypervisor.machine.leases.update({LEASED: 2000}), nth=nth)


@pytest.mark.parametrize("before", ["absent", "defined", "crashed"])
def test_a_lease_from_before_the_start_counts_once_it_is_renewed(hypervisor, before):
    leased(hypervisor)
    if before != "absent":
        domain(hypervisor, state="defined" if before == "defined" else "running", wait={"for": "none"})
    if before == "crashed":
        hypervisor.machine.domain_state("edge.one").state = "crashed"
    failed = domain(hypervisor, wait=wait_for("address"))
    assert "lease: 10.0.0.1 (of before its start); agent: it does not answer" in failed.msg
    assert failed.instances[0]["state"] == "provisioning" and failed.instances[0]["addresses"] == []
    domain(hypervisor, state="stopped")
    renew(hypervisor, 3)
    done = domain(hypervisor, wait=wait_for("address"))
    assert not done.failed, done.msg
    assert done.instances[0]["primary_address"] == "10.0.0.1" and done.instances[0]["state"] == "running"


def test_another_source_counts_beside_a_lease_from_before_the_start(hypervisor):
    leased(hypervisor)
    hypervisor.machine.guest.agent = ((None, "10.0.0.2"),)
    done = domain(hypervisor, wait=wait_for("address"))
    assert not done.failed, done.msg
    assert done.instances[0]["primary_address"] == "10.0.0.2" and [entry["source"] for entry in done.instances[0]["addresses"]] == ["agent"]


def test_a_guest_that_was_not_waited_for_has_no_address_of_its_earlier_life(hypervisor):
    leased(hypervisor)
    made = domain(hypervisor, wait={"for": "running"})
    assert made.instances[0]["state"] == "provisioning" and made.instances[0]["primary_address"] is None


@pytest.mark.parametrize("how", ["restart", "replace"])
def test_a_lease_of_before_a_restart_counts_once_it_is_renewed(hypervisor, how):
    leased(hypervisor)
    domain(hypervisor, wait={"for": "none"})
    failed = domain(hypervisor, user_data="#!other", on_change=how, wait=wait_for("address"))
    assert "(of before its start)" in failed.msg
    renew(hypervisor, 3)
    assert not domain(hypervisor, user_data="#!third", on_change=how, wait=wait_for("address")).failed


def test_a_lease_without_end_counts(hypervisor):
    leased(hypervisor, 0)
    assert not domain(hypervisor, wait=wait_for("address")).failed


@pytest.mark.parametrize("how", ["runs", "paused", "saved"])
def test_a_guest_that_goes_on_has_the_address_that_it_had(hypervisor, how):
    leased(hypervisor)
    domain(hypervisor, wait={"for": "none"})
    if how == "paused":
        hypervisor.machine.pause("edge.one")
    if how == "saved":
        hypervisor.machine.save("edge.one")
    done = domain(hypervisor, wait=wait_for("address"))
    assert not done.failed, done.msg
    assert done.instances[0]["primary_address"] == "10.0.0.1"


def test_the_agent(hypervisor):
    failed = domain(hypervisor, wait=wait_for("agent", source="lease"))
    assert "its agent does not answer" in failed.msg and failed.error["kind"] == "transient"
    hypervisor.machine.domain_state("edge.one").guest.agent = ()
    # One that reports no interface is there all the same.
    assert not domain(hypervisor, wait=wait_for("agent")).failed


def bounds(hypervisor):
    return [call.args for call in hypervisor.calls if call.operation == "bound_agent"]


@pytest.mark.parametrize(("wait", "given", "times"), [
    ({"for": "running"}, {}, 0), ({"for": "address", "source": "lease"}, {"addresses": ("10.0.0.1",)}, 0),
    ({"for": "address"}, {"addresses": ("10.0.0.1",)}, 1), ({"for": "agent"}, {"agent": ()}, 1),
    # In vain, so its addresses are asked for once more.
    ({"for": "address"}, {}, 2)])
def test_an_agent_is_bounded_only_while_it_is_waited_for(hypervisor, wait, given, times):
    guest(hypervisor, **given)
    domain(hypervisor, wait=wait_for(wait["for"], source=wait.get("source", "auto")))
    assert bounds(hypervisor) == [(UID, 5), (UID, -2)] * times


def test_the_bound_of_an_agent_is_taken_back_where_the_wait_fails(hypervisor):
    guest(hypervisor)

    def broken(*_args):
        raise Kvm2Error("transient", "read", "it", "the connection was lost", "Run again.")
    domain(hypervisor, wait={"for": "none"})
    hypervisor.hook("addresses", broken, nth=3)
    assert domain(hypervisor, wait=wait_for("address", source="agent")).failed
    assert bounds(hypervisor) == [(UID, 5), (UID, -2)]


@pytest.fixture
def two(hypervisor):
    overlay(hypervisor, instances=[{"name": "two"}])
    return hypervisor


def test_all_wait_together_with_one_deadline(two):
    guest(two)
    both = [{"name": "one"}, {"name": "two"}]
    failed = domain(two, instances=both, wait=wait_for("address", source="lease"))
    assert [error["item"] for error in failed.errors] == ["one", "two"] and failed.error["kind"] == "transient"
    # Looked at each half second of the same three.
    assert sum(call == ("addresses", (UID, "lease")) for call in two.calls) <= 3 / 0.5 + 4
    two.machine.domain_state("edge.two").guest.addresses = ("10.0.0.2",)
    failed = domain(two, instances=both, wait=wait_for("address", source="lease"))
    assert [error["item"] for error in failed.errors] == ["one"] and [one["state"] for one in failed.instances] == ["provisioning", "running"]


def test_the_last_lines_of_the_console_are_told(hypervisor):
    guest(hypervisor)
    domain(hypervisor)
    logged(hypervisor, b"".join(b"\x1b[32mline %d\x1b[0m\r\n" % number for number in range(30)))
    failed = domain(hypervisor, wait=wait_for("address"))
    assert failed.msg.endswith(f"The last lines of its console ({LOG}):\n" + "\n".join(f"line {number}" for number in range(10, 30)))


@pytest.mark.parametrize(("content", "says"), [
    (b"", f"It has written nothing to its console ({LOG})."),
    (None, f"Its console is logged to {LOG} on the hypervisor, which cannot be read from here.")])
def test_a_console_that_tells_nothing(hypervisor, content, says):
    guest(hypervisor)
    domain(hypervisor)
    logged(hypervisor, content)
    assert domain(hypervisor, wait=wait_for("address")).msg.endswith(says)


def test_a_guest_that_ends_meanwhile_is_not_waited_for(two):
    guest(two, addresses=("10.0.0.1",), polls=10)
    domain(two, instances=[{"name": "one"}, {"name": "two"}], wait={"for": "none"})
    logged(two, b"Kernel panic - not syncing\n")
    state = two.machine.domain_state("edge.one")
    two.hook("addresses", lambda *_args: state.active and two.machine.power_off(state, "crashed"), nth=4)
    failed = domain(two, instances=[{"name": "one"}, {"name": "two"}], wait=wait_for("address", timeout="20s"))
    assert [error["item"] for error in failed.errors] == ["one"]
    assert "it is shutoff (crashed)" in failed.msg and failed.msg.endswith("Kernel panic - not syncing") and failed.error["kind"] == "transient"
    assert failed.instances[1]["state"] == "running"


def test_a_guest_that_goes_meanwhile(hypervisor):
    guest(hypervisor)
    domain(hypervisor, wait={"for": "none"})

    def remove(*_args):
        hypervisor.machine.domains.pop(UID, None)
    hypervisor.hook("addresses", remove, nth=3)
    failed = domain(hypervisor, wait=wait_for("address"))
    assert failed.error["kind"] == "conflict" and "it has gone" in failed.msg


@pytest.mark.parametrize(("reason", "fails"), [
    ("dump", False), ("snapshot", False), ("migration", False), ("starting up", False), ("user", True), ("ioerror", True), ("watchdog", True),
    ("crashed", True)])
def test_a_guest_that_is_paused_meanwhile(hypervisor, reason, fails):
    guest(hypervisor, addresses=("10.0.0.1",), polls=6)
    domain(hypervisor, wait={"for": "none"})
    machine = hypervisor.machine
    hypervisor.hook("addresses", lambda *_args: machine.pause("edge.one", reason), nth=3)
    hypervisor.hook("addresses", lambda *_args: setattr(machine.domain_state("edge.one"), "state", "running"), nth=5)
    done = domain(hypervisor, wait=wait_for("address", source="lease", timeout="20s"))
    assert done.failed == fails
    if fails:
        assert f"it is paused ({reason})" in done.msg and done.error["kind"] == ("quota" if reason == "ioerror" else "transient")


def test_a_guest_that_is_paused_again_after_it_was_resumed(hypervisor):
    domain(hypervisor)
    hypervisor.machine.pause("edge.one", "ioerror")

    def pause_later(*_args):
        hypervisor.hook("addresses", lambda *_args: hypervisor.machine.pause("edge.one", "ioerror"), nth=1)
    hypervisor.hook("resume", pause_later, when="after")
    failed = domain(hypervisor, wait=wait_for("address"))
    assert acts(failed) == [("resume", "domain")] and failed.error["kind"] == "quota" and failed.instances[0]["state"] == "paused"


@pytest.mark.parametrize("on_change", ["report", "redefine"])
def test_a_full_disk_is_told_where_the_power_state_is_left_alone(hypervisor, on_change):
    domain(hypervisor)
    hypervisor.machine.pause("edge.one", "ioerror")
    told = domain(hypervisor, state="defined", on_change=on_change)
    assert not told.failed and not told.changed and (told.instances[0]["state"], told.instances[0]["reason"]) == ("paused", "ioerror")
    assert any("edge.one is paused by an I/O error" in warning and "free space" in warning for warning in told.warnings)


def test_waiting_for_nothing_waits_for_nothing(hypervisor):
    guest(hypervisor)
    done = domain(hypervisor, wait={"for": "none"})
    assert not done.failed and done.instances[0]["state"] == "provisioning"
    assert not any(call.operation == "bound_agent" for call in hypervisor.calls)


def test_check_mode_never_touches_an_agent(hypervisor):
    domain(hypervisor)
    hypervisor.forget_calls()
    domain(hypervisor, check=True, wait=wait_for("agent"))
    assert not any(call.operation == "bound_agent" for call in hypervisor.calls) and f"{POOL}/" in hypervisor.domain(UID).xml
