# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of a minimal qcow2 image, version 3, as qemu-img would make it: the fake's overlays hold them, so that inspectors work on them."""

from __future__ import annotations

import struct

CLUSTER = 65536
MAGIC = b"QFI\xfb"
_HEADER = struct.Struct(">4sIQIIQIIQQIIQQQQII")
_BACKING_FORMAT = 0xE2792ACA
_COPIED = 1 << 63


def l1_entries(virtual_size):
    """Entries of the L1 table: each stands for an L2 table of CLUSTER / 8 clusters."""
    reach = CLUSTER * (CLUSTER // 8)
    return max(1, -(-virtual_size // reach))


def image(virtual_size, backing_path=None, backing_format=None):
    """An image with nothing allocated: header, refcount table, one refcount block, empty L1 table."""
    entries = l1_entries(virtual_size)
    l1_clusters = -(-entries * 8 // CLUSTER)
    extensions = b""
    if backing_format:
        name = backing_format.encode()
        extensions += struct.pack(">II", _BACKING_FORMAT, len(name)) + name + b"\0" * (-len(name) % 8)
    extensions += struct.pack(">II", 0, 0)
    backing = (backing_path or "").encode()
    backing_at = _HEADER.size + len(extensions) if backing else 0
    header = _HEADER.pack(
        MAGIC, 3, backing_at, len(backing), 16, virtual_size, 0, entries, 3 * CLUSTER, CLUSTER, 1, 0, 0, 0, 0, 0, 4, _HEADER.size)
    data = bytearray((3 + l1_clusters) * CLUSTER)
    data[:len(header) + len(extensions) + len(backing)] = header + extensions + backing
    data[CLUSTER:CLUSTER + 8] = struct.pack(">Q", 2 * CLUSTER)
    for cluster in range(3 + l1_clusters):
        _count(data, cluster)
    return data


def _count(data, cluster):
    at = 2 * CLUSTER + 2 * cluster
    data[at:at + 2] = b"\0\1"


def write(data):
    """What a guest's first write does: an L2 table comes into being, and the L1 table points to it."""
    l1_at = struct.unpack_from(">Q", data, 40)[0]
    if struct.unpack_from(">Q", data, l1_at)[0]:
        return
    at = len(data) + -len(data) % CLUSTER
    data.extend(bytes(at + CLUSTER - len(data)))
    data[l1_at:l1_at + 8] = struct.pack(">Q", at | _COPIED)
    _count(data, at // CLUSTER)


def grow(data, virtual_size):
    """Set a larger virtual size; the L1 table moves to the end where it needs more clusters."""
    entries, l1_at = struct.unpack_from(">IQ", data, 36)
    wanted = l1_entries(virtual_size)
    if wanted * 8 > -(-entries * 8 // CLUSTER) * CLUSTER:
        at = len(data) + -len(data) % CLUSTER
        clusters = -(-wanted * 8 // CLUSTER)
        data.extend(bytes(at + clusters * CLUSTER - len(data)))
        data[at:at + entries * 8] = data[l1_at:l1_at + entries * 8]
        for old in range(l1_at // CLUSTER, l1_at // CLUSTER + -(-entries * 8 // CLUSTER)):
            data[2 * CLUSTER + 2 * old:2 * CLUSTER + 2 * old + 2] = b"\0\0"
        for cluster in range(at // CLUSTER, at // CLUSTER + clusters):
            _count(data, cluster)
        l1_at = at
    struct.pack_into(">Q", data, 24, virtual_size)
    struct.pack_into(">IQ", data, 36, max(entries, wanted), l1_at)


def is_image(data):
    return bytes(data[:4]) == MAGIC and len(data) >= _HEADER.size


def virtual_size(data):
    return struct.unpack_from(">Q", data, 24)[0]


def backing(data):
    """(path, format) of the backing file as the header has them, None where there is none."""
    at, length = struct.unpack_from(">QI", data, 8)
    if not at:
        return None, None
    backing_format, position = None, struct.unpack_from(">I", data, 100)[0] if data[7] == 3 else 72
    while position + 8 <= len(data):
        kind, size = struct.unpack_from(">II", data, position)
        if kind == 0:
            break
        if kind == _BACKING_FORMAT:
            backing_format = bytes(data[position + 8:position + 8 + size]).decode()
        position += 8 + size + -size % 8
    return bytes(data[at:at + length]).decode(), backing_format
