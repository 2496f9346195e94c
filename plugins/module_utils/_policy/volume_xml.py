# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""XML of the volumes the collection creates."""

from __future__ import annotations

from .xml import etree, render


def _volume(name, volume_format, capacity, allocation, mode, owner=None, group=None):
    root = etree.Element("volume", type="file")
    etree.SubElement(root, "name").text = name
    etree.SubElement(root, "capacity", unit="bytes").text = str(capacity)
    etree.SubElement(root, "allocation", unit="bytes").text = str(allocation)
    target = etree.SubElement(root, "target")
    etree.SubElement(target, "format", type=volume_format)
    permissions = etree.SubElement(target, "permissions")
    etree.SubElement(permissions, "mode").text = mode
    for what, number in (("owner", owner), ("group", group)):
        if number is not None:
            etree.SubElement(permissions, what).text = str(number)
    return root


def raw_volume(name, length, mode="0444", owner=None, group=None):
    """XML text of a volume of exactly `length` raw bytes, fully allocated: a full pool then fails at the creation, never in the upload.

    owner and group are numbers, None for what libvirt gives a new volume.

    Bases and records are made so, whatever the format of the bytes that are sent into them.
    """
    return render(_volume(name, "raw", length, length, mode, owner, group))


def seed_volume(name, length):
    """XML text of the volume of a seed of `length` bytes: fully allocated, readable by its owner only, since seeds hold secrets."""
    return render(_volume(name, "raw", length, length, "0600"))


def overlay_volume(name, capacity, backing_path, backing_format, mode="0600"):
    """XML text of a qcow2 volume of `capacity` bytes on a backing file whose format is written down, never guessed by QEMU."""
    root = _volume(name, "qcow2", capacity, 0, mode)
    # compat 1.1 is qcow2 version 3; its optional features, lazy refcounts among them, stay off.
    etree.SubElement(root.find("target"), "compat").text = "1.1"
    backing = etree.SubElement(root, "backingStore")
    etree.SubElement(backing, "path").text = backing_path
    etree.SubElement(backing, "format", type=backing_format)
    return render(root)
