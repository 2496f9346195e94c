# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Initial RAM file systems: a cpio archive (newc) whose bytes depend on its content only."""

from __future__ import annotations

import stat


class Archive:
    """Collects entries by path; parents come into being by themselves."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[int, bytes, tuple[int, int]]] = {}

    def folder(self, path: str, mode: int = 0o755) -> None:
        """Add a folder."""
        self._add(path, stat.S_IFDIR | mode)

    def file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Add a regular file."""
        self._add(path, stat.S_IFREG | mode, data)

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._add(path, stat.S_IFLNK | 0o777, target.encode())

    def device(self, path: str, major: int, minor: int, mode: int = 0o600) -> None:
        """Add a character device."""
        self._add(path, stat.S_IFCHR | mode, device=(major, minor))

    def _add(self, path: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        path = path.strip("/")
        parent = path.rpartition("/")[0]
        if parent and parent not in self._entries:
            self.folder(parent)
        self._entries[path] = (mode, data, device)

    def render(self) -> bytes:
        """Return the archive."""
        out = bytearray()
        for number, path in enumerate(sorted(self._entries), start=1):
            mode, data, device = self._entries[path]
            self._entry(out, number, path, mode, data, device)
        self._entry(out, 0, "TRAILER!!!", 0, b"", (0, 0))
        return bytes(out)

    @staticmethod
    def _entry(out: bytearray, number: int, path: str, mode: int, data: bytes, device: tuple[int, int]) -> None:
        name = path.encode() + b"\0"
        # inode, mode, uid, gid, links, mtime, size, device (major, minor), special device (major, minor), name's length, checksum
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name), 0)
        out += b"070701" + b"".join(b"%08X" % field for field in fields) + name
        out += bytes(-len(out) % 4)
        out += data
        out += bytes(-len(out) % 4)
