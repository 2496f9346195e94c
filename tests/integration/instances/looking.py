# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything that a hypervisor holds, and what its daemon was asked to do: for programs that run there and prove that nothing was written."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess

import libvirt

LOG = "/tmp/kvm2-api.log"
FOLDERS = ("/etc/libvirt", "/var/lib/libvirt", "/var/log/libvirt/qemu")
# What the daemon may be asked where nothing is to be changed. Refreshing a pool is a read.
READS = re.compile(
    r"vir(Connect(Open|Close|Register|Unregister|Get|List|Is|NumOf)\w*|NodeGet\w+|Stream\w+"
    r"|(Domain|DomainSnapshot|DomainCheckpoint|Network|StoragePool|StorageVol|NWFilter)(Get|List|LookupBy|Is|Has|Free|Ref|NumOf)\w*"
    r"|DomainInterfaceAddresses|DomainManagedSaveGetXMLDesc|StoragePoolRefresh|StorageVolDownload)")
# What guests bring about at any moment: a lease that is taken or runs out, a line on a console, a variable that the firmware keeps. Only that these
# files are there counts.
RESTLESS = re.compile(r"/dnsmasq/[^/]+\.(status|leases)$|\.console$|/nvram/[^/]+$")
# Under such a name libvirt writes a file of its own anew, for a moment.
_PASSING = re.compile(r"\.new$")
# Of a pool what the rest of its filesystem changes, and of a file when it was last read.
_VOLATILE = re.compile(r"\s*<(capacity|allocation|available|atime)\b[^>]*>[^<]*</\1>")


def shell(*command, check=True):
    return subprocess.run(command, check=check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


class Asked:
    """While it is entered, the daemon notes the functions of its interface that it is asked for; then they are in `names`, in order."""

    def __init__(self):
        self.names = []

    def __enter__(self):
        shell("virt-admin", "daemon-log-filters", "1:libvirt")
        shell("virt-admin", "daemon-log-outputs", f"1:file:{LOG}")
        return self

    def __exit__(self, *_problem):
        shell("virt-admin", "daemon-log-outputs", "")
        shell("virt-admin", "daemon-log-filters", "")
        with open(LOG, encoding="utf-8", errors="replace") as log:
            self.names = re.findall(r": debug : (vir[A-Z]\w+):\d+ :", log.read())
        os.remove(LOG)

    @property
    def writes(self):
        return [name for name in self.names if not READS.fullmatch(name)]


def _text_of(function, *arguments):
    try:
        return function(*arguments)
    except libvirt.libvirtError as error:
        return f"error {error.get_error_code()}"


def everything(connection, folders=()):
    """{name of an object: its full text} of all domains, pools, volumes and networks, and of all files below some folders, each with its times."""
    found, secure = {}, libvirt.VIR_DOMAIN_XML_SECURE
    for domain in connection.listAllDomains():
        named = f"domain {domain.name()}"
        found[named] = (
            domain.UUIDString(), domain.state(), domain.isPersistent(), domain.isPersistent() and domain.autostart(), domain.hasManagedSaveImage())
        found[f"{named} definition"] = _text_of(domain.XMLDesc, secure | libvirt.VIR_DOMAIN_XML_INACTIVE)
        found[f"{named} as it is"] = _text_of(domain.XMLDesc, secure)
        found[f"{named} saved"] = _text_of(domain.managedSaveGetXMLDesc, libvirt.VIR_DOMAIN_SAVE_IMAGE_XML_SECURE)
        found[f"{named} snapshots"] = [snapshot.getXMLDesc() for snapshot in domain.listAllSnapshots()]
    for network in connection.listAllNetworks():
        found[f"network {network.name()}"] = (
            network.isActive(), network.autostart(), network.XMLDesc(), _text_of(network.XMLDesc, libvirt.VIR_NETWORK_XML_INACTIVE))
    places = {*FOLDERS, *folders}
    for pool in connection.listAllStoragePools():
        xml = pool.XMLDesc()
        found[f"pool {pool.name()}"] = (pool.isActive(), pool.autostart(), _VOLATILE.sub("", xml))
        if pool.isActive():
            # What was put there beside libvirt is a volume from the next refresh on.
            pool.refresh()
            places.add(re.search(r"<path>(.*)</path>", xml)[1])
            for volume in pool.listAllVolumes():
                # Its sizes are told by the file itself.
                found[f"volume {pool.name()}/{volume.name()}"] = _VOLATILE.sub("", volume.XMLDesc())
    for place in places:
        for folder, _folders, files in os.walk(place):
            for name in files:
                path = os.path.join(folder, name)
                if not _PASSING.search(path):
                    found[f"file {path}"] = "is there" if RESTLESS.search(path) else _file(path)
    return found


def _file(path):
    try:
        status = os.lstat(path)
        what = (status.st_mode, status.st_uid, status.st_gid, status.st_nlink, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if not os.path.isfile(path):
            return what
        with open(path, "rb") as file:
            return (*what, hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else hashlib.sha256(file.read()).hexdigest())
    except FileNotFoundError:
        return None


def differences(before, after):
    """Names of the objects that came, went or changed, with both texts where they are short."""
    return [
        f"{name}: {str(before.get(name))[:300]} → {str(after.get(name))[:300]}" for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
