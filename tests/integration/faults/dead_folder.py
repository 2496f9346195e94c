# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: dead_folder.py PATH mounts an empty folder of FUSE there and serves it until it is told to stop answering (SIGUSR1).
From then on whatever touches the folder hangs, and not even SIGKILL ends it, until this process ends: as a dead NFS server has it."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
import sys

LOOKUP, GETATTR, STATFS, INIT, OPENDIR, READDIR, RELEASEDIR, ACCESS, FORGET = 1, 3, 17, 26, 27, 28, 29, 34, 2
HEADER = struct.Struct("=IIQQIIII")
ROOT = 1
BLOCKS = 1 << 18


def attributes():
    """struct fuse_attr of the folder."""
    return struct.pack("=6Q10I", ROOT, 0, 0, 0, 0, 0, 0, 0, 0, 0o040755, 2, 0, 0, 0, 4096, 0)


def answer(opcode):
    """(errno, data)"""
    if opcode == INIT:
        return 0, struct.pack("=IIIIHHIIHH", 7, 31, 65536, 0, 12, 10, 65536, 1, 1, 0) + bytes(32)
    if opcode == GETATTR:
        # Valid for no time at all: each look asks again.
        return 0, struct.pack("=QII", 0, 0, 0) + attributes()
    if opcode == STATFS:
        return 0, struct.pack("=5Q4I", BLOCKS, BLOCKS, BLOCKS, 100, 100, 4096, 255, 4096, 0) + bytes(24)
    if opcode == OPENDIR:
        return 0, struct.pack("=QII", 1, 0, 0)
    if opcode in (READDIR, RELEASEDIR, ACCESS):
        return 0, b""
    return (errno.ENOENT if opcode == LOOKUP else errno.ENOSYS), b""


def mount(path):
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"kvm2-dead", path.encode(), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), "mount")
    return device


def main():
    told = []
    signal.signal(signal.SIGUSR1, lambda number, _frame: told.append(number))
    device = mount(sys.argv[1])
    while True:
        try:
            request = os.read(device, 1 << 17)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return
            raise
        _length, opcode, unique = HEADER.unpack(request[:HEADER.size])[:3]
        if told or opcode == FORGET:
            # Taken and never answered: whoever asked cannot even be killed.
            continue
        code, data = answer(opcode)
        os.write(device, struct.pack("=IiQ", 16 + len(data), -code, unique) + data)


if __name__ == "__main__":
    main()
