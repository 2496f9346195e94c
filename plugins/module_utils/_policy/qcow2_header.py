# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The header of a qcow2 image (versions 2 and 3), read strictly from the file's first bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Optional

MAGIC = b"QFI\xfb"
# Incompatible feature bits.
DIRTY, CORRUPT, DATA_FILE, COMPRESSION, EXTENDED_L2 = (1 << bit for bit in range(5))
_KNOWN_FEATURES = DIRTY | CORRUPT | DATA_FILE | COMPRESSION | EXTENDED_L2

_V2 = struct.Struct(">4sIQIIQIIQQIIQ")
_V3 = struct.Struct(">QQQII")
_V3_LENGTH = _V2.size + _V3.size
# Header extensions.
_END, _BACKING_FORMAT, _ENCRYPTION, _DATA_FILE_NAME = 0, 0xE2792ACA, 0x0537BE77, 0x44415441
# QEMU's own limits.
_MAX_L1_BYTES, _MAX_REFCOUNT_TABLE_BYTES, _MAX_BACKING_NAME = 32 * 1024 ** 2, 8 * 1024 ** 2, 1023
_MAX_OFFSET = 1 << 56
_MAX_SNAPSHOTS = 65536
# What the table holds of each at least: the names and more come behind it.
_LEAST_SNAPSHOT = 40


class Malformed(Exception):
    """The bytes are no qcow2 header that can be believed; the text says why."""


@dataclass(frozen=True)
class Header:
    """Offsets and sizes in bytes; tables_end is the first byte after the L1, refcount and snapshot tables: the least length of the
    file."""

    version: int
    virtual_size: int
    cluster_size: int
    crypt_method: int
    features: int
    l1_offset: int
    l1_entries: int
    tables_end: int
    snapshots: int
    backing_offset: int
    backing_file: Optional[str]
    backing_format: Optional[str]
    data_file: bool
    encrypted: bool


def parse_header(head):
    """Header of the first bytes of a file (64 KiB are enough). Raises Malformed, and nothing else."""
    if not head.startswith(MAGIC):
        raise Malformed("it does not begin like a qcow2 image")
    if len(head) < _V2.size:
        raise Malformed(f"its header is truncated: there are only {len(head)} bytes")
    (_magic, version, backing_offset, backing_size, cluster_bits, virtual_size, crypt_method, l1_entries, l1_offset, refcount_offset,
     refcount_clusters, snapshots, snapshots_offset) = _V2.unpack_from(head)
    if version not in (2, 3):
        raise Malformed(f"it is version {version} of the format; only 2 and 3 are known")
    if not 9 <= cluster_bits <= 21:
        raise Malformed(f"its clusters of 2^{cluster_bits} bytes are impossible")
    cluster_size = 1 << cluster_bits
    features, header_length = _version_3(head, cluster_size) if version == 3 else (0, _V2.size)
    l1_end = _check_l1(virtual_size, cluster_size, features, l1_offset, l1_entries)
    refcount_end = _check_table(
        "refcount table", refcount_offset, refcount_clusters * cluster_size, cluster_size, _MAX_REFCOUNT_TABLE_BYTES)
    if refcount_clusters == 0:
        raise Malformed("it has no refcount table")
    if snapshots > _MAX_SNAPSHOTS:
        raise Malformed(f"its {snapshots} snapshots are more than QEMU allows")
    snapshots_end = _check_table("snapshot table", snapshots_offset, snapshots * _LEAST_SNAPSHOT, cluster_size, _MAX_SNAPSHOTS * _LEAST_SNAPSHOT)
    backing_file = _backing_name(head, backing_offset, backing_size, header_length, cluster_size)
    extensions = _extensions(head, header_length, min(cluster_size, backing_offset or cluster_size))
    backing_format = extensions.get(_BACKING_FORMAT)
    return Header(
        version, virtual_size, cluster_size, crypt_method, features, l1_offset, l1_entries, max(header_length, l1_end, refcount_end, snapshots_end),
        snapshots, backing_offset, backing_file, None if backing_format is None else backing_format.decode("utf-8", "replace"),
        data_file=_DATA_FILE_NAME in extensions, encrypted=_ENCRYPTION in extensions)


def _version_3(head, cluster_size):
    """(incompatible features, length of the header) of a version 3 header."""
    if len(head) < _V3_LENGTH:
        raise Malformed(f"its header is truncated: there are only {len(head)} bytes")
    features, _compatible, _autoclear, refcount_order, header_length = _V3.unpack_from(head, _V2.size)
    if features & ~_KNOWN_FEATURES:
        raise Malformed(f"it needs features that are not known here (incompatible bits {features & ~_KNOWN_FEATURES:#x})")
    if refcount_order > 6:
        raise Malformed(f"its refcounts of 2^{refcount_order} bits are impossible")
    if not _V3_LENGTH <= header_length <= cluster_size or header_length % 8:
        raise Malformed(f"its header length of {header_length} bytes is impossible")
    if header_length > len(head):
        raise Malformed(f"its header is truncated: there are only {len(head)} of {header_length} bytes")
    compression = head[_V3_LENGTH] if header_length > _V3_LENGTH else 0
    if compression > 1 or bool(compression) != bool(features & COMPRESSION):
        raise Malformed(f"its compression type {compression} is not known here or not announced")
    return features, header_length


def _check_l1(virtual_size, cluster_size, features, offset, entries):
    """The first byte after the L1 table."""
    # QEMU counts in sectors and drops the rest, so that its size would be another than the one written here.
    if virtual_size >= 1 << 63 or virtual_size % 512:
        raise Malformed(f"its virtual size of {virtual_size} bytes is impossible")
    end = _check_table("L1 table", offset, entries * 8, cluster_size, _MAX_L1_BYTES)
    covered = cluster_size * (cluster_size // (16 if features & EXTENDED_L2 else 8))
    if entries < -(-virtual_size // covered):
        raise Malformed(f"its L1 table of {entries} entries is too small for its virtual size of {virtual_size} bytes")
    return end


def _check_table(what, offset, size, cluster_size, limit):
    """The first byte after a table; it must be of a possible size and lie on clusters after the first."""
    if size > limit:
        raise Malformed(f"its {what} of {size} bytes is larger than QEMU allows")
    if size and (offset % cluster_size or not cluster_size <= offset < _MAX_OFFSET):
        raise Malformed(f"its {what} at byte {offset} is impossible")
    return offset + size if size else 0


def _backing_name(head, offset, size, header_length, cluster_size):
    if not offset:
        return None
    if not 0 < size <= _MAX_BACKING_NAME or not header_length <= offset <= cluster_size - size:
        raise Malformed("the name of its backing file lies outside its header")
    if offset + size > len(head):
        raise Malformed("its header is truncated: the name of its backing file is missing")
    return head[offset:offset + size].decode("utf-8", "surrogateescape")


def _extensions(head, position, end):
    """{type: content} of the header extensions from position up to end."""
    found = {}
    while position < end:
        if position + 8 > end:
            break
        if position + 8 > len(head):
            raise Malformed("its header extensions are truncated")
        kind, size = struct.unpack_from(">II", head, position)
        if kind == _END:
            break
        position += 8
        if size > end - position:
            raise Malformed("a header extension reaches beyond the header")
        if position + size > len(head):
            raise Malformed("its header extensions are truncated")
        found[kind] = head[position:position + size]
        position += -(-size // 8) * 8
    return found
