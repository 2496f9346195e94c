# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A connection that ends in the middle of the work, over libvirt's test driver: what goes on over another one, and what does not."""

from __future__ import annotations

import gc
import os
import tempfile
import threading
import time
from types import SimpleNamespace

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import ending, libvirt_connection, reopening
from ansible_collections.egress.kvm2.plugins.module_utils._host.deadline import Deadline
from ansible_collections.egress.kvm2.plugins.module_utils._host.libvirt_hypervisor import LibvirtHypervisor
from ansible_collections.egress.kvm2.plugins.module_utils._policy.connection_uri import Ssh, parse
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error

libvirt = libvirt_connection.libvirt
UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"
ERROR, EOF, KEEPALIVE = range(3)


@pytest.fixture(scope="module", autouse=True)
def once_in_a_process():
    """What libvirt opens with the first connection stays open."""
    deadline = Deadline(600, "test:///default", leave=lambda text: None)
    LibvirtHypervisor("test:///default", deadline).close()
    deadline.cancel()


@pytest.fixture(autouse=True)
def fresh_driver():
    """The test driver is one for all connections of the process: what a caught error of an earlier test still holds would keep its state."""
    gc.collect()


@pytest.fixture
def opened(monkeypatch):
    """What was opened."""
    uris, real = [], libvirt.open
    monkeypatch.setattr(libvirt, "open", lambda uri: uris.append(uri) or real(uri))
    return uris


@pytest.fixture
def hypervisor(opened):
    before = (set(threading.enumerate()), set(os.listdir("/proc/self/fd")), set(ending.children()))
    deadline = Deadline(600, "test:///default", leave=lambda text: None)
    hypervisor = LibvirtHypervisor("test:///default", deadline)
    yield hypervisor
    assert hypervisor.close() is True
    deadline.cancel()
    until = time.monotonic() + 20
    while (now := (set(threading.enumerate()), set(os.listdir("/proc/self/fd")), set(ending.children()))) and time.monotonic() < until:
        if not any(here - there for here, there in zip(now, before, strict=True)):
            break
        threading.Event().wait(0.01)
    assert not set().union(*(here - there for here, there in zip(now, before, strict=True)))


@pytest.fixture
def breaks(hypervisor, monkeypatch):
    """breaks(class, method, times, reason): the method's next calls end the connection; the list counts all calls."""
    def arrange(of, method, times, reason=EOF):
        real, calls = getattr(of, method), []

        def call(handle, *arguments):
            calls.append(method)
            if len(calls) > times:
                return real(handle, *arguments)
            end(hypervisor, reason)
            error = libvirt.libvirtError("x")
            error.err = (38, 7, "End of file while reading data: Input/output error", 2, "", None, None, -1, -1)
            raise error
        monkeypatch.setattr(of, method, call)
        return calls
    return arrange


def end(hypervisor, reason=EOF):
    libvirt_connection._note(None, reason, hypervisor._ended)


def lost(call, *arguments):
    with pytest.raises(Kvm2Error) as caught:
        call(*arguments)
    return caught.value


@pytest.mark.parametrize("reason", [EOF, ERROR])
def test_a_read_goes_on_over_another_connection(hypervisor, opened, breaks, reason):
    before = hypervisor._conn
    calls = breaks(libvirt.virStoragePool, "XMLDesc", 1, reason)
    assert [pool.name for pool in hypervisor.pools()] == ["default-pool"]
    assert len(opened) == 2 and len(calls) == 2 and hypervisor._conn is not before
    breaks(libvirt.virDomain, "XMLDesc", 1, reason)
    assert hypervisor.domain(UUID).name == "test" and len(opened) == 3


def test_the_bound_of_an_agent_is_set_over_another_connection(hypervisor, opened, breaks):
    calls = breaks(libvirt.virDomain, "agentSetResponseTimeout", 1)
    hypervisor.bound_agent(UUID, 5)
    assert len(calls) == 2 and len(opened) == 2


def test_a_change_is_never_repeated_and_what_follows_goes_on(hypervisor, opened, breaks):
    calls = breaks(libvirt.virDomain, "destroy", 1)
    error = lost(hypervisor.destroy, UUID)
    assert error.kind == "transient" and len(calls) == 1 and len(opened) == 1
    # Nothing was sent yet, so this is the first time.
    assert hypervisor.destroy(UUID) is True and len(calls) == 2 and len(opened) == 2


def test_it_is_opened_anew_a_few_times_and_no_more(hypervisor, opened, breaks):
    breaks(libvirt.virConnect, "listAllNetworks", 1000)
    error = lost(hypervisor.networks)
    assert error.kind == "transient" and "The connection was lost" in error.message and "End of file" in error.message
    assert len(opened) == 1 + libvirt_connection.REOPENINGS
    lost(hypervisor.networks)
    assert len(opened) == 1 + libvirt_connection.REOPENINGS


