# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real libvirt client against peers that misbehave, which run in a process of their own, and against libvirt's test driver."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import ending, libvirt_connection, libvirt_domains, libvirt_hypervisor, storage
from ansible_collections.egress.kvm2.plugins.module_utils._host.deadline import Deadline
from ansible_collections.egress.kvm2.plugins.module_utils._host.libvirt_connection import Connection
from ansible_collections.egress.kvm2.plugins.module_utils._host.libvirt_hypervisor import LibvirtHypervisor
from ansible_collections.egress.kvm2.plugins.module_utils._policy.connection_uri import Ssh
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error

PEERS = r"""
import socket, sys, threading
REPLIES = {"closes": b"", "garbage": b"\0\0\0\x1c" + b"x" * 24, "short": b"\0\0\0\4", "http": b"HTTP/1.1 400 Bad Request\r\n\r\n", "silent": None}
held = []
def serve(listener, reply):
    while True:
        peer, _address = listener.accept()
        if reply is None:
            held.append(peer)
            continue
        try:
            peer.recv(4)
            peer.sendall(reply)
            peer.recv(4096)
        except OSError:
            pass
        peer.close()
ports = []
for reply in REPLIES.values():
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    ports.append(str(listener.getsockname()[1]))
    threading.Thread(target=serve, args=(listener, reply), daemon=True).start()
closed = socket.create_server(("127.0.0.1", 0))
ports.append(str(closed.getsockname()[1]))
closed.close()
print(" ".join(ports), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def ports():
    with subprocess.Popen([sys.executable, "-c", PEERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peers:
        numbers = peers.stdout.readline().split()
        yield dict(zip(("closes", "garbage", "short", "http", "silent", "port closed"), numbers, strict=True))
        peers.stdin.close()


@pytest.fixture
def deadline():
    deadline = Deadline(600, "qemu:///test", leave=lambda text: None)
    yield deadline
    deadline.cancel()


def state():
    return set(threading.enumerate()), set(os.listdir("/proc/self/fd")), set(ending.children())


def left_since(before):
    """What is there and was not before, given a moment: what has ended is reaped by others. Threads of other tests may end meanwhile."""
    until = time.monotonic() + 20
    while any(left := [now - then for now, then in zip(state(), before, strict=True)]) and time.monotonic() < until:
        threading.Event().wait(0.01)
    return set().union(*left)


def refused(deadline, uri, **how):
    with pytest.raises(Kvm2Error) as caught:
        Connection(uri, deadline, open_again=0, **how)
    return caught.value.kind, caught.value.message


@pytest.mark.parametrize("peer, kind, said", [
    ("closes", "transient", "libvirtd-tcp.socket"), ("garbage", "permanent", "no libvirt daemon"), ("short", "transient", "libvirtd-tcp.socket"),
    ("http", "permanent", "no libvirt daemon"), ("port closed", "transient", "Connection refused")])
def test_many_opens_against_peers_that_fail_fast_leave_nothing(deadline, ports, peer, kind, said):
    uri = f"qemu+tcp://127.0.0.1:{ports[peer]}/system"
    refused(deadline, uri)
    before = state()
    for _time in range(50):
        found, message = refused(deadline, uri)
        assert found == kind and said in message and f"connect to hypervisor {uri}" in message
    assert not left_since(before)


def test_a_silent_peer_is_given_up_within_its_time_and_leaves_nothing(deadline, ports):
    uri = f"qemu+tcp://127.0.0.1:{ports['silent']}/system"
    refused(deadline, uri, connect_timeout=0.1)
    before = state()
    for _time in range(3):
        began = time.monotonic()
        kind, message = refused(deadline, uri, connect_timeout=0.3)
        assert kind == "transient" and "no answer within 0.3 s" in message and uri in message
        assert time.monotonic() - began < 30
    assert not left_since(before)
    assert deadline.passed is None


def program(tmp_path, text):
    path = tmp_path / "ssh"
    path.write_text("#!/bin/sh\n" + text, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("said, kind, hint", [
    ("Host key verification failed.", "permanent", "ssh_known_hosts"), ("root@h: Permission denied (publickey).", "permanent", "keyfile")])
def test_what_ssh_says_is_told(deadline, tmp_path, said, kind, hint):
    uri = f"qemu+ssh://root@h/system?command={program(tmp_path, f'exec 1>&-; echo {said!r} >&2; sleep 0.2; exit 255')}"
    before = state()
    found, message = refused(deadline, uri)
    assert found == kind and hint in message and said.rstrip(".") in message
    assert not left_since(before)


def test_an_ssh_that_hangs_is_ended_with_what_it_started(deadline, tmp_path):
    uri = f"qemu+ssh://root@h/system?command={program(tmp_path, f'sleep 600 & echo $! >{tmp_path}/pid; wait')}"
    before = state()
    kind, message = refused(deadline, uri, connect_timeout=2)
    assert kind == "transient" and "no answer within 2 s" in message
    assert not left_since(before)
    pid = int((tmp_path / "pid").read_text())
    until = time.monotonic() + 20
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until and "Z" not in open(f"/proc/{pid}/stat").read().rpartition(")")[2][:3]:
        threading.Event().wait(0.01)
    assert not os.path.exists(f"/proc/{pid}") or open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "Z"


def test_ssh_is_run_with_the_known_hosts_and_the_jump_host(deadline, tmp_path, monkeypatch):
    program(tmp_path, f"printf '%s\\n' \"$@\" >{tmp_path}/given; echo 'Host key verification failed.' >&2; sleep 0.2; exit 255")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    kind, _message = refused(deadline, "qemu+ssh://root@hv1/system", ssh=Ssh("/k", "bastion"))
    given = (tmp_path / "given").read_text(encoding="utf-8")
    assert kind == "permanent" and 'UserKnownHostsFile="/k"' in given and "bastion" in given and "hv1" in given and "BatchMode=yes" in given


def test_a_daemon_that_comes_back_is_tried_again_and_nothing_else(deadline, monkeypatch):
    opened, real = [], libvirt_connection.libvirt.open

    def busy(uri):
        opened.append(uri)
        return real("qemu+unix:///system?socket=/no/such/socket" if len(opened) < 3 else "test:///default")
    monkeypatch.setattr(libvirt_connection.libvirt, "open", busy)
    Connection("qemu:///system", deadline, open_again=60).close()
    assert len(opened) == 3
    opened.clear()
    monkeypatch.setattr(libvirt_connection.libvirt, "open", lambda uri: opened.append(uri) or real("qemu+smoke://h/system"))
    with pytest.raises(Kvm2Error):
        Connection("qemu:///system", deadline, open_again=60)
    assert len(opened) == 1


def test_a_service_that_opens_and_closes_many_times_leaves_nothing(deadline):
    def use():
        hypervisor = LibvirtHypervisor("test:///default", deadline)
        try:
            domain = hypervisor._conn.lookupByName("test")
            assert hypervisor._call("read", "read", "domain test", domain.info)
        finally:
            del domain
            assert hypervisor.close() is True
    use()
    before = state()
    for _time in range(50):
        use()
    assert not left_since(before)


def test_a_pool_on_dead_storage_is_not_refreshed(deadline, monkeypatch):
    hypervisor = LibvirtHypervisor("test:///default", deadline)
    looked_at = []
    monkeypatch.setattr(libvirt_hypervisor.filesystem, "statistics", looked_at.append)
    hypervisor.refresh_pool("default-pool")
    assert looked_at == [hypervisor.pool("default-pool").path]

    def dead(path):
        raise storage.stopped(path, "look at", "no answer within 20 s")
    monkeypatch.setattr(libvirt_hypervisor.filesystem, "statistics", dead)
    monkeypatch.setattr(libvirt_connection.libvirt.virStoragePool, "refresh", lambda *_arguments: looked_at.append("refreshed"))
    with pytest.raises(Kvm2Error, match="no answer within 20 s"):
        hypervisor.refresh_pool("default-pool")
    assert len(looked_at) == 1
    hypervisor.close()


@pytest.mark.parametrize(("states", "called", "left"), [((3,), ["resume"], 0), ((7, 7, 7, 1), ["wake"], 0), ((7,) * 1000, ["wake"], 900)])
def test_a_guest_that_sleeps_is_woken_and_given_a_moment(deadline, monkeypatch, states, called, left):
    hypervisor = LibvirtHypervisor("test:///default", deadline)
    uuid, found, seen = hypervisor.domain_by_name("test").uuid, iter(states), []
    monkeypatch.setattr(libvirt_domains, "_LOOK", 0.001)
    monkeypatch.setattr(libvirt_domains, "_WAKE", 5.0 if left == 0 else 0.05)
    virtual = libvirt_connection.libvirt.virDomain
    monkeypatch.setattr(virtual, "state", lambda *_arguments: [next(found), 0])
    monkeypatch.setattr(virtual, "pMWakeup", lambda *_arguments: seen.append("wake"))
    monkeypatch.setattr(virtual, "resume", lambda *_arguments: seen.append("resume"))
    hypervisor.resume(uuid)
    assert seen == called and len(list(found)) >= left
    hypervisor.close()


def test_one_that_runs_by_itself_meanwhile_is_resumed(deadline):
    hypervisor = LibvirtHypervisor("test:///default", deadline)
    uuid = hypervisor.domain_by_name("test").uuid
    # What libvirt refuses: it was paused when it was looked at, as it is for a moment while it is started.
    with pytest.raises(libvirt_connection.libvirt.libvirtError):
        hypervisor._conn.lookupByUUIDString(uuid).resume()
    hypervisor.resume(uuid)
    assert hypervisor.domain(uuid).state == "running"
    hypervisor.destroy(uuid)
    with pytest.raises(Kvm2Error, match="Failed to resume domain test"):
        hypervisor.resume(uuid)
    hypervisor.close()


def test_the_bound_of_an_agent_is_taken_back_where_the_work_has_to_end(deadline, monkeypatch):
    ended, seen = [], []

    def step():
        if ended:
            raise Kvm2Error("transient", "work", "it", "its time is over", "Run again.")
    hypervisor = LibvirtHypervisor("test:///default", deadline, step=step)
    uuid = hypervisor.domain_by_name("test").uuid
    monkeypatch.setattr(libvirt_connection.libvirt.virDomain, "agentSetResponseTimeout", lambda _handle, seconds: seen.append(seconds))
    ended.append(True)
    hypervisor.bound_agent(uuid, -2)
    hypervisor.bound_agent("00000000-0000-4000-8000-000000000000", -2)
    assert seen == [-2]
    hypervisor.close()


def refusing(code):
    error = libvirt_connection.libvirt.libvirtError("x")
    error.err = (code, 0, "refused", 2, "refused", None, None, -1, -1)
    return error


CONFIG, LIVE, NO_DOMAIN, OPERATION_INVALID = 2, 1, 42, 55


@pytest.mark.parametrize(("persistent", "active", "answers", "written", "outcome"), [
    # Stopped between the look and the write; then it has its definition only.
    ([1, 1, 1], [1, 0, 0], [OPERATION_INVALID, None], [CONFIG | LIVE, CONFIG], True),
    # Started between the two: its own copy lacks the mark until it is written as well.
    ([1, 1, 1, 1], [0, 1, 1, 1], [None, None], [CONFIG, CONFIG | LIVE], True),
    # Undefined meanwhile, and running on.
    ([1, 0, 0], [1, 1, 1], [OPERATION_INVALID, None], [CONFIG | LIVE, LIVE], True),
    ([1, NO_DOMAIN], [0], [NO_DOMAIN], [CONFIG], False),
    ([0], [0], [], [], False),
    ([1] * 20, [1, 0] * 10, [OPERATION_INVALID] * 10, None, "transient"),
    ([1] * 20, [0, 1] * 10, [None] * 10, [CONFIG] * 10, "transient")])
def test_a_mark_is_written_to_what_is_there_while_others_start_and_stop_it(deadline, monkeypatch, persistent, active, answers, written, outcome):
    hypervisor = LibvirtHypervisor("test:///default", deadline)
    uuid, seen, virtual = hypervisor.domain_by_name("test").uuid, [], libvirt_connection.libvirt.virDomain

    def answering(answers):
        answers = iter(answers)

        def answer(_handle, *arguments):
            if arguments:
                seen.append(arguments[-1])
            found = next(answers)
            if found in (NO_DOMAIN, OPERATION_INVALID):
                raise refusing(found)
            return found
        return answer
    for method, its in (("isPersistent", persistent), ("isActive", active), ("setMetadata", answers)):
        monkeypatch.setattr(virtual, method, answering(its))
    if outcome in (True, False):
        assert hypervisor.set_metadata(uuid, "x", "urn:x", "<a/>") is outcome
    else:
        with pytest.raises(Kvm2Error) as caught:
            hypervisor.set_metadata(uuid, "x", "urn:x", "<a/>")
        assert caught.value.kind == outcome and "domain test" in caught.value.message
    assert written is None or seen == written
    monkeypatch.undo()
    hypervisor.close()


@pytest.mark.parametrize(("call", "method", "look", "left", "outcome"), [
    ("undefine", "undefineFlags", "isPersistent", [1, 0], False), ("undefine", "undefineFlags", "isPersistent", [1, 1], "conflict"),
    ("drop_managed_save", "managedSaveRemove", "hasManagedSaveImage", [1, 0], False),
    ("drop_managed_save", "managedSaveRemove", "hasManagedSaveImage", [1, 1], "conflict")])
def test_what_somebody_else_did_already_is_no_failure(deadline, monkeypatch, call, method, look, left, outcome):
    hypervisor = LibvirtHypervisor("test:///default", deadline)
    uuid, left, virtual = hypervisor.domain_by_name("test").uuid, iter(left), libvirt_connection.libvirt.virDomain

    def refuse(*_arguments):
        raise refusing(OPERATION_INVALID)
    monkeypatch.setattr(virtual, method, refuse)
    monkeypatch.setattr(virtual, look, lambda *_arguments: next(left))
    if outcome is False:
        assert getattr(hypervisor, call)(uuid) is False
    else:
        with pytest.raises(Kvm2Error) as caught:
            getattr(hypervisor, call)(uuid)
        assert caught.value.kind == outcome
    monkeypatch.undo()
    hypervisor.close()


@pytest.fixture
def connection(deadline):
    connection = Connection("test:///default", deadline)
    yield connection
    connection.close()


def failing(times, code, text):
    """A call that fails so often with that error of libvirt, and then answers."""
    left = [times]

    def call():
        left[0] -= 1
        if left[0] < 0:
            return "done"
        error = libvirt_connection.libvirt.libvirtError("x")
        error.err = (code, 0, text, 2, text, None, None, -1, -1)
        raise error
    call.left = left
    return call


def test_a_passing_condition_is_waited_for(connection, monkeypatch):
    monkeypatch.setattr(libvirt_connection, "FIRST_PAUSE", 0.001)
    busy = (1, "internal error: pool 'default' has asynchronous jobs running.")
    assert connection._call("refresh", "refresh", "pool default", failing(3, *busy)) == "done"
    for_ever = failing(10 ** 6, *busy)
    with pytest.raises(Kvm2Error, match="asynchronous jobs"):
        connection._call("refresh", "refresh", "pool default", for_ever)
    assert 10 ** 6 - for_ever.left[0] == libvirt_connection.RETRIES


def test_nothing_else_is_repeated(connection):
    once = failing(1, 38, "Cannot recv data: Connection reset by peer")
    with pytest.raises(Kvm2Error):
        connection._call("define", "define", "domain x", once)
    assert once.left == [0]


def test_a_lost_connection_is_told_by_its_state_and_not_by_the_code(connection):
    with pytest.raises(Kvm2Error) as caught:
        connection._call("define", "define", "domain x", failing(1, 1, "internal error: client socket is closed"))
    assert caught.value.kind == "permanent"
    connection._ended.set()
    with pytest.raises(Kvm2Error) as caught:
        connection._call("define", "define", "domain x", failing(1, 1, "internal error: client socket is closed"))
    assert caught.value.kind == "transient" and "The connection was lost" in caught.value.message and "on test:///default" in caught.value.message


def test_a_close_that_hangs_is_cut_and_said(connection, monkeypatch):
    monkeypatch.setattr(libvirt_connection, "CLOSE", 0.1)
    freed, cut = threading.Event(), []
    monkeypatch.setattr(connection, "_close", lambda conn: freed.wait(60))
    monkeypatch.setattr(connection._line, "cut", lambda: cut.append("cut"))
    assert connection.close() is False and cut == ["cut"]
    freed.set()
    monkeypatch.undo()
    assert connection.close() is True


def test_leases_of_all_networks_are_told_by_mac_and_address(deadline, monkeypatch):
    hypervisor = LibvirtHypervisor("test:///default", deadline)
    # The test driver has networks without leases.
    assert hypervisor.leases() == {}
    told = [
        {"mac": "52:54:00:AA:00:01", "ipaddr": "192.0.2.7", "expirytime": 1700000000, "prefix": 24},
        {"mac": "52:54:00:aa:00:01", "ipaddr": "2001:db8::7", "expirytime": 0, "prefix": 64}]
    monkeypatch.setattr(libvirt_connection.libvirt.virNetwork, "DHCPLeases", lambda *_arguments: told)
    assert hypervisor.leases() == {("52:54:00:aa:00:01", "192.0.2.7"): 1700000000, ("52:54:00:aa:00:01", "2001:db8::7"): 0}

    def without_driver(*_arguments):
        raise refusing(libvirt_domains.classify.NO_SUPPORT)
    monkeypatch.setattr(libvirt_connection.libvirt.virConnect, "listAllNetworks", without_driver)
    assert hypervisor.leases() == {}
    hypervisor.close()


class EventLoop:
    """libvirt's event loop as far as it matters here: what was closed or removed is let go of in a round in which no timer is due."""

    libvirtError = RuntimeError

    def __init__(self):
        self.timers, self.removed, self._changed = {}, [], threading.Condition()

    def virEventRegisterDefaultImpl(self):
        """Nothing to do."""

    def registerErrorHandler(self, _handler, _context):
        """Nothing to do."""

    def virEventAddTimeout(self, timeout, callback, _opaque):
        with self._changed:
            number = max(self.timers, default=0) + 1
            self.timers[number] = (timeout, callback)
            self._changed.notify()
            return number

    def virEventUpdateTimeout(self, number, timeout):
        with self._changed:
            self.timers[number] = (timeout, self.timers[number][1])

    def virEventRemoveTimeout(self, number):
        with self._changed:
            del self.timers[number]
            self.removed.append(number)
            self._changed.notify()

    def virEventRunDefaultImpl(self):
        with self._changed:
            assert self._changed.wait_for(lambda: self.removed or self._due(), 60)
            due = self._due()
            if not due:
                self.removed.clear()
        for number, callback in due:
            callback(number, None)

    def _due(self):
        return [(number, callback) for number, (timeout, callback) in self.timers.items() if timeout == 0]


def test_what_was_closed_is_let_go_of_before_the_loop_ends(monkeypatch):
    libvirt = EventLoop()
    monkeypatch.setattr(libvirt_connection, "libvirt", libvirt)
    loop = libvirt_connection._EventLoop.join()
    libvirt.removed.append("a connection")
    loop.leave()
    assert "a connection" not in libvirt.removed
