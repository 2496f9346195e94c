# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A domain's XML read back into the fields that the collection manages. All functions raise ValueError for text that is not XML."""

from __future__ import annotations

import os

from . import domain_extra, domain_tuning, names
from .domain_edit import attribute as _attribute
from .domain_fields import chain_text
from .domain_interface import derived_macs, mac_of
from .domain_interface import find as find_interface
from .domain_interface import read as interfaces
from .domain_spec import EVENTS, MIB, STANDARD_DEVICES, DomainSpec
from .xml import parse

__all__ = (
    "cpu_mode", "derived_macs", "disk_path", "fields_of", "find_disk", "find_interface", "find_standard_device", "firmware", "interfaces", "is_surely_ours",
    "macs", "memory", "overlay_path", "read_chain", "read_fields", "read_spec")

AGENT = "org.qemu.guest_agent.0"
OVERLAY_TARGET, SEED_TARGET = "vda", "vdb"
_BYTES = {
    "b": 1, "bytes": 1, "KB": 1000, "MB": 1000 ** 2, "GB": 1000 ** 3, "TB": 1000 ** 4,
    "k": 1024, "KiB": 1024, "M": 1024 ** 2, "MiB": 1024 ** 2, "G": 1024 ** 3, "GiB": 1024 ** 3, "T": 1024 ** 4, "TiB": 1024 ** 4}


# -- finding what is ours in a parsed <domain>

def find_disk(tree, kind):
    """The <disk> of the overlay or the seed (kind), or None.

    It is the one with our serial, else the one whose file carries this instance's name, else the virtio disk in our fixed place.
    """
    uuid = (tree.findtext("uuid") or "").strip().lower()
    spec = _empty_spec(uuid)
    serial = spec.overlay_serial if kind == "overlay" else spec.seed_serial
    disks = tree.findall("devices/disk")
    for disk in disks:
        if (disk.findtext("serial") or "").strip() == serial:
            return disk
    for disk in disks:
        if _is_named_for(disk, kind, uuid):
            return disk
    target = OVERLAY_TARGET if kind == "overlay" else SEED_TARGET
    for disk in disks:
        place = disk.find("target")
        read_only = disk.find("readonly") is not None
        if place is not None and place.get("dev") == target and place.get("bus") == "virtio" and read_only == (kind == "seed"):
            return disk
    return None


def is_surely_ours(tree, disk, kind):
    """Was the disk told by its serial or file name, and not only by its place?"""
    uuid = (tree.findtext("uuid") or "").strip().lower()
    spec = _empty_spec(uuid)
    serial = spec.overlay_serial if kind == "overlay" else spec.seed_serial
    return (disk.findtext("serial") or "").strip() == serial or _is_named_for(disk, kind, uuid)


def _is_named_for(disk, kind, uuid):
    parsed = names.parse_instance_volume(os.path.basename(disk_path(disk) or ""))
    return parsed is not None and parsed.kind == kind and parsed.uid == uuid


def disk_path(disk):
    """Path of a disk's file; None where it has none, or is given as a volume of a pool."""
    source = None if disk is None else disk.find("source")
    return None if source is None else source.get("file")


def find_standard_device(tree, device):
    """The element of one of domain_spec.STANDARD_DEVICES, or None."""
    if device == "guest_agent":
        return next((one for one in tree.findall("devices/channel") if _attribute(one, "target", "name") == AGENT), None)
    return tree.find({"serial_console": "devices/serial", "rng": "devices/rng"}[device])


def console_log(tree):
    """The file that the first serial console is logged to, kept from one start to the next; None where there is none."""
    log = tree.find("devices/serial[1]/log")
    return None if log is None or log.get("append") != "on" else log.get("file")


def _empty_spec(uuid):
    return DomainSpec("", uuid, 0, 0, None, (), None)


# -- reading values

