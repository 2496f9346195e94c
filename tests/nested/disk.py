# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Disks with a GPT, boot code for a BIOS and a FAT partition that syslinux boots from, written without mounting anything."""

from __future__ import annotations

import pathlib

from progress import Failure, answer
from state import remove

MIB = 1024**2
SECTOR = 512
START = 1 * MIB  # where the first partition starts
BOOT_CODE = 440  # bytes of the first sector that are boot code
GPTMBR = pathlib.Path("/usr/lib/syslinux/mbr/gptmbr.bin")


def partitioned(raw: pathlib.Path, size: int, table: str) -> None:
    """Write an empty disk of that size (bytes) with boot code and the partitions of an sfdisk script."""
    remove(raw)
    with open(raw, "wb") as handle:
        handle.truncate(size)
    answer(["sfdisk", "--quiet", str(raw)], stdin=table)
    code = GPTMBR.read_bytes()
    if len(code) > BOOT_CODE:
        raise Failure(f"Failed to write the boot code: gptmbr.bin has {len(code)} bytes, {BOOT_CODE} fit. Use the package syslinux-common.")
    with open(raw, "r+b") as handle:
        handle.write(code)


def fat(raw: pathlib.Path, size: int, label: str, serial: str, files: dict[str, bytes]) -> None:
    """Format the first partition, of that size (bytes), with syslinux and these files (path → content) on it."""
    drive = f"{raw}@@{START}"
    geometry = ["-h", "16", "-s", "63", "-H", str(START // SECTOR), "-T", str(size // SECTOR)]
    answer(["mformat", "-i", drive, "-v", label, "-N", serial, *geometry, "::"])
    answer(["syslinux", "--install", "--offset", str(START), str(raw)])
    for folder in sorted({str(parent) for name in files for parent in pathlib.PurePath(name).parents} - {"."}):
        answer(["mmd", "-i", drive, f"::/{folder}"])
    part = raw.with_name(f"{raw.name}.file.part")
    for name, data in files.items():
        part.write_bytes(data)
        answer(["mcopy", "-i", drive, str(part), f"::/{name}"])
    part.unlink()
