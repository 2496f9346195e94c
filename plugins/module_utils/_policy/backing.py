# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The name of a backing file as an image's header has it: a path, a relative path, a URI or QEMU's json: form."""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import dataclass
from typing import Optional, Tuple

# As QEMU tells them from paths: a colon before the first slash.
_PROTOCOL_RE = re.compile(r"([^:/]*):(.*)", re.DOTALL)
# What lies behind these is on no local file.
_NETWORK = re.compile(r"nbd|nbd\+.*|https?|ftps?|ssh|rbd|iscsi(\+.*)?|gluster(\+.*)?|sheepdog(\+.*)?|nfs|vxhs|null-co|null-aio", re.ASCII)
_LOCAL = ("file", "host_device", "host_cdrom", "raw")
_DEEPEST = 64


@dataclass(frozen=True)
class Backing:
    """paths: the local files that the name leads to, empty where it leads to none; problem: why that cannot be told, or None."""

    paths: Tuple[str, ...] = ()
    problem: Optional[str] = None


def normal(path):
    """An absolute path in its shortest form, without asking the filesystem."""
    return posixpath.normpath("/" + path.lstrip("/"))


def read(name, folder):
    """Backing of a name found in an image that lies in `folder`."""
    if name.startswith("json:"):
        return _read_json(name[5:], folder)
    protocol = _PROTOCOL_RE.fullmatch(name)
    if protocol is None:
        return Backing((_absolute(name, folder),))
    scheme, rest = protocol.groups()
    if _NETWORK.fullmatch(scheme):
        return Backing()
    if scheme in _LOCAL:
        return Backing((_absolute(rest, folder),))
    return Backing(problem=f"the backing name {name!r} is of a kind that is not known")


def _absolute(path, folder):
    return normal(path if path.startswith("/") else posixpath.join(folder, path))


def _read_json(text, folder):
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return Backing(problem="the json: backing name does not parse")
    if not isinstance(data, dict):
        return Backing(problem="the json: backing name is not an object")
    paths, drivers = [], []
    if not _walk(data, folder, paths, drivers, _DEEPEST):
        return Backing(problem="the json: backing name is nested too deeply")
    if not paths and not any(_NETWORK.fullmatch(driver) for driver in drivers):
        return Backing(problem="the json: backing name holds no file name")
    return Backing(tuple(dict.fromkeys(paths)))


def _walk(data, folder, paths, drivers, depth):
    """Collect file names and drivers of a block device tree, whose keys may be nested or written with dots (file.filename)."""
    if depth == 0:
        return False
    for key, value in data.items():
        last = key.rpartition(".")[2]
        if isinstance(value, dict):
            if not _walk(value, folder, paths, drivers, depth - 1):
                return False
        elif isinstance(value, str) and last == "driver":
            drivers.append(value)
        elif isinstance(value, str) and last == "filename":
            inner = read(value, folder) if not value.startswith("json:") else _read_json(value[5:], folder)
            paths.extend(inner.paths)
            if not inner.paths:
                # A URI in the place of a file name; what is not known there is reported below as a name without a file.
                drivers.append(value.partition(":")[0])
    return True