def read_chain(disk):
    """((path, format), …) below a disk as its XML says, and whether it says where that ends. A file of a pool or network has path None."""
    found = []
    element = None if disk is None else disk.find("backingStore")
    while element is not None and len(element):
        found.append((_attribute(element, "source", "file"), _attribute(element, "format", "type")))
        element = element.find("backingStore")
    return tuple(found), element is not None


def firmware(tree):
    system = tree.find("os")
    if system is None:
        return "bios"
    loader = system.find("loader")
    return "efi" if system.get("firmware") == "efi" or (loader is not None and loader.get("type") == "pflash") else "bios"


def cpu_mode(tree):
    """The CPU mode; None for none and for the custom model that libvirt fills in where none is asked for."""
    cpu = tree.find("cpu")
    mode = None if cpu is None else cpu.get("mode")
    return None if mode == "custom" else mode


def memory(tree):
    """Bytes of the guest's memory, rounded up to whole MiB as QEMU has it; 0 where it is not said."""
    element = tree.find("memory")
    if element is None or not (element.text or "").strip().isdigit():
        return 0
    size = int(element.text) * _BYTES.get(element.get("unit", "KiB"), 1024)
    return -(-size // MIB) * MIB


def _count(text):
    text = (text or "").strip()
    return int(text) if text.isdigit() else 0


def fields_of(tree):
    """read_fields() of a parsed <domain>."""
    system_type = tree.find("os/type")
    overlay, seed = find_disk(tree, "overlay"), find_disk(tree, "seed")
    chain = read_chain(overlay)[0]
    found = {
        "virt_type": tree.get("type"), "arch": None if system_type is None else system_type.get("arch"), "firmware": firmware(tree),
        "cpu_mode": cpu_mode(tree), "memory": memory(tree), "vcpus": _count(tree.findtext("vcpu")),
        "machine": None if system_type is None else system_type.get("machine"), "emulator": tree.findtext("devices/emulator"),
        "title": tree.findtext("title"), "overlay": disk_path(overlay), "overlay_chain": chain_text(chain) if chain else None,
        "seed": disk_path(seed)}
    found.update({f"interface {interface.mac}": str(interface) for interface in interfaces(tree)})
    found.update({event: tree.findtext(event) or default for event, default in EVENTS})
    found.update({device: find_standard_device(tree, device) is not None for device in STANDARD_DEVICES})
    found.update(
        domain_tuning.read(tree, overlay), on_crash=tree.findtext("on_crash") or "destroy", console_log=console_log(tree),
        xml_extra=domain_extra.read(tree), panic_device=tree.find("devices/panic") is not None)
    return found


def read_fields(xml):
    """{field: value} of a domain's XML, in the form of domain_fields.fields(), all its interfaces included; what it does not say is None."""
    return fields_of(parse(xml))


def read_spec(xml):
    """A DomainSpec of what a domain's XML says; overlay_path, seed_path, machine, emulator, title and cpu_mode may be None. What is managed only
    while it is asked for is not in it."""
    tree = parse(xml)
    have = fields_of(tree)
    chain = read_chain(find_disk(tree, "overlay"))[0]
    return DomainSpec(
        name=tree.findtext("name") or "", uuid=(tree.findtext("uuid") or "").strip().lower(), memory=have["memory"], vcpus=have["vcpus"],
        overlay_path=have["overlay"], overlay_chain=chain if all(path and volume_format for path, volume_format in chain) else (),
        seed_path=have["seed"], interfaces=interfaces(tree), cpu_mode=have["cpu_mode"], machine=have["machine"],
        arch=have["arch"] or "x86_64", firmware=have["firmware"], virt_type=have["virt_type"], emulator=have["emulator"],
        title=have["title"], console_log=have["console_log"] is not None)


def overlay_path(xml):
    """Path of the overlay that a domain's XML references, or None."""
    return disk_path(find_disk(parse(xml), "overlay"))


def macs(xml):
    """The MAC addresses of all interfaces in a domain's XML, in lower case."""
    return tuple(mac_of(element) for element in parse(xml).findall("devices/interface"))
