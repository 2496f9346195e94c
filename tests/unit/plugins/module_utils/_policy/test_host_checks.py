# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each check of the hypervisor as a whole, where it passes and where it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._policy import checks, host_checks, packages
from ansible_collections.egress.kvm2.plugins.module_utils._policy.host_state import GuestsService, Kvm, Library, Limits, Node, Runtime, User
from ansible_collections.egress.kvm2.plugins.module_utils._policy.model import HostFacts

QEMU = User(64055, 64055, frozenset((993, 64055)), "libvirt-qemu")
DEVICE = Node("/dev/kvm", 0, 993, 0o660)
LIMITS = Limits("libvirtd", "virt-admin", "/etc/libvirt/libvirtd.conf", 5000, 3, 20, 0)
RUNTIME = Runtime("/usr/bin/python3", "3.13.5", ("debian",), (Library("libvirt", "11.3.0"), Library("lxml", ""), Library("pycdlib", "1.12.0")))
NOW = 1_800_000_000.0


def only(found):
    """The one Check, which is complete: it says what to do unless nothing is to be done."""
    (check,) = found if not isinstance(found, checks.Check) else (found,)
    assert check.message.endswith(".") and (bool(check.hint) or check.status in ("ok", "skipped"))
    return check


@pytest.mark.parametrize("libvirt, qemu, statuses", [
    (9_000_000, 7_002_000, ["ok", "ok"]), (8_999_999, 7_002_000, ["warn", "ok"]), (11_003_000, 7_001_999, ["ok", "warn"])])
def test_versions(libvirt, qemu, statuses):
    found = list(host_checks.versions(HostFacts("hv1", "x86_64", 8, 1, libvirt, qemu)))
    assert [check.status for check in found] == statuses
    assert host_checks.version(libvirt) in found[0].message and host_checks.version(qemu) in found[1].message
    assert host_checks.version(10_000_013) == "10.0.13"


def test_libraries():
    assert only(host_checks.libraries(RUNTIME, True)).message == "/usr/bin/python3 (Python 3.13.5) has libvirt 11.3.0, lxml, pycdlib 1.12.0."
    lacking = replace(RUNTIME, libraries=(*RUNTIME.libraries[:2], Library("pycdlib", None)))
    for makes_instances, status in ((True, "fail"), (False, "warn")):
        check = only(host_checks.libraries(lacking, makes_instances))
        assert check.status == status and "lacks pycdlib" in check.message
        assert check.hint == "Install what is missing for /usr/bin/python3: apt-get install python3-pycdlib."


@pytest.mark.parametrize("families, command", [
    (("debian",), "apt-get install python3-libvirt python3-lxml"), (("ubuntu", "debian"), "apt-get install python3-libvirt python3-lxml"),
    (("rocky", "rhel", "centos", "fedora"), "dnf install python3-libvirt python3-lxml"),
    (("opensuse-leap", "suse", "opensuse"), "zypper install python3-libvirt-python python3-lxml"),
    (("arch",), "pacman -S libvirt-python python-lxml"), ((), "apt-get install python3-libvirt python3-lxml")])
def test_packages(families, command):
    assert packages.install(("libvirt", "lxml"), families) == command


@pytest.mark.parametrize("interpreter", ["/root/venv/bin/python", "/opt/python3.12/bin/python3.12", "/usr/local/bin/python3"])
def test_another_interpreter_than_the_system_s_is_named(interpreter):
    hint = packages.library_hint(("libvirt",), interpreter, ("debian",))
    assert "ansible_python_interpreter" in hint and interpreter in hint and "apt-get install python3-libvirt" in hint


@pytest.mark.parametrize("state, wanted, status, words", [
    (Kvm(DEVICE), "kvm", "ok", "answers"), (Kvm(DEVICE), "auto", "ok", "answers"),
    (Kvm(None, flags=frozenset(("svm",))), "kvm", "fail", "modprobe kvm_amd"), (Kvm(None, flags=frozenset(("vmx",))), "auto", "warn", "modprobe kvm_intel"),
    (Kvm(None), "kvm", "fail", "neither vmx nor svm"), (Kvm(DEVICE, "it cannot be opened: Permission denied"), "auto", "warn", "Permission denied"),
    (Kvm(replace(DEVICE, mode=0o600)), "kvm", "fail", "usermod -aG kvm libvirt-qemu"), (Kvm(replace(DEVICE, gid=1)), "kvm", "fail", "group 1"),
    (Kvm(replace(DEVICE, mode=0o600, acl=True)), "kvm", "ok", "answers"), (None, "kvm", "skipped", "this connection")])
