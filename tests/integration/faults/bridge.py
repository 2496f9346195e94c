# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands for netcat at the far end of a qemu+ssh URI that names a socket: bridge.py … PATH joins its standard input and output to it."""

from __future__ import annotations

import os
import select
import socket
import sys

BLOCK = 262144


def main():
    if "-U" not in sys.argv:
        # libvirt asks a netcat for its help to learn which options it has.
        return
    end = socket.socket(socket.AF_UNIX)
    end.connect(sys.argv[-1])
    while True:
        for source in select.select([0, end], [], [])[0]:
            data = os.read(0, BLOCK) if source == 0 else end.recv(BLOCK)
            if not data:
                return
            if source == 0:
                end.sendall(data)
                continue
            while data:
                data = data[os.write(1, data):]


if __name__ == "__main__":
    main()
