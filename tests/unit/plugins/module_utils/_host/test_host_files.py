# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small reads of a machine, from folders that look like one."""

from __future__ import annotations

import os
import pwd

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import daemon_limits, filesystem, host_files, python_libraries
from ansible_collections.egress.kvm2.plugins.module_utils._policy.host_state import GuestsService, Kvm, Limits, User

ANSWER = "nclients_max        : 5000\nnclients            : 7\nnclients_unauth_max : 20\nnclients_unauth     : 1\n\n"


@pytest.fixture
def machine(tmp_path):
    """put(path, text) makes a file below a folder that stands for /; machine.root is that folder."""
    def put(path, text=""):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file
    put.root = str(tmp_path)
    return put


def test_settings_as_a_shell_reads_them():
    text = "# ON_BOOT=no\nON_BOOT=ignore\n ON_SHUTDOWN = \"shutdown\" # words\nURIS='default qemu:///x'\nEMPTY=\nmax_clients = 50#x\nnot a setting\n"
    assert host_files.settings(text) == {
        "ON_BOOT": "ignore", "ON_SHUTDOWN": "shutdown", "URIS": "default qemu:///x", "EMPTY": "", "max_clients": "50"}
    assert host_files.settings(None) == {}


def test_neighbours_whose_hardware_address_is_known(machine):
    machine("proc/net/arp", """IP address       HW type     Flags       HW address            Mask     Device
10.89.36.1       0x1         0x2         26:C7:87:ff:cb:e4     *        eth0
192.168.122.7    0x1         0x6         52:54:00:12:34:56     *        virbr0
192.168.122.8    0x1         0x0         00:00:00:00:00:00     *        virbr0
192.168.122.9    0x1         0x2         52:54:00:12:34:56     *        virbr0
""")
    assert host_files.neighbours(machine.root) == {"26:c7:87:ff:cb:e4": ["10.89.36.1"], "52:54:00:12:34:56": ["192.168.122.7", "192.168.122.9"]}
    assert host_files.neighbours(f"{machine.root}/nowhere") == {}


def test_bridges_and_whether_they_are_up(machine):
    for name, flags in (("br0", "0x1003"), ("br1", "0x1002"), ("eth0", "0x1003")):
        machine(f"sys/class/net/{name}/flags", flags + "\n")
    for name in ("br0", "br1", "br2"):
        machine(f"sys/class/net/{name}/bridge/ageing_time", "1")
    assert host_files.bridges(machine.root) == {"br0": True, "br1": False, "br2": True}
    assert host_files.bridges(machine.root + "/none") == {}


def test_bridges_that_filter_vlans(machine):
    for name, text in (("br0", "1\n"), ("br1", "0\n")):
        machine(f"sys/class/net/{name}/bridge/vlan_filtering", text)
    # As on a kernel that cannot.
    machine("sys/class/net/br2/bridge/ageing_time", "1")
    assert host_files.vlan_filtering(machine.root) == {"br0": True, "br1": False, "br2": False}


def test_no_kvm(machine):
    machine("proc/cpuinfo", "flags : fpu vme svm lm\nflags : fpu svm\nmodel name : no vmx2 here\n")
    assert host_files.kvm(machine.root) == Kvm(None, "", frozenset(("svm",)))


def test_a_device_that_is_not_kvm(machine):
    machine("dev/kvm", "a plain file")
    found = host_files.kvm(machine.root)
    assert found.node.path == f"{machine.root}/dev/kvm" and "does not answer" in found.problem


def test_kvm_answers(machine, monkeypatch):
    machine("dev/kvm")
    monkeypatch.setattr(host_files.fcntl, "ioctl", lambda descriptor, request: {host_files.KVM_GET_API_VERSION: 12}[request])
    assert host_files.kvm(machine.root).problem == ""
    monkeypatch.setattr(host_files.fcntl, "ioctl", lambda descriptor, request: 11)
    assert "version 11" in host_files.kvm(machine.root).problem


def test_folders_down_to_the_pool_and_through_symlinks(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "real" / "pool").mkdir(mode=0o711)
    (tmp_path / "link").symlink_to("real")
    found = {node.path: node for node in host_files.folders(str(tmp_path / "link" / "pool"))}
    assert found["/"].uid == os.stat("/").st_uid
    assert {str(tmp_path / name) for name in ("link", "real", "link/pool", "real/pool")} <= set(found)
    assert (found[str(tmp_path / "link")].mode, found[str(tmp_path / "real/pool")].mode) == (0o700, 0o711)
    assert not found[str(tmp_path / "real")].acl
    assert host_files.folders(str(tmp_path / "none"))[-1].path == str(tmp_path)


def test_users():
    found = host_files.user(0, 0)
    assert (found.uid, found.name) == (0, pwd.getpwuid(0).pw_name) and 0 in found.groups
    assert host_files.user(4_000_000_000, 7) == User(4_000_000_000, 7)