@pytest.mark.parametrize("reason", [KEEPALIVE, None])
def test_a_peer_that_went_silent_is_not_asked_again(hypervisor, opened, breaks, reason, monkeypatch):
    monkeypatch.setattr(reopening, "REASON", 0.01)
    breaks(libvirt.virConnect, "getInfo", 1000, reason)
    assert lost(hypervisor.host).kind == "transient"
    monkeypatch.setattr(reopening, "REASON", 60)
    began = time.monotonic()
    lost(hypervisor.host)
    assert len(opened) == 1 and time.monotonic() - began < 30


def test_after_the_time_is_over_nothing_is_opened(hypervisor, opened, breaks, monkeypatch):
    breaks(libvirt.virConnect, "getInfo", 1000)
    over = Kvm2Error("transient", "finish", "the work", "it is not done after 9 s", "Try again.")
    monkeypatch.setattr(hypervisor, "_deadline", SimpleNamespace(passed=over, cut=None))
    assert lost(hypervisor.host) is over
    assert len(opened) == 1
    monkeypatch.undo()


def test_where_nobody_answers_any_more_all_that_follows_fails_at_once(hypervisor, breaks, monkeypatch):
    breaks(libvirt.virConnect, "getInfo", 1)
    real, tried = libvirt.open, []
    monkeypatch.setattr(libvirt, "open", lambda uri: tried.append(uri) or real("qemu+unix:///system?socket=/no/such/socket"))
    monkeypatch.setattr(hypervisor, "_open_again", 0)
    error = lost(hypervisor.host)
    assert error.kind == "transient" and error.message.startswith("Failed to connect to hypervisor test:///default")
    for call in (hypervisor.host, hypervisor.pools, lambda: hypervisor.destroy(UUID), lambda: hypervisor.delete_volume("default-pool", "x")):
        assert lost(call) is error
    assert len(tried) == 1


def test_other_failures_are_told_as_they_are(hypervisor, opened, monkeypatch):
    def refuse(_handle):
        error = libvirt.libvirtError("x")
        error.err = (38, 7, "Input/output error", 2, "", None, None, -1, -1)
        raise error
    monkeypatch.setattr(libvirt.virConnect, "getInfo", refuse)
    assert lost(hypervisor.host).kind == "permanent" and len(opened) == 1


@pytest.fixture
def far(hypervisor, monkeypatch):
    """The hypervisor as one on another machine; the list is who answers there, from the connection that it has on."""
    answers = ["hv1"]
    monkeypatch.setattr(hypervisor, "is_local", lambda: False)
    monkeypatch.setattr(libvirt.virConnect, "getHostname", lambda _handle: answers[-1])
    hypervisor._machine = hypervisor._hostname()
    return answers


@pytest.mark.parametrize("call", [
    lambda hypervisor: hypervisor.destroy(UUID), lambda hypervisor: hypervisor.domain(UUID), lambda hypervisor: hypervisor.pools(),
    lambda hypervisor: list(hypervisor.download("default-pool", "x", 0, 1))])
def test_nothing_goes_on_on_another_machine_of_the_same_name(hypervisor, opened, breaks, far, call):
    calls = breaks(libvirt.virDomain, "destroy", 0)
    far.append("hv2.example.com")
    end(hypervisor)
    error = lost(call, hypervisor)
    assert error.kind == "transient" and "hv1 " in error.message and "hv2.example.com" in error.message and "test:///default" in error.message
    far.append("hv1")
    assert lost(hypervisor.destroy, UUID) is error and calls == [] and len(opened) == 2


@pytest.mark.parametrize(("now", "same"), [
    ("hv1", True), ("hv1.example.com", True), ("HV1", True), ("hv10", False), ("hv2", False), ("hv", False), ("", False)])
def test_a_machine_is_told_by_its_hostname_with_a_domain_or_without(now, same):
    assert reopening.are_of_one_machine("hv1", now) is reopening.are_of_one_machine(now, "hv1") is same
    assert not reopening.are_of_one_machine("hv1.example.com", "hv1.example.net")


def test_the_same_machine_goes_on_with_changes(hypervisor, opened, far):
    far.append("hv1.example.com")
    end(hypervisor)
    assert hypervisor.destroy(UUID) is True and len(opened) == 2


def test_where_the_hostname_is_not_told_nothing_goes_on(hypervisor, breaks, far):
    destroyed = breaks(libvirt.virDomain, "destroy", 0)
    end(hypervisor)
    breaks(libvirt.virConnect, "getHostname", 1)
    error = lost(hypervisor.destroy, UUID)
    assert error.kind == "transient" and error.message.startswith("Failed to read the hostname of hypervisor test:///default")
    assert lost(hypervisor.destroy, UUID) is error and destroyed == []