def test_kvm(state, wanted, status, words):
    check = only(host_checks.kvm(state, QEMU, wanted))
    assert check.status == status and words in f"{check.message} {check.hint}"


def test_kvm_is_no_matter_where_it_is_not_wanted():
    """Without KVM, auto is told by the check of virt_type already."""
    for state, wanted in ((Kvm(None), "qemu"), (Kvm(None), None), (Kvm(None), "auto")):
        assert list(host_checks.kvm(state, QEMU, wanted)) == []


@pytest.mark.parametrize("change, status, words", [
    ({}, "ok", "5000 clients and has 3; 20 may wait for their authentication and 0 do (by virt-admin)"),
    ({"clients": 3999}, "ok", "3999"), ({"clients": 4000}, "warn", "Raise max_clients in /etc/libvirt/libvirtd.conf"),
    ({"unauthenticated": 16}, "warn", "max_anonymous_clients"), ({"max_clients": 9, "clients": None}, "warn", "systemctl restart libvirtd"),
    ({"clients": None, "unauthenticated": None, "source": "/etc/libvirt/libvirtd.conf"}, "ok", "5000 clients; 20 may")])
def test_limits(change, status, words):
    check = only(host_checks.limits(replace(LIMITS, **change)))
    assert check.status == status and words in f"{check.message} {check.hint}"


def test_limits_that_cannot_be_told():
    assert host_checks.limits(None).status == "skipped"


@pytest.mark.parametrize("enabled, on_boot, on_shutdown, status, words", [
    (True, "ignore", "shutdown", "ok", "ON_BOOT=ignore"), (False, "start", "suspend", "ok", "does not run"),
    (True, "start", "shutdown", "warn", "Set ON_BOOT=ignore in /etc/default/libvirt-guests"),
    (True, "ignore", "suspend", "warn", "Set ON_SHUTDOWN=shutdown in"),
    (True, "start", "suspend", "warn", "Set ON_BOOT=ignore and ON_SHUTDOWN=shutdown in")])
def test_what_happens_at_boot(enabled, on_boot, on_shutdown, status, words):
    check = only(host_checks.guests_service(GuestsService(enabled, on_boot, on_shutdown, "/etc/default/libvirt-guests")))
    assert check.status == status and words in f"{check.message} {check.hint}"
    assert host_checks.guests_service(None).status == "skipped"


@pytest.mark.parametrize("here, controller, local, newest, status, words", [
    (NOW, NOW - 3, True, NOW - 9, "ok", "3 s ahead"), (NOW, NOW + 60, True, None, "ok", "60 s behind"), (NOW, NOW + 61, True, None, "warn", "61 s behind"),
    (NOW, NOW - 61, True, None, "warn", "61 s ahead"), (NOW, None, True, NOW + 60, "skipped", "controller_time is not given"),
    (NOW, NOW, True, NOW + 61, "warn", "61 s after"), (NOW, NOW, False, NOW + 61, "warn", "machine that runs the module"),
    (NOW, NOW - 999, False, NOW, "skipped", "this connection")])
def test_clocks(here, controller, local, newest, status, words):
    check = only(host_checks.clocks(here, controller, local, newest, 60))
    assert check.status == status and words in check.message


def test_the_table_lines_up():
    found = (checks.Check("a", "ok", "Fine."), checks.Check("network x", "skipped", "Unseen."), checks.Check("b", "fail", "Bad.", "Mend it."))
    assert checks.table(found) == [
        "OK       a          Fine.", "SKIPPED  network x  Unseen.", "FAIL     b          Bad.", "                    -> Mend it."]
    assert checks.table(()) == []
