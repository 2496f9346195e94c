# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of a hypervisor's volumes its domains have as disks."""

from __future__ import annotations

from .xml import parse


def disks(domains, volumes):
    """(used, written): paths of the files that these model.Domains name as disks or below one, and of those that they write to.

    A disk that is given as a volume of a pool has the path of that model.Volume, if it is among `volumes`. XML that cannot be read tells none.
    """
    by_name = {(volume.pool, volume.name): volume.path for volume in volumes}
    used, written = set(), set()
    for domain in domains:
        for text in domain.xmls:
            for disk in _disks(text):
                paths = [path for path in (_path(source, by_name) for source in disk.iter("source")) if path]
                used.update(paths)
                top = _path(disk.find("source"), by_name)
                if top and disk.find("readonly") is None:
                    written.add(top)
    return frozenset(used), frozenset(written)


def _disks(text):
    try:
        return parse(text).findall("devices/disk")
    except ValueError:
        return ()


def _path(source, by_name):
    if source is None:
        return None
    return source.get("file") or by_name.get((source.get("pool"), source.get("volume")))
