# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inspection of images by their first bytes: content counts, not names, and nothing that could make QEMU open another file passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from . import image_kinds
from .errors import InvalidInput
from .qcow2_header import CORRUPT, DATA_FILE, DIRTY, MAGIC, Header, Malformed, parse_header
from .virtual_size import check_virtual_size

# How much of an image's beginning the inspector needs; fewer bytes only where the file itself is shorter.
HEAD = 65536

# What a file may hold besides its disk: tables and refcounts, some thirtieth of it at the most, and a little for small ones.
_TABLES_SHARE, _TABLES_LEAST = 8, 64 * 1024 ** 2

_CONVERT = "Convert it to a plain qcow2 or raw image with qemu-img convert."
_FETCH = "Fetch or copy the image again."


@dataclass(frozen=True)
class ImageInfo:
    """format: qcow2 or raw. virtual_size in bytes (of a raw image its length, None where that is not known); the rest is qcow2's."""

    format: str
    virtual_size: Optional[int]
    cluster_size: Optional[int] = None
    version: Optional[int] = None
    l1_offset: Optional[int] = None
    l1_entries: Optional[int] = None
    snapshots: int = 0


@dataclass(frozen=True)
class OverlayHeader:
    """The header of an overlay. Offsets and sizes in bytes.

    backing_file is the header's text as it stands, None where there is none. complete: the file holds all that its header needs and is
    marked neither dirty nor corrupt. Where snapshots is not 0 the empty L1 table of the present says nothing of theirs.
    """

    virtual_size: int
    backing_file: Optional[str]
    backing_format: Optional[str]
    cluster_size: int
    version: int
    l1_offset: int
    l1_entries: int
    snapshots: int
    complete: bool


def inspect(head, length, declared, obj, max_virtual_size=None):
    """ImageInfo of an image that may become a base.

    head: the first HEAD bytes; length: of the whole file in bytes, or None where it is not known yet; declared: "qcow2" or "raw";
    obj: the image's name for errors; max_virtual_size: bytes. Raises InvalidInput, and nothing else, for everything that is not a
    sound and self-contained image of the declared format.
    """
    if length is None and len(head) < HEAD:
        length = len(head)
    if not head or length == 0:
        raise InvalidInput(obj, "it is empty", _FETCH)
    if length is not None and len(head) < min(length, HEAD):
        raise InvalidInput(obj, f"it ends after {len(head)} of {length} bytes", _FETCH)
    refusal = image_kinds.refusal(head)
    if refusal is not None:
        raise InvalidInput(obj, *refusal)
    found = "qcow2" if head.startswith(MAGIC) else "raw"
    if found != declared:
        raise InvalidInput(
            obj, f"it is declared as {declared} but its content is {found}", f"Set format to {found} if that is what you want.")
    info = _qcow2_info(head, length, obj) if found == "qcow2" else _raw_info(length, obj)
    check_virtual_size(info.virtual_size, max_virtual_size, obj)
    return info


def _raw_info(length, obj):
    if length is not None and length % 512:
        raise InvalidInput(
            obj, f"its length of {length} bytes is not a whole number of 512-byte sectors: it is cut short or no disk image", _FETCH)
    return ImageInfo("raw", length)


def _qcow2_info(head, length, obj):
    header = _header(head, obj)
    if header.backing_offset:
        raise InvalidInput(obj, "it has a backing file", "A base must stand alone: flatten it with qemu-img convert.")
    if header.features & DATA_FILE or header.data_file:
        raise InvalidInput(obj, "it keeps its data in an external file", _CONVERT)
    if header.crypt_method or header.encrypted:
        raise InvalidInput(obj, "it is encrypted", "Decrypt it with qemu-img convert.")
    if header.features & CORRUPT:
        raise InvalidInput(obj, "it is marked as corrupt", _FETCH)
    if header.features & DIRTY:
        raise InvalidInput(
            obj, "it is marked as dirty: it was not closed properly", "Repair it with qemu-img check -r all, or fetch it again.")
    if header.virtual_size == 0:
        raise InvalidInput(obj, "its virtual size is 0", _FETCH)
    if length is not None and length < header.tables_end:
        raise InvalidInput(
            obj, f"it is cut short: it has {length} bytes and its tables alone reach to byte {header.tables_end}", _FETCH)
    return ImageInfo("qcow2", header.virtual_size, header.cluster_size, header.version, header.l1_offset, header.l1_entries, header.snapshots)


def longest(virtual_size, snapshots=0):
    """The most bytes, generously, that a qcow2 file can hold. What internal snapshots take is not in the header: as much again is granted."""
    return virtual_size + (virtual_size if snapshots else virtual_size // _TABLES_SHARE) + _TABLES_LEAST


def _header(head, obj) -> Header:
    try:
        return parse_header(head)
    except Malformed as error:
        raise InvalidInput(obj, error, _FETCH) from error


def overlay_header(head, obj, length=None):
    """OverlayHeader of the first HEAD bytes of an overlay's file of `length` bytes (None: not looked at).

    Raises InvalidInput when it is no qcow2, malformed (as is one that is not written yet), encrypted or with an external data file.
    """
    header = _header(head, obj)
    if header.features & DATA_FILE or header.data_file or header.crypt_method or header.encrypted:
        raise InvalidInput(
            obj, "it is encrypted or keeps its data in an external file", "The collection makes no such overlays; remove it.")
    reaches = length is None or length >= header.tables_end
    return OverlayHeader(
        header.virtual_size, header.backing_file, header.backing_format, header.cluster_size, header.version, header.l1_offset,
        header.l1_entries, header.snapshots, complete=reaches and not header.features & (DIRTY | CORRUPT))


def l1_is_empty(table, entries=None):
    """Is an L1 table (bytes) without a single entry, so that nothing was ever written to the overlay?

    With `entries` given a table that is shorter than those is not known to be empty; nor is one of no bytes.
    """
    if not table or (entries is not None and len(table) < entries * 8):
        return False
    return table.count(0) == len(table)
