# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pool itself: whether it comes back after a reboot, and whether QEMU's user gets at what lies in it."""

from __future__ import annotations

import posixpath
import shlex

from .checks import OK, SKIPPED, WARN, Check
from .xml import parse

# Folders whose files libvirt's AppArmor helper never allows a guest.
_APPARMOR_REFUSES = (
    "/bin/", "/etc/", "/lib", "/lost+found/", "/proc/", "/sbin/", "/selinux/", "/sys/", "/usr/bin/", "/usr/lib", "/usr/sbin/", "/usr/share/",
    "/usr/local/bin/", "/usr/local/etc/", "/usr/local/lib", "/usr/local/sbin/", "/boot/")
# SELinux types of folders that confined guests may search.
_SELINUX_FITS = ("virt_image_t", "svirt_image_t", "virt_var_lib_t", "virt_content_t", "nfs_t", "cifs_t", "fusefs_t")


def autostart(pool):
    """The Check of a model.Pool that is active."""
    name = f"autostart of pool {pool.name}"
    if pool.autostart:
        return Check(name, OK, f"The pool {pool.name} is started together with the hypervisor.")
    return Check(
        name, WARN, f"The pool {pool.name} is not started together with the hypervisor.",
        f"Have it started: virsh pool-autostart {shlex.quote(pool.name)}.")


def access(pool, folders, user, bad):
    """The Check whether QEMU's user may enter the pool's folder.

    folders: host_state.Nodes of it and all above it; empty where they cannot be seen, and then libvirt's word on the folder itself counts.
    user: host_state.User, None where libvirt does not tell.  bad: the status where the user may not.
    """
    name = f"access to pool {pool.name}"
    if user is None:
        return Check(name, SKIPPED, "libvirt does not tell which user QEMU runs as.")
    seen = folders or ((pool.folder,) if pool.folder is not None else ())
    for node in seen:
        if node.allows(user, 1):
            continue
        if node.acl or (not folders and node.mode & 0o010):
            return Check(
                name, SKIPPED, f"QEMU runs as {user}; whether it may enter {node.path} is told by {'an access list' if node.acl else 'its groups'}.",
                f"See: getfacl {shlex.quote(node.path)}.")
        return Check(
            name, bad, f"QEMU runs as {user}, who may not enter {node.path} (owner {node.uid}, group {node.gid}, mode {node.mode:04o}).",
            f"Let it through: chmod o+x {shlex.quote(node.path)}, or use a pool elsewhere.")
    if not folders:
        return Check(name, SKIPPED, f"QEMU runs as {user}; the folders above the pool's cannot be seen over this connection.")
    return Check(name, OK, f"QEMU runs as {user}, who may enter {pool.path}.")


def security_models(capabilities_xml):
    """Names of the security drivers that libvirt uses for guests, such as dac, apparmor, selinux."""
    return tuple(name for name in (element.text for element in parse(capabilities_xml).iterfind("host/secmodel/model")) if name and name != "none")


def qemu_ids(capabilities_xml):
    """(uid, gid) that QEMU runs with, from a host's capabilities XML; None where it is not said."""
    for model in parse(capabilities_xml).iterfind("host/secmodel"):
        if model.findtext("model") != "dac":
            continue
        for label in model.iterfind("baselabel"):
            uid, colon, gid = (label.text or "").replace("+", "").partition(":")
            if label.get("type") in ("qemu", "kvm") and colon and uid.isdigit() and gid.isdigit():
                return int(uid), int(gid)
    return None


def labels(pool, models, folders, selinux_enforcing):
    """The Checks of what AppArmor and SELinux say about the pool's folder; none where libvirt uses neither."""
    path = posixpath.normpath(pool.path or "/")
    if "apparmor" in models:
        name, refused = f"AppArmor on pool {pool.name}", next((prefix for prefix in _APPARMOR_REFUSES if f"{path}/".startswith(prefix)), None)
        if refused:
            yield Check(
                name, WARN, f"libvirt's AppArmor helper refuses guests the files below {refused}.",
                "Use a pool elsewhere, such as below /var/lib/libvirt/images or /srv.")
        else:
            yield Check(name, OK, f"libvirt gives each guest an AppArmor profile with its own files below {path}.")
    if "selinux" in models:
        name = f"SELinux on pool {pool.name}"
        label = next((node.label for node in folders if node.path == path), None) or (pool.folder.label if pool.folder is not None else None)
        fields = (label or "").split(":")
        if len(fields) < 3:
            yield Check(name, SKIPPED, f"The SELinux label of {path} cannot be seen.")
        elif fields[2] in _SELINUX_FITS:
            yield Check(name, OK, f"{path} is labelled {fields[2]}.")
        else:
            quoted = shlex.quote(path)
            mode = "SELinux enforces" if selinux_enforcing else "SELinux may enforce"
            yield Check(
                name, WARN, f"{path} is labelled {fields[2]}, which guests may not search; {mode}.",
                f"semanage fcontext -a -t virt_image_t {shlex.quote(path + '(/.*)?')}, then: restorecon -R {quoted}.")
