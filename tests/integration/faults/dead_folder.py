# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: dead_folder.py PATH mounts a folder of FUSE there and serves it until it is told to stop answering (SIGUSR1). From then on
whatever touches the folder hangs, and not even SIGKILL ends it, until this process ends: as a dead NFS server has it.

The folder holds one file, `image`, and a new one can be made. What lies behind the first half of either, MIDDLE bytes, can be neither read nor
written: who tries hangs in the same way, while everything else answers."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
import sys

LOOKUP, FORGET, GETATTR, UNLINK, OPEN, READ, WRITE, STATFS, RELEASE, FLUSH = 1, 2, 3, 10, 14, 15, 16, 17, 18, 25
INIT, OPENDIR, READDIR, RELEASEDIR, ACCESS, CREATE = 26, 27, 28, 29, 34, 35
HEADER = struct.Struct("=IIQQIIII")
# Bytes before the name in a request for a new file.
CREATE_IN = 16
ROOT, IMAGE, NEW = 1, 2, 3
NAME, SIZE = b"image", 4 * 1024 ** 2
MIDDLE = SIZE // 2
BLOCKS = 1 << 18


def content(begin, size):
    return bytes(at // 512 % 251 for at in range(begin, min(begin + size, SIZE)))


def attributes(node):
    """struct fuse_attr."""
    mode = 0o040755 if node == ROOT else 0o100644
    size = SIZE if node == IMAGE else 0
    return struct.pack("=6Q10I", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 2 if node == ROOT else 1, 0, 0, 0, 4096, 0)


def entry(node):
    """struct fuse_entry_out, valid for no time at all: each look asks again."""
    return struct.pack("=4Q2I", node, 0, 0, 0, 0, 0) + attributes(node)


def answer(opcode, node, body, names):
    """(errno, data), or None for no answer. names: {name: node} of what is there."""
    opened = struct.pack("=QII", 1, 0, 0)
    if opcode == INIT:
        return 0, struct.pack("=IIIIHHIIHH", 7, 31, 65536, 0, 12, 10, 65536, 1, 1, 0) + bytes(32)
    if opcode == GETATTR:
        return 0, struct.pack("=QII", 0, 0, 0) + attributes(node)
    if opcode == STATFS:
        return 0, struct.pack("=5Q4I", BLOCKS, BLOCKS, BLOCKS, 100, 100, 4096, 255, 4096, 0) + bytes(24)
    if opcode in (OPENDIR, OPEN):
        return 0, opened
    if opcode in (READDIR, RELEASEDIR, ACCESS, RELEASE, FLUSH):
        return 0, b""
    if opcode == CREATE:
        names[body[CREATE_IN:].rstrip(b"\0")] = NEW
        return 0, entry(NEW) + opened
    if opcode == UNLINK:
        return (0 if names.pop(body.rstrip(b"\0"), None) else errno.ENOENT), b""
    if opcode in (READ, WRITE):
        _handle, begin, size = struct.unpack_from("=QQI", body)
        if begin + size > MIDDLE:
            return None
        return 0, content(begin, size) if opcode == READ else struct.pack("=II", size, 0)
    if opcode == LOOKUP and body.rstrip(b"\0") in names:
        return 0, entry(names[body.rstrip(b"\0")])
    return (errno.ENOENT if opcode == LOOKUP else errno.ENOSYS), b""


def mount(path):
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"kvm2-dead", path.encode(), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), "mount")
    return device


def main():
    told, names = [], {NAME: IMAGE}
    signal.signal(signal.SIGUSR1, lambda number, _frame: told.append(number))
    device = mount(sys.argv[1])
    while True:
        try:
            request = os.read(device, 1 << 17)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return
            raise
        _length, opcode, unique, node = HEADER.unpack(request[:HEADER.size])[:4]
        # Taken and never answered: whoever asked cannot even be killed.
        answered = None if told or opcode == FORGET else answer(opcode, node, request[HEADER.size:], names)
        if answered is not None:
            code, data = answered
            os.write(device, struct.pack("=IiQ", 16 + len(data), -code, unique) + data)


if __name__ == "__main__":
    main()
