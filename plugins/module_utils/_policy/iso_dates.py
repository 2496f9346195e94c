# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixed dates in an ISO 9660 image with one flat folder, so that equal files make equal images whatever the clock and time zone."""

from __future__ import annotations

SECTOR = 2048
_FIRST_DESCRIPTOR = 16
# 2000-01-01 00:00:00 UTC, as ISO 9660 writes it in a volume descriptor and in a directory record.
_LONG = b"2000010100000000\0"
_SHORT = bytes((100, 1, 1, 0, 0, 0, 0))
_UNSET = b"0" * 16 + b"\0"
# Of creation, modification, expiration and effectiveness.
_DESCRIPTOR_DATES = ((813, _LONG), (830, _LONG), (847, _UNSET), (864, _LONG))
_ROOT_RECORD = 156


def fix_dates(image):
    """Overwrite every date in `image` (a bytearray): of its volume descriptors, its root folder's records and their Rock Ridge entries."""
    sector = _FIRST_DESCRIPTOR
    while image[sector * SECTOR] != 255:
        if image[sector * SECTOR] in (1, 2):
            _fix_descriptor(image, sector * SECTOR)
        sector += 1


def _fix_descriptor(image, start):
    for offset, date in _DESCRIPTOR_DATES:
        image[start + offset:start + offset + len(date)] = date
    root = start + _ROOT_RECORD
    _fix_record(image, root)
    position = _number(image, root + 2) * SECTOR
    end = position + _number(image, root + 10)
    while position < end:
        if image[position] == 0:
            # Records do not cross sectors; the rest of this one is empty.
            position = (position // SECTOR + 1) * SECTOR
            continue
        _fix_record(image, position)
        position += image[position]


def _fix_record(image, start):
    image[start + 18:start + 25] = _SHORT
    name_length = image[start + 32]
    # The system use area follows the name, which is padded to an even offset.
    area = start + 33 + name_length + (1 - name_length % 2)
    _fix_system_use(image, area, start + image[start])


def _fix_system_use(image, position, end):
    while position + 4 <= end and image[position + 2] >= 4:
        signature, length = bytes(image[position:position + 2]), image[position + 2]
        if signature == b"TF":
            date = _LONG if image[position + 4] & 0x80 else _SHORT
            dates = (length - 5) // len(date)
            image[position + 5:position + 5 + dates * len(date)] = date * dates
        elif signature == b"CE":
            continued = _number(image, position + 4) * SECTOR + _number(image, position + 12)
            _fix_system_use(image, continued, continued + _number(image, position + 20))
        position += length


def _number(image, position):
    return int.from_bytes(image[position:position + 4], "little")
