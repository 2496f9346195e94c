# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module that runs on the hypervisor reads there besides libvirt: small files, devices and modes. Nothing is opened for writing.

Each function takes the folder that stands for / as `root`, so that tests can show it another machine.
"""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
import re

from .._policy.host_state import GuestsService, HostState, Kvm, User
from .._policy.model import Node
from . import storage, storage_worker

KVM_GET_API_VERSION, KVM_API_VERSION = 0xAE00, 12
_IFF_UP = 1
# A neighbour whose hardware address is known.
_ATF_COM = 2
_GUESTS_SETTINGS = ("etc/default/libvirt-guests", "etc/sysconfig/libvirt-guests", "etc/conf.d/libvirt-guests")
_GUESTS_SCRIPTS = ("usr/lib/libvirt/libvirt-guests.sh", "usr/libexec/libvirt-guests.sh", "usr/lib64/libvirt/libvirt-guests.sh")


def look(pool_path, qemu_ids, root="/"):
    """The HostState. pool_path: the pool's folder or None.  qemu_ids: (uid, gid) that QEMU runs with, or None."""
    return HostState(
        bridges=bridges(root), kvm=kvm(root), folders=folders(pool_path) if pool_path else (), user=user(*qemu_ids) if qemu_ids else None,
        guests=guests_service(root), memory_available=memory_available(root), selinux_enforcing=read(root, "sys/fs/selinux/enforce") == "1")


def read(root, path):
    """The text of a small file without blanks around it, None where it cannot be read."""
    try:
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20).strip()
    except OSError:
        return None


def settings(text):
    """{name: value} of a file of NAME=value lines, as a shell or a daemon reads it; comments and quotes are taken off."""
    found = {}
    for line in (text or "").splitlines():
        match = re.match(r"""\s*([A-Za-z_]+)\s*=\s*("[^"]*"|'[^']*'|[^\s#]*)""", line)
        if match is not None:
            found[match[1]] = match[2].strip("\"'")
    return found


def bridges(root="/"):
    """{name: is it up} of the network bridges of this machine."""
    folder, found = os.path.join(root, "sys/class/net"), {}
    try:
        names = os.listdir(folder)
    except OSError:
        return found
    for name in sorted(names):
        if os.path.isdir(os.path.join(folder, name, "bridge")):
            flags = read(root, f"sys/class/net/{name}/flags")
            found[name] = bool(int(flags, 16) & _IFF_UP) if flags else True
    return found


def vlan_filtering(root="/"):
    """{name: does it filter VLANs} of the network bridges of this machine. A kernel that cannot has no such setting."""
    return {name: read(root, f"sys/class/net/{name}/bridge/vlan_filtering") == "1" for name in bridges(root)}


def neighbours(root="/"):
    """{MAC address in lower case: its IPv4 addresses} of this machine's neighbour table, without those that do not answer."""
    found = {}
    for line in (read(root, "proc/net/arp") or "").splitlines()[1:]:
        fields = line.split()
        if len(fields) >= 4 and int(fields[2], 16) & _ATF_COM:
            found.setdefault(fields[3].lower(), []).append(fields[0])
    return found


def kvm(root="/"):
    path = os.path.join(root, "dev/kvm")
    flags = frozenset(re.findall(r"\b(vmx|svm)\b", read(root, "proc/cpuinfo") or ""))
    try:
        device = node(path)
    except OSError:
        return Kvm(None, flags=flags)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        return Kvm(device, f"it cannot be opened: {error.strerror}", flags)
    try:
        answer = fcntl.ioctl(descriptor, KVM_GET_API_VERSION)
        return Kvm(device, "" if answer == KVM_API_VERSION else f"it speaks version {answer} of its interface", flags)
    except OSError as error:
        return Kvm(device, f"it does not answer: {error.strerror}", flags)
    finally:
        os.close(descriptor)


def node(path):
    """host_state.Node of a device. Raises OSError where it cannot be seen."""
    return Node(*storage_worker.node(path))


def folders(path):
    """host_state.Nodes of a folder and of all above it, from / down, those that a symlink leads through included."""
    above = {}
    for start in (os.path.abspath(path), storage.touch("realpath", path)):
        parts = start.split(os.sep)
        above.update(dict.fromkeys(os.sep.join(parts[:length]) or os.sep for length in range(1, len(parts) + 1)))
    return tuple(Node(*found) for found in storage.touch("look_at_all", path, list(above)))


def user(uid, gid):
    """host_state.User with the groups that libvirt gives QEMU: those of the system's user of that number."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return User(uid, gid)
    groups = frozenset(group.gr_gid for group in grp.getgrall() if entry.pw_name in group.gr_mem)
    return User(uid, gid, groups | {entry.pw_gid}, entry.pw_name)


def guests_service(root="/"):
    """host_state.GuestsService: the settings, and below them what the service's own script takes where nothing is set."""
    units = os.path.join(root, "etc/systemd/system")
    try:
        wants = [name for name in os.listdir(units) if name.endswith(".wants")]
    except OSError:
        wants = []
    enabled = any(os.path.lexists(os.path.join(units, name, "libvirt-guests.service")) for name in wants)
    file = next((path for path in _GUESTS_SETTINGS if os.path.exists(os.path.join(root, path))), _GUESTS_SETTINGS[0])
    script = next((text for text in (read(root, path) for path in _GUESTS_SCRIPTS) if text is not None), None)
    # What the script has by itself where it cannot be read: the defaults of libvirt's own sources.
    found = {"ON_BOOT": "start", "ON_SHUTDOWN": "suspend"}
    found.update(settings(script))
    found.update(settings(read(root, file)))
    return GuestsService(enabled, found["ON_BOOT"], found["ON_SHUTDOWN"], f"/{file}")


def memory_available(root="/"):
    """Bytes that can be had without swapping, None where the kernel does not tell."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB", read(root, "proc/meminfo") or "", re.MULTILINE)
    return int(match[1]) * 1024 if match else None