@pytest.mark.parametrize(("local", "asked"), [(True, 0), (False, 1)])
def test_the_hostname_is_asked_once_and_only_of_another_machine(monkeypatch, local, asked):
    names, real = [], libvirt.virConnect.getHostname
    monkeypatch.setattr(libvirt.virConnect, "getHostname", lambda handle: names.append(real(handle)) or names[-1])
    monkeypatch.setattr(LibvirtHypervisor, "is_local", lambda _self: local)
    deadline = Deadline(600, "test:///default", leave=lambda text: None)
    hypervisor = LibvirtHypervisor("test:///default", deadline)
    hypervisor.pools(), hypervisor.destroy(UUID)
    hypervisor.close()
    deadline.cancel()
    assert len(names) == asked


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_whatever_ends_the_reopening_is_told_by_what_follows(hypervisor, monkeypatch, fault):
    def fail(*_arguments):
        raise fault
    monkeypatch.setattr(libvirt, "open", fail)
    end(hypervisor)
    with pytest.raises(type(fault)):
        hypervisor.pools()
    assert hypervisor._is_lost()
    for call in (hypervisor.pools, lambda: hypervisor.destroy(UUID), lambda: hypervisor.delete_volume("default-pool", "x")):
        error = lost(call)
        assert error.kind == "transient" and (str(fault) or type(fault).__name__) in error.message


def test_no_room_for_the_program_that_runs_ssh_passes(hypervisor, opened, monkeypatch):
    def full(**_how):
        raise OSError(28, "No space left on device", "/tmp/egress-kvm2-x")
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    monkeypatch.setattr(hypervisor, "_parsed", parse("qemu+ssh://root@hv1/system"))
    monkeypatch.setattr(hypervisor, "_ssh", Ssh("/known"))
    end(hypervisor)
    error = lost(hypervisor.pools)
    assert error.kind == "transient" and "No space left on device" in error.message and "TMPDIR" in error.message and "qemu+ssh" in error.message
    assert lost(hypervisor.destroy, UUID) is error and len(opened) == 1


class Stream:
    """A stream of libvirt that gives what was asked for; `ends` is called at each step of it."""

    def __init__(self, ends):
        self.left, self.ends = b"", ends

    def recv(self, size):
        self.ends("recv")
        size = min(size, 1000)
        block, self.left = self.left[:size], self.left[size:]
        return block

    def finish(self):
        self.ends("finish")

    def abort(self):
        """The daemon is not there any more."""


@pytest.fixture
def stored(hypervisor, monkeypatch):
    """stored(data, after): a volume's content; after so many further steps of its streams the connection ends. Returns what was asked for."""
    def arrange(data, *after, step="recv"):
        asked, left = [], list(after)

        def ends(now):
            if now == step and left:
                left[0] -= 1
                if left[0] < 0:
                    left.pop(0)
                    end(hypervisor)
                    error = libvirt.libvirtError("x")
                    error.err = (38, 7, "End of file while reading data: Input/output error", 2, "", None, None, -1, -1)
                    raise error

        def download(stream, offset, length, _flags):
            asked.append((offset, length))
            stream.left = data[offset:offset + length]
        monkeypatch.setattr(libvirt.virConnect, "newStream", lambda _handle, _flags: Stream(ends))
        # The test driver has no streams, and forgets its volumes together with the connection.
        monkeypatch.setattr(hypervisor, "_the_volume", lambda pool, name, act: SimpleNamespace(download=download))
        return asked
    return arrange


DATA = bytes(range(256)) * 20


def test_a_download_goes_on_where_it_was(hypervisor, opened, stored):
    asked = stored(DATA, 2, 1)
    assert b"".join(hypervisor.download("p", "v", 7, 4500)) == DATA[7:4507]
    assert asked == [(7, 4500), (2007, 2500), (3007, 1500)] and len(opened) == 3
    # A file that ends before.
    asked = stored(DATA, 4)
    assert b"".join(hypervisor.download("p", "v", 0, 10000)) == DATA and asked == [(0, 10000), (4000, 6000)]


def test_a_download_that_has_everything_asks_for_nothing_more(hypervisor, opened, stored):
    asked = stored(DATA, 0, step="finish")
    assert b"".join(hypervisor.download("p", "v", 0, 3000)) == DATA[:3000] and asked == [(0, 3000)] and len(opened) == 2


def test_a_download_that_is_lost_too_often_fails(hypervisor, opened, stored):
    stored(DATA, *[1] * 10)
    error = lost(lambda: b"".join(hypervisor.download("p", "v", 0, 5000)))
    assert error.kind == "transient" and "The connection was lost" in error.message and len(opened) == 1 + libvirt_connection.REOPENINGS


def test_a_download_that_is_left_early_ends_its_stream(hypervisor, opened, stored, monkeypatch):
    stored(DATA)
    aborted = []
    monkeypatch.setattr(Stream, "abort", lambda stream: aborted.append(len(stream.left)))
    blocks = hypervisor.download("p", "v", 0, 5000)
    next(blocks)
    blocks.close()
    assert aborted == [4000] and len(opened) == 1


def test_two_threads_reopen_it_once(hypervisor, opened, monkeypatch):
    end(hypervisor)
    waiting, go, real, found = threading.Event(), threading.Event(), libvirt.open, []

    def slow(uri):
        waiting.set()
        go.wait(60)
        return real(uri)
    monkeypatch.setattr(libvirt, "open", slow)
    first = threading.Thread(target=lambda: found.append(hypervisor.revive()))
    first.start()
    assert waiting.wait(60)
    second = threading.Thread(target=lambda: found.append(hypervisor.revive()))
    second.start()
    go.set()
    first.join(60), second.join(60)
    assert found == [True, False] and len(opened) == 1 + 1
