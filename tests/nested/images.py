# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The published images: each is built under a temporary name, and SHA256SUMS speaks of all that are whole."""

from __future__ import annotations

import hashlib
import pathlib
import threading

from progress import answer
from state import State, write_whole

SUMS = "SHA256SUMS"
BLOCK = 1024**2
_lock = threading.Lock()  # images are built side by side, by the one process that holds the state folder's lock


def path_of(state: State, name: str) -> pathlib.Path:
    """Return where the image of that name is published."""
    return state.images / f"{name}.qcow2"


def current(state: State, name: str, key: str) -> bool:
    """Return whether the image that is published is the one of that key."""
    known = _known(state, name)
    return bool(known) and known[0] == key and path_of(state, name).exists() and f"{known[1]}  {name}.qcow2\n" in _sums(state)


def publish(state: State, name: str, key: str, raw: pathlib.Path, compress: bool = False) -> pathlib.Path:
    """Convert a raw disk, which is removed, and publish it as the image of that key; return the image's path."""
    image = path_of(state, name)
    part = image.with_name(image.name + ".part")
    options = ["-c"] if compress else []
    answer(["qemu-img", "convert", *options, "-f", "raw", "-O", "qcow2", str(raw), str(part)], timeout=600)
    raw.unlink()
    digest = _digest(part)
    with _lock:
        _built(state, name).unlink(missing_ok=True)  # from here on until the last line the published image does not count as whole
        part.replace(image)
        write_whole(_built(state, name), f"{key} {digest}\n")
        lines = [f"{known[1]}  {path.name}\n" for path in sorted(state.images.glob("*.qcow2")) if (known := _known(state, path.stem))]
        write_whole(state.images / SUMS, "".join(lines))
    return image


def _built(state: State, name: str) -> pathlib.Path:
    return state.images / f".{name}.key"


def _known(state: State, name: str) -> list[str]:
    """Return key and digest of a published image; nothing when none is known."""
    try:
        words = _built(state, name).read_text(encoding="ascii").split()
    except FileNotFoundError:
        return []
    return words if len(words) == 2 else []


def _sums(state: State) -> str:
    try:
        return (state.images / SUMS).read_text(encoding="ascii")
    except FileNotFoundError:
        return ""


def _digest(path: pathlib.Path) -> str:
    total = hashlib.sha256()
    with open(path, "rb") as handle:
        while block := handle.read(BLOCK):
            total.update(block)
    return total.hexdigest()
