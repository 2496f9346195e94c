# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Domain XML as libvirt keeps it and gives it back."""

from __future__ import annotations

import posixpath
import random
import uuid

from ansible_collections.egress.kvm2.plugins.module_utils._policy.xml import etree, parse, render

_UNITS = {
    "b": 1, "bytes": 1, "KB": 1000, "k": 1024, "KiB": 1024, "MB": 10 ** 6, "M": 1024 ** 2, "MiB": 1024 ** 2,
    "G": 1024 ** 3, "GiB": 1024 ** 3}


def keep(tree, machine):
    """Fill in what a definition left open, as a define does. Changes the tree and returns it."""
    if not (tree.findtext("uuid") or "").strip():
        _child(tree, "uuid", after="name").text = str(uuid.uuid4())
    for tag in ("memory", "currentMemory"):
        element = tree.find(tag)
        if element is None and tag == "currentMemory":
            element = _child(tree, tag, after="memory")
            element.text = tree.findtext("memory")
            element.set("unit", "KiB")
        element.text = str(int(element.text) * _UNITS[element.get("unit", "KiB")] // 1024)
        element.set("unit", "KiB")
    os_type = tree.find("os/type")
    if os_type is not None:
        os_type.set("machine", machine.machines.get(os_type.get("machine", "pc"), os_type.get("machine", "pc")))
        os_type.set("arch", os_type.get("arch", machine.arch))
    for interface in tree.findall("devices/interface"):
        if interface.find("mac") is None:
            # Another one at each define: what an instance must not be given.
            element = etree.Element("mac")
            element.set("address", "52:54:00:" + ":".join(f"{random.randrange(256):02x}" for _byte in range(3)))
            interface.insert(0, element)
    return tree


def _child(tree, tag, after):
    element = etree.Element(tag)
    before = tree.find(after)
    tree.insert(0 if before is None else list(tree).index(before) + 1, element)
    return element


def set_metadata(text, namespace, element):
    """The XML with the metadata element of a namespace replaced; None removes it."""
    tree = parse(text)
    metadata = tree.find("metadata")
    if metadata is None:
        metadata = _child(tree, "metadata", after="uuid")
    for old in list(metadata):
        if isinstance(old.tag, str) and etree.QName(old).namespace == namespace:
            metadata.remove(old)
    if element is not None:
        metadata.append(element)
    return render(tree)


def with_prefix(xml, prefix, namespace):
    """The element of a setMetadata call with its namespace, or None where libvirt refuses: the prefix is already declared in it."""
    given = parse(xml)
    if prefix in given.nsmap:
        return None
    return _renamed(given, namespace, {prefix: namespace})


def _renamed(element, namespace, nsmap=None):
    new = etree.Element(f"{{{namespace}}}{etree.QName(element).localname}", attrib=dict(element.attrib), nsmap=nsmap)
    new.text, new.tail = element.text, None
    for child in element:
        if isinstance(child.tag, str):
            new.append(_renamed(child, namespace))
    return new


def disks(text, machine):
    """(target, path, writable) of every disk of a definition; a volume source is found through its pool, path None where it is not."""
    found = []
    for number, disk in enumerate(parse(text).findall("devices/disk")):
        source, target = disk.find("source"), disk.find("target")
        name = f"disk{number}" if target is None else target.get("dev")
        if source is None:
            continue
        path = source.get("file") or source.get("dev")
        if path is None and source.get("pool") in machine.pools:
            path = posixpath.join(machine.pools[source.get("pool")].path, source.get("volume"))
        found.append((name, path, disk.find("readonly") is None and disk.get("device", "disk") == "disk"))
    return found


def sources(text, machine):
    """The paths of all disks of a definition."""
    return tuple(path for _target, path, _writable in disks(text, machine))


def running(text, machine, number):
    """The live XML of a guest that was just started: its number, and below each disk the chain that QEMU opened."""
    tree = parse(text)
    tree.set("id", str(number))
    for disk in tree.findall("devices/disk"):
        source = disk.find("source")
        path = None if source is None else source.get("file")
        if path is None or disk.find("backingStore") is not None:
            continue
        place, file = disk, machine.file(path)
        while file is not None and file.backing[0] is not None:
            below, below_format = file.backing
            path = posixpath.join(posixpath.dirname(path), below)
            store = etree.SubElement(place, "backingStore", type="file")
            etree.SubElement(store, "format", type=below_format or "raw")
            etree.SubElement(store, "source", file=path)
            place, file = store, machine.file(path)
        etree.SubElement(place, "backingStore")
    return render(tree)