def test_what_libvirt_guests_does(machine):
    unset = host_files.guests_service(machine.root)
    assert unset == GuestsService(False, "start", "suspend", "/etc/default/libvirt-guests")
    machine("usr/lib/libvirt/libvirt-guests.sh", "ON_BOOT=\"ignore\"\nON_SHUTDOWN=\"shutdown\"\n")
    (machine("etc/systemd/system/multi-user.target.wants/other")).with_name("libvirt-guests.service").symlink_to("/nowhere")
    assert host_files.guests_service(machine.root) == GuestsService(True, "ignore", "shutdown", "/etc/default/libvirt-guests")
    machine("etc/sysconfig/libvirt-guests", "#ON_SHUTDOWN=none\nON_BOOT=start\n")
    assert host_files.guests_service(machine.root) == GuestsService(True, "start", "shutdown", "/etc/sysconfig/libvirt-guests")


def test_memory(machine):
    assert host_files.memory_available(machine.root) is None
    machine("proc/meminfo", "MemTotal:       24683868 kB\nMemAvailable:   23871234 kB\n")
    assert host_files.memory_available(machine.root) == 23871234 * 1024


def test_all_of_it_on_this_machine(tmp_path):
    found = host_files.look(str(tmp_path), (0, 0))
    assert found.folders[-1].path == os.path.realpath(tmp_path) and found.user.uid == 0 and found.memory_available > 0
    assert host_files.look(None, None).folders == ()


def test_the_room_of_a_filesystem(tmp_path):
    stat, found = os.statvfs(tmp_path), filesystem.statistics(str(tmp_path))
    assert found.capacity == stat.f_blocks * stat.f_frsize and found.available <= found.free <= found.capacity
    assert filesystem.statistics(str(tmp_path / "none")) is None
    (tmp_path / "folder").mkdir()
    assert filesystem.same(str(tmp_path), str(tmp_path / "folder"))
    assert not filesystem.same(str(tmp_path), "/proc") and not filesystem.same(str(tmp_path), str(tmp_path / "none"))


def test_a_filesystem_that_counts_no_inodes(monkeypatch):
    monkeypatch.setattr(filesystem.storage, "touch", lambda name, path: (1024, 100, 90, 80, 0, 0))
    assert filesystem.statistics("/x") == filesystem.Filesystem(102400, 92160, 81920, None, None)


def test_libraries_of_this_python(machine, monkeypatch):
    found = {library.name: library.version for library in python_libraries.runtime().libraries}
    assert set(found) == {"libvirt", "lxml", "pycdlib"} and found["lxml"][0].isdigit()
    monkeypatch.setitem(python_libraries.LIBRARIES, "no_such_library", "no-such-library")
    monkeypatch.setitem(python_libraries.LIBRARIES, "json", "not-registered")
    found = {library.name: library.version for library in python_libraries.runtime(machine.root).libraries}
    assert (found["no_such_library"], found["json"]) == (None, "")


def test_families_of_distributions(machine):
    assert python_libraries.families(machine.root) == ()
    machine("etc/os-release", 'NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos fedora"\n')
    assert python_libraries.families(machine.root) == ("rocky", "rhel", "centos", "fedora")
    machine("etc/os-release", "ID=debian\n")
    assert python_libraries.families(machine.root) == ("debian",)


# -- the daemon's limits

def test_limits_from_the_admin_socket(machine):
    asked = []

    def run(command, handle_exceptions):
        asked.append(command)
        return 0, ANSWER, ""
    assert daemon_limits.limits(run, machine.root) is None and asked == []
    machine("run/libvirt/libvirt-sock")
    assert daemon_limits.limits(run, machine.root) == Limits("libvirtd", "virt-admin", "/etc/libvirt/libvirtd.conf", 5000, 7, 20, 1)
    assert asked[-1][-3:] == ["libvirtd:///system", "srv-clients-info", "libvirtd"]
    machine("run/libvirt/virtqemud-sock")
    assert daemon_limits.limits(run, machine.root).daemon == "virtqemud"


@pytest.mark.parametrize("answer", [(1, "", "error: no access"), (0, "gibberish", ""), OSError("no such program")])
def test_limits_from_the_settings(machine, answer):
    def run(command, handle_exceptions):
        if isinstance(answer, OSError):
            raise answer
        return answer
    machine("run/libvirt/libvirt-sock")
    assert daemon_limits.limits(run, machine.root) is None
    file = machine("etc/libvirt/libvirtd.conf", "#max_clients = 9\nmax_clients = 40\n#max_anonymous_clients = 20\nlog_level = 3\n")
    assert daemon_limits.limits(run, machine.root) == Limits("libvirtd", "/etc/libvirt/libvirtd.conf", "/etc/libvirt/libvirtd.conf", 40, None, 20, None)
    file.write_text("")
    assert daemon_limits.limits(None, machine.root).max_clients == 5000
