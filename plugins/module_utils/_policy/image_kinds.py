# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a file that should be a disk image is instead, told from its first bytes."""

from __future__ import annotations

_COMPRESSED = ((b"\x1f\x8b", "gzip"), (b"\xfd7zXZ\0", "xz"), (b"(\xb5/\xfd", "zstd"), (b"\x04\x22\x4d\x18", "lz4"), (b"LZIP", "lzip"))
# A zstd file may begin with a frame to be skipped: 16 magics that differ in their first byte.
_ZSTD_SKIPPABLE, _ZSTD_SKIPPABLE_FIRST = b"\x2a\x4d\x18", range(0x50, 0x60)
_ARCHIVES = ((b"PK\x03\x04", "zip"), (b"7z\xbc\xaf\x27\x1c", "7z"), (b"Rar!\x1a\x07", "rar"))
_DISKS = (
    (b"LUKS\xba\xbe", "an encrypted LUKS volume"), (b"KDMV", "a VMDK image"), (b"COWD", "a VMDK image"), (b"conectix", "a VHD image"),
    (b"vhdxfile", "a VHDX image"), (b"# Disk DescriptorFile", "the descriptor of a VMDK image"),
    (b"QED\0", "a QED image"), (b"WithoutFreeSpace", "a Parallels image"),
    (b"WithouFreSpacExt", "a Parallels image"))
# Formats that look like raw disks from their beginning: what the last sector begins with.
_LAST_SECTORS = ((b"conectix", "a VHD image"), (b"koly", "a DMG image"))
SECTOR = 512
_VDI_SIGNATURE = b"\x7f\x10\xda\xbe"
_BZIP2_BLOCK, _BZIP2_EMPTY = b"1AY&SY", b"\x17rE8P\x90"
_CONVERT = "Convert it to qcow2 or raw with qemu-img convert."
_MARKUP = (b"<!doctype", b"<html", b"<?xml", b"<head", b"<body")
_TEXT_LOOKED_AT = 512
# Control characters that text files do hold: tab, line feed, form feed, carriage return, escape.
_TEXT_CONTROLS = b"\t\n\f\r\x1b"
_NOT_TEXT = bytes(byte for byte in range(32) if byte not in _TEXT_CONTROLS) + b"\x7f"


def refusal(head):
    """(cause, hint) where the first bytes of an unpacked file are those of something that cannot be a base, else None."""
    compressed = compression(head)
    if compressed is not None:
        return f"it is compressed twice: there is {compressed} data inside", "Use the image compressed once, or unpacked."
    archive = next((name for magic, name in _ARCHIVES if head.startswith(magic)), None)
    if archive is None and head[257:262] == b"ustar":
        archive = "tar"
    if archive is not None:
        return f"it is a {archive} archive and not a disk image", "Unpack it beforehand."
    other = next((name for magic, name in _DISKS if head.startswith(magic)), None)
    if other is None and head[64:68] == _VDI_SIGNATURE:
        other = "a VDI image"
    if other is not None:
        return f"it is {other}", _CONVERT
    if head[32769:32774] in (b"CD001", b"BEA01"):
        return "it is an ISO 9660 image, an installation medium and not a disk", "Use the distribution's image for virtual machines."
    if is_text(head):
        if head.lstrip()[:16].lower().startswith(_MARKUP):
            return "it is an HTML or XML page and not a disk image", "The server answered with a page: check the URL."
        return "it is text and not a disk image", "Look at what the URL or path holds."
    return None


def last_sector_refusal(sector):
    """(cause, hint) where the last SECTOR bytes of what looks like a raw disk say that it is something else, else None."""
    other = next((name for magic, name in _LAST_SECTORS if sector.startswith(magic)), None)
    return None if other is None else (f"it is {other}", _CONVERT)


def compression(head):
    """How a file is compressed, told from its first bytes: gzip, xz, bzip2, zstd, lz4, lzip; None where it is not."""
    if len(head) > 4 and head[0] in _ZSTD_SKIPPABLE_FIRST and head[1:4] == _ZSTD_SKIPPABLE:
        return "zstd"
    if head.startswith(b"BZh") and head[4:10] in (_BZIP2_BLOCK, _BZIP2_EMPTY):
        return "bzip2"
    return next((name for magic, name in _COMPRESSED if head.startswith(magic)), None)


def is_text(head):
    """Does a file begin like text? Disks hold control characters, zeros at the least, in their first sector."""
    start = head[:_TEXT_LOOKED_AT]
    return bool(start) and len(start.translate(None, _NOT_TEXT)) == len(start)
