# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""libvirt's XML of pools, volumes and networks, read into the model's values."""

from __future__ import annotations

from .._policy.model import Network, Node, Pool, Volume
from .._policy.xml import parse

_UNITS = {"bytes": 1, "B": 1, "KiB": 1024, "MiB": 1024 ** 2, "GiB": 1024 ** 3, "TiB": 1024 ** 4}

# virDomain state numbers → reason numbers → words, as libvirt.org documents them.
REASONS = {
    1: {1: "booted", 2: "migrated", 3: "restored", 4: "from snapshot", 5: "unpaused", 9: "crashed and restarted"},
    3: {1: "user", 2: "migration", 3: "save", 4: "dump", 5: "ioerror", 6: "watchdog", 7: "from snapshot", 8: "shutting down",
        9: "snapshot", 10: "crashed", 11: "starting up", 12: "postcopy", 13: "postcopy failed"},
    5: {1: "shutdown", 2: "destroyed", 3: "crashed", 4: "migrated", 5: "saved", 6: "failed", 7: "from snapshot", 8: "daemon"},
    6: {1: "panicked"},
}


def state_reason(state, reason):
    return REASONS.get(state, {}).get(reason, "")


def _size(element):
    if element is None or not (element.text or "").strip():
        return 0
    return int(element.text) * _UNITS.get(element.get("unit", "bytes"), 1)


def pool(xml, active, autostart):
    tree = parse(xml)
    return Pool(
        name=tree.findtext("name"), uuid=tree.findtext("uuid"), type=tree.get("type"), active=active, path=tree.findtext("target/path"),
        capacity=_size(tree.find("capacity")), allocation=_size(tree.find("allocation")), available=_size(tree.find("available")),
        autostart=autostart, folder=_folder(tree.findtext("target/path"), tree.find("target/permissions")))


def _folder(path, permissions):
    if path is None or permissions is None or permissions.find("mode") is None:
        return None
    numbers = [permissions.findtext(name) or "" for name in ("owner", "group")]
    if not all(number.isdigit() for number in numbers):
        return None
    return Node(path, int(numbers[0]), int(numbers[1]), int(permissions.findtext("mode"), 8), label=permissions.findtext("label"))


def volume(pool_name, xml):
    tree = parse(xml)
    target_format, backing_format = tree.find("target/format"), tree.find("backingStore/format")
    mtime = tree.findtext("target/timestamps/mtime")
    return Volume(
        pool=pool_name, name=tree.findtext("name"), path=tree.findtext("target/path"), type=tree.get("type", "file"),
        format=None if target_format is None else target_format.get("type"),
        capacity=_size(tree.find("capacity")), allocation=_size(tree.find("allocation")), physical=_size(tree.find("physical")),
        mtime=None if mtime is None else float(mtime), backing_path=tree.findtext("backingStore/path"),
        backing_format=None if backing_format is None else backing_format.get("type"))


def network(xml, active, autostart):
    tree = parse(xml)
    from .._policy import network_checks
    bridge = tree.find("bridge")
    return Network(
        tree.findtext("name"), tree.findtext("uuid"), active, None if bridge is None else bridge.get("name"), autostart,
        network_checks.vlans_since(tree))
