# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A connection that ends in the middle of the work, over libvirt's test driver: what goes on over another one, and what does not."""

from __future__ import annotations

import os
import threading
import time
from types import SimpleNamespace

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import ending, libvirt_connection, reopening
from ansible_collections.egress.kvm2.plugins.module_utils._host.deadline import Deadline
from ansible_collections.egress.kvm2.plugins.module_utils._host.libvirt_hypervisor import LibvirtHypervisor
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error

libvirt = libvirt_connection.libvirt
UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"
ERROR, EOF, KEEPALIVE = range(3)


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
