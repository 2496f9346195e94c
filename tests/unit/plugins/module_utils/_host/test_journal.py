# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines in the system log: their form, that they never fail a step, and that every destructive step of the libvirt layer gives one."""

from __future__ import annotations

import os
import socket
import time

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import journal, libvirt_domains, libvirt_hypervisor, libvirt_storage


@pytest.fixture
def log(tmp_path):
    """A log that is listened on; log.lines() gives what has come."""
    class Log(socket.socket):
        path = str(tmp_path / "log")

        def lines(self):
            found = []
            try:
                while True:
                    found.append(self.recv(65536).decode())
            except BlockingIOError:
                return found

    with Log(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(Log.path)
        listening.setblocking(False)
        yield listening


def test_a_line_says_what_for_whom_and_why(log):
    journal.Journal("kvm2_gc", "root from 192.0.2.1", log.path).note("deleted volume a.qcow2 in pool default", "no domain\nuses it")
    assert log.lines() == [f"<13>kvm2_gc[{os.getpid()}]: deleted volume a.qcow2 in pool default, for root from 192.0.2.1: no domain uses it"]


def test_what_is_not_ascii_or_too_long_arrives(log):
    journal.Journal("kvm2_gc", "root", log.path).note("gelöscht " + "x" * 20000)
    (line,) = log.lines()
    assert "gelöscht" in line
    assert len(line.encode()) == 8000


def test_a_missing_log_is_no_failure(tmp_path):
    journal.Journal("kvm2_gc", "root", str(tmp_path / "none")).note("deleted")


def test_a_log_that_takes_nothing_holds_nobody_up(log, monkeypatch):
    monkeypatch.setattr(journal, "_PATIENCE", 0.05)
    notes = journal.Journal("kvm2_gc", "root", log.path)
    began = time.monotonic()
    for number in range(40):
        if time.monotonic() - began > 20:
            break
        notes.note(f"deleted {number}" + "x" * 7000)
    assert time.monotonic() - began < 20
    assert log.lines()


@pytest.mark.parametrize(("environment", "text"), [
    ({}, "root"), ({"SUDO_USER": "root"}, "root"), ({"SUDO_USER": "eve"}, "root (by eve)"),
    ({"SUDO_USER": "eve", "SSH_CONNECTION": "192.0.2.1 4000 192.0.2.2 22"}, "root (by eve) from 192.0.2.1")])
def test_who(environment, text):
    assert journal.who(environment, 0) == text


def test_a_user_without_a_name_is_told_by_number():
    assert journal.who({}, 987654321) == "uid 987654321"


class Noted:
    def __init__(self):
        self.lines = []

    def note(self, what, why):
        self.lines.append((what, why))


class Handle:
    @staticmethod
    def name():
        return "edge.a"


@pytest.mark.parametrize(("operation", "arguments", "owner", "what"), [
    ("delete_volume", ("default", "a.qcow2"), libvirt_storage.StorageCalls, "deleted volume a.qcow2 in pool default on qemu:///system"),
    ("destroy", ("1-2",), libvirt_domains.DomainCalls, "destroyed domain edge.a (1-2) on qemu:///system"),
    ("undefine", ("1-2",), libvirt_domains.DomainCalls, "undefined domain edge.a (1-2) on qemu:///system"),
    ("drop_managed_save", ("1-2",), libvirt_domains.DomainCalls, "dropped the managed save of domain edge.a (1-2) on qemu:///system")])
@pytest.mark.parametrize("done", [True, False])
def test_each_destructive_step_is_told_once_it_is_done(monkeypatch, operation, arguments, owner, what, done):
    hypervisor = object.__new__(libvirt_hypervisor.LibvirtHypervisor)
    hypervisor.uri, hypervisor._journal = "qemu:///system", Noted()
    monkeypatch.setattr(owner, operation, lambda *args: done)
    monkeypatch.setattr(libvirt_domains.DomainCalls, "_domain", lambda *args: Handle)
    monkeypatch.setattr(hypervisor, "revive", lambda: False)
    hypervisor.why = "state absent was asked for"
    with hypervisor.because("it is old"), hypervisor.because(""):
        assert getattr(hypervisor, operation)(*arguments) is done
    assert getattr(hypervisor, operation)(*arguments) is done
    assert hypervisor._journal.lines == ([(what, "it is old"), (what, "state absent was asked for")] if done else [])
