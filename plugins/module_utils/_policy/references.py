# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files are in use, by whom, and what could not be looked into.

libvirt deletes a file in use without a word, so everything that decides on a deletion asks here first.
"""

from __future__ import annotations

import functools
import posixpath
import re
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Optional, Tuple

from . import backing, names
from .backing import normal
from .errors import Kvm2Error
from .model import FILE_POOLS
from .xml import parse

# Formats that name no other file.
_LEAVES = ("raw", "iso", "dir")


class User(str):
    """Who uses a file, in words: "domain edge.proxy-01", "volume x.qcow2 in pool default". kind is "domain" or "volume".

    uuid is the domain's, path the volume's; the other one is None.
    """

    kind: str
    uuid: Optional[str]
    path: Optional[str]

    def __new__(cls, text, kind, uuid=None, path=None):
        self = super().__new__(cls, text)
        self.kind, self.uuid, self.path = kind, uuid, path
        return self


@dataclass
class References:
    """blocked: why a file that nobody is seen to use may be in use all the same, each reason naming its object; empty when all was seen."""

    blocked: Tuple[str, ...] = ()
    _users: Dict[str, List[User]] = field(default_factory=dict)
    _folders: Dict[str, List[User]] = field(default_factory=dict)
    resolved: Callable[[str], str] = normal

    def users_of(self, path):
        """The User of each domain and volume that references the file at this path, without doubles."""
        found = []
        for key in sorted({normal(path), self.resolved(path)}):
            found.extend(self._users.get(key, ()))
            while self._folders and key != "/":
                key = posixpath.dirname(key)
                found.extend(self._folders.get(key, ()))
        return tuple(dict.fromkeys(found))

    def add(self, path, user, folder=False):
        users = self._folders if folder else self._users
        for key in sorted({normal(path), self.resolved(path)}):
            users.setdefault(key, []).append(user)


def used_files(inventory, resolve=None, ignore_pools=(), follow=None):
    """The References of a model.Inventory.

    resolve: path → path without symlinks, where the module sees the files; a Kvm2Error of it is a reason for doubt.  follow: path of an image
    → the paths of its whole backing chain below it, or None where it cannot be read; given where the module may read the files.
    ignore_pools: inactive pools that an operator vouches for.
    """
    search = _Search(inventory, resolve, follow)
    for domain in inventory.domains:
        search.domain(domain)
    for volume in inventory.volumes:
        search.volume(volume)
    search.follow_unlisted()
    if resolve is None:
        search.suspect_links()
    search.blocked_by_pools(ignore_pools)
    search.blocked_by_folders()
    search.found.blocked = tuple(dict.fromkeys(search.blocked))
    return search.found


def paths_of_domain(tree, inventory, listing=None):
    """The set of all absolute paths that a parsed <domain> names, volumes of pools included, in the form backing.normal gives.

    listing: the Listing of the inventory, for callers who ask about many domains.
    """
    return {path for path, _format, _ends in _mentioned(tree, listing or Listing(inventory))}


def unlisted(paths, inventory, listing=None):
    """Those of the paths that no active pool lists and that lie in no folder of one: whether their files are there cannot be seen."""
    listing = listing or Listing(inventory)
    return tuple(sorted(path for path in paths if path not in listing.listed and posixpath.dirname(path) not in listing.active_folders))


def unlisted_of_instance(domain, inventory, listing=None):
    """Overlays and seeds of its own uid that a domain names and that no active pool lists: a deletion would leave them behind."""
    listing = listing or Listing(inventory)
    named = set()
    for text in domain.xmls:
        named.update(paths_of_domain(parse(text), inventory, listing))
    own = [path for path in named if getattr(names.parse_instance_volume(posixpath.basename(path)), "uid", None) == domain.uuid]
    return unlisted(own, inventory, listing)


def each_file(volumes):
    """The volumes without those whose file an earlier one names too: two pools over one folder list each file twice."""
    first = {}
    for volume in volumes:
        first.setdefault(normal(volume.path), volume)
    return tuple(first.values())


class Listing:
    """Volumes of an inventory by pool and name, and the folders of its pools: made once for many questions."""

    def __init__(self, inventory):
        self._paths = {(volume.pool, volume.name): volume.path for volume in inventory.volumes}
        self._folders = {pool.name: pool.path for pool in inventory.pools}
        self.listed = {normal(volume.path) for volume in inventory.volumes}
        self.active_folders = {normal(pool.path) for pool in inventory.pools if pool.active and pool.path}

    def paths(self, pool, name):
        """Where the volume is, and where it would be if libvirt has not seen it yet."""
        listed, folder = self._paths.get((pool, name)), self._folders.get(pool)
        return {normal(path) for path in (listed, folder and posixpath.join(folder, name)) if path}


def _listed_folders(inventory):
    """Folders of which every file is known: those of pools that were refreshed and read."""
    doubtful = {name for name, _cause in inventory.unrefreshed}
    unreadable = {name for name, _cause in inventory.unreadable}
    return {
        normal(pool.path) for pool in inventory.pools
        if pool.path and pool.active and pool.type in FILE_POOLS and pool.name not in doubtful and f"pool {pool.name}" not in unreadable}


class _Search:
    def __init__(self, inventory, resolve, follow):
        self.inventory = inventory
        self.follow = follow
        self.found = References(resolved=normal if resolve is None else functools.partial(self._resolved, resolve))
        self._unseen = {}
        self.blocked = [f"{name} cannot be read: {cause}" for name, cause in inventory.unreadable]
        self._volumes = Listing(inventory)
        # Files whose next file below is known, or that have none; and files of which that must still be found out.
        readable = [volume.path for volume in inventory.volumes if not volume.unreadable]
        self._known = {normal(path) for path in readable} | {self.found.resolved(path) for path in readable}
        self._open = {}
        self._listed_folders = _listed_folders(inventory)

    def _resolved(self, resolve, path):
        folder = posixpath.dirname(path)
        if folder not in self._unseen:
            try:
                return normal(resolve(path))
            except Kvm2Error as error:
                self._unseen[folder] = error.cause
        return normal(path)

    def domain(self, domain):
        user = User(f"domain {domain.name}", "domain", uuid=domain.uuid)
        if domain.unreadable or not domain.xmls:
            self.blocked.append(f"domain {domain.name} cannot be read: {domain.unreadable or 'it has no XML'}")
        for text in (*domain.xmls, *domain.snapshot_xmls):
            try:
                tree = parse(text)
            except ValueError as error:
                self.blocked.append(f"domain {domain.name} cannot be read: {error}")
                continue
            for path, image_format, ends in _mentioned(tree, self._volumes):
                self.found.add(path, user)
                self._reach(path, image_format, ends, user)
            for folder in _folders(tree):
                self.found.add(folder, user, folder=True)

    def volume(self, volume):
        user = User(f"volume {volume.name} in pool {volume.pool}", "volume", path=volume.path)
        if volume.unreadable:
            self.blocked.append(f"{user} cannot be read: {volume.unreadable}")
        if volume.backing_path is None:
            return
        below = backing.read(volume.backing_path, posixpath.dirname(volume.path))
        if below.problem:
            self.blocked.append(f"{user}: {below.problem}")
        for path in below.paths:
            self.found.add(path, user)
            self._reach(path, volume.backing_format, False, user)

    def _reach(self, path, image_format, ends, user):
        """Note that a file is used whose own backing file must be known too."""
        if ends:
            self._known.add(path)
        elif image_format not in _LEAVES:
            self._open.setdefault(path, user)

    def follow_unlisted(self):
        """What lies below files that no pool lists: seen by `follow`, or else a reason for doubt."""
        for path, user in self._open.items():
            # A pool lists every file of its folder, so one that is not listed there does not exist.
            if path in self._known or self.found.resolved(path) in self._known or posixpath.dirname(path) in self._listed_folders:
                continue
            chain = self.follow(path) if self.follow is not None else None
            if chain is None:
                self.blocked.append(f"{user} uses {path}, which no active pool lists: what it is backed by cannot be seen")
                continue
            for below in chain:
                self.found.add(below, user)

    def suspect_links(self):
        """Where links cannot be resolved, a volume that is used and looks exactly like another one may be a link to it.

        Our own names are never links: they are made once, under a nonce.
        """
        alike = {}
        for volume in self.inventory.volumes:
            if volume.mtime is not None:
                alike.setdefault((volume.physical, volume.mtime, volume.capacity, volume.format), []).append(volume)
        for group in alike.values():
            for volume in group:
                if len(group) == 1 or names.parse_base(volume.name) or names.parse_instance_volume(volume.name):
                    continue
                for user in self.found.users_of(volume.path):
                    for other in group:
                        if other is not volume:
                            self.found.add(other.path, user)

    def blocked_by_pools(self, ignore_pools):
        for name in self.inventory.inactive_pools:
            if name not in ignore_pools:
                self.blocked.append(f"pool {name} is not active: its volumes cannot be seen (start it, or name it in ignore_pools)")
        for name, cause in self.inventory.unrefreshed:
            self.blocked.append(f"pool {name} could not be refreshed: {cause}")

    def blocked_by_folders(self):
        for folder, cause in self._unseen.items():
            self.blocked.append(f"what lies in {folder} cannot be seen: {cause}")


def _mentioned(tree, volumes):
    """(path, format or None, ends) of everything in a domain, or in a snapshot of one, that names a file.

    format is that of a disk's image where one is given; ends is True where the definition says what the file is backed by.
    """
    # A snapshot holds its guest's definition of then, and the disks that it made.
    for disk in (*tree.iterfind("devices/disk"), *tree.iterfind("*/devices/disk"), *tree.iterfind("disks/disk")):
        yield from _chain(disk, disk.find("driver"), volumes)
        for mirror in disk.iterfind("mirror"):
            # libvirt says that a copy stands alone while it is made, whatever its header names; after the pivot the header counts.
            yield from ((path, image_format, False) for path, image_format, _ends in _chain(mirror, mirror.find("format"), volumes))
            if mirror.get("file"):
                yield normal(mirror.get("file")), _type_of(mirror.find("format")), False
    for path in _any_paths(tree):
        # Whatever kind of element it is, a file that a definition names is not deleted. No image, so nothing lies below it.
        yield path, "raw", False
    for source in tree.iter("source"):
        if source.get("volume"):
            for path in volumes.paths(source.get("pool"), source.get("volume")):
                yield path, "raw", False


def _chain(element, format_element, volumes):
    """The source of a disk, a mirror or a backing store, and everything below it."""
    image_format = _type_of(format_element)
    while element is not None:
        below = element.find("backingStore")
        for source in element.iterfind("source"):
            for path in _source_paths(source, volumes):
                yield path, image_format, below is not None
            for store in source.iterfind("dataStore"):
                yield from _chain(store, store.find("format"), volumes)
        element = below
        image_format = None if below is None else _type_of(below.find("format"))


def _type_of(element):
    return None if element is None else element.get("type")


def _source_paths(source, volumes):
    if source.get("volume"):
        yield from volumes.paths(source.get("pool"), source.get("volume"))
    for attribute in ("file", "dev"):
        if source.get(attribute, "").startswith("/"):
            yield normal(source.get(attribute))


def _any_paths(tree):
    """Every absolute path in attributes and texts outside <metadata>, those inside command line arguments included."""
    for child in tree:
        if child.tag == "metadata":
            continue
        for element in child.iter():
            if not isinstance(element.tag, str):
                continue
            for text in (element.text, *element.attrib.values()):
                text = (text or "").strip()
                if text.startswith("/"):
                    yield normal(text)
                elif "/" in text:
                    yield from (normal(part) for part in re.split(r"[\s,=:\"']+", text) if part.startswith("/"))


def _folders(tree):
    """Folders that a guest shares: everything in them may be in use."""
    for where in ("devices/filesystem", "devices/disk", "*/devices/filesystem", "*/devices/disk"):
        for element in tree.iterfind(f"{where}/source"):
            if element.get("dir", "").startswith("/"):
                yield normal(element.get("dir"))
