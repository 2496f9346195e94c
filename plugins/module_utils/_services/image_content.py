# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a source to content that can go into a pool: hashed as fetched, unpacked, inspected, its length known before it is sent."""

from __future__ import annotations

import hashlib

from .._host import decompress, fetch, source, spool
from .._policy import http_text, image_kinds, qcow2
from .._policy.errors import PERMANENT, InvalidInput, Kvm2Error
from . import transfer


class Content:
    """An image on its way, made from ImageOptions; use as a context manager.

    length and info (qcow2.ImageInfo) are known once it is entered. blocks() gives the content once; after it (where the image was spooled:
    before it as well) fetched is "<algorithm>:<hex>" of what was fetched, and check() raises where that is not what was asked for.
    Where `wanted` is not None, it is the hex sha256 that what is stored has to have, and blocks(hashed=False) leaves it to whoever reads that back
    to see it: check_stored() has to be called then, in the place of check().
    """

    def __init__(self, options, checksum, pool_path, context):
        """pool_path: the pool's folder where it is on this machine, else None."""
        self._options = options
        self._checksum = checksum
        self._pool_path = pool_path
        self._context = context
        self._digest = hashlib.new(checksum.algorithm if checksum else "sha256")
        self._stored = hashlib.sha256()
        self._last = LastSector()
        # What is updated with what blocks() gives.
        self._digests = (self._stored,)
        self._source = self._ahead = self._spooled = self._blocks = None
        limit = options.max_virtual_size
        # So many bytes a compressed image may be fetched for whose server tells no length; None: without a limit.
        self._most_packed = None if limit is None else qcow2.longest(limit, snapshots=1)
        self.length = self.info = self.wanted = self._seen = None

    def __enter__(self):
        self._source = open_source(self._options)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_problem):
        self.close()

    def close(self):
        # The reading ahead first: a source that is closed in the middle of it would fail there.
        for one in (self._ahead, self._source, self._spooled):
            if one is not None:
                one.close()

    @property
    def name(self):
        return self._source.name

    @property
    def etag(self):
        return self._source.etag or ""

    @property
    def last_modified(self):
        return self._source.last_modified or ""

    @property
    def fetched(self):
        return f"{self._digest.name}:{self._seen or self._digest.hexdigest()}"

    @property
    def stored(self):
        """Hex sha256 of what blocks() has given."""
        return self._seen or self._stored.hexdigest()

    def _prepare(self):
        fetching = transfer.watched(
            self._source.blocks(), self._source.length, "fetch", self._context.progress, self._context.check_stop)
        head, blocks = transfer.take_head(fetching, qcow2.HEAD)
        kind = image_kinds.compression(head)
        if kind is None and self._source.length is not None:
            self.length = self._source.length
            self.info = self._inspect(head, self.length)
            self._blocks = blocks
            if self._digest.name == self._stored.name:
                # What is fetched is what is stored: hashed once.
                self._stored = self._digest
                self.wanted = self._checksum.digest if self._checksum else None
            self._digests = tuple({self._digest, self._stored})
            return
        blocks = self._ahead = transfer.prefetch(transfer.hashing(blocks, self._digest))
        if kind is not None:
            if self._source.length is None:
                blocks = self._within(blocks, lambda: self._most_packed, "no image that is allowed needs more", "")
            limit = self._options.max_virtual_size if self._options.format == "raw" else None
            head, blocks = transfer.take_head(decompress.decompressed(blocks, kind, self.name, limit), qcow2.HEAD)
        # What is wrong with its beginning is said before the rest is fetched.
        begun = self._inspect(head, None if len(head) >= qcow2.HEAD else len(head))
        self._spooled = spool.spool(
            self._bounded(blocks, begun), self.name, self._options.tmpdir, self._pool_path, self._source.length or 0, self._context.check_stop)
        self.check()
        self.length = self._spooled.length
        self.info = self._inspect(head, self.length)
        self._blocks = transfer.watched(self._spooled.blocks(), self.length, "store", self._context.progress, self._context.check_stop)

    def _inspect(self, head, length):
        return qcow2.inspect(head[:qcow2.HEAD], length, self._options.format, self.name, self._options.max_virtual_size)

    def _bounded(self, blocks, begun):
        """The blocks of an image that began as the qcow2.ImageInfo `begun` says; more than such an image can hold would only fill the disk."""
        if begun.format == "qcow2":
            most = self._most_packed = qcow2.longest(begun.virtual_size, begun.snapshots)
            why = f"a qcow2 image with a disk of {begun.virtual_size} bytes cannot hold more"
            return self._within(blocks, lambda: most, why, "; an unpacked file, as src, may be longer")
        most = self._options.max_virtual_size
        if most is not None:
            # Bytes that cannot be compressed grow a little.
            self._most_packed = qcow2.longest(most)
        return self._within(blocks, lambda: most, "max_virtual_size allows no more", "; raise max_virtual_size if it is right")

    def _within(self, blocks, most, why, remedy):
        """The blocks up to most() bytes; more are refused."""
        total = 0
        for block in blocks:
            total += len(block)
            limit = most()
            if limit is not None and total > limit:
                raise InvalidInput(
                    self.name, f"it goes on after {limit} bytes, and {why}", f"Look at what is sent there, it may have no end{remedy}.")
            yield block

    def blocks(self, hashed=True):
        return transfer.hashing(self._blocks, self._last, *(self._digests if hashed else ()))

    def check(self):
        """Raise where another digest was asked for."""
        if self._checksum is not None and self._digest.hexdigest() != self._checksum.digest:
            raise self._mismatch(self._digest.hexdigest(), "Correct checksum, or find out who changed the image.")

    def check_stored(self, found):
        """Raise where another digest was asked for than that of what was stored, a hex sha256."""
        self._seen = found
        if found != self.wanted:
            raise self._mismatch(
                found, "Correct checksum, or find out who changed the image. It was read back from the pool: where nobody did, check the pool's storage.")

    def _mismatch(self, found, hint):
        return Kvm2Error(PERMANENT, "import", self.name, f"its {self._digest.name} is {found} but {self._checksum.digest} was asked for", hint)

    def check_end(self):
        """Raise where the end of what was read shows that it is no raw image."""
        refusal = image_kinds.last_sector_refusal(self._last.sector) if self.info.format == "raw" else None
        if refusal is not None:
            raise InvalidInput(self.name, *refusal)


class LastSector:
    """Keeps the last sector of the blocks it is updated with, as a hash object is."""

    def __init__(self):
        self.sector = b""

    def update(self, block):
        self.sector = (self.sector + bytes(block[-image_kinds.SECTOR:]))[-image_kinds.SECTOR:]


def open_source(options):
    return fetch.open_source(options.url, options.fetch) if options.url is not None else source.open_file(options.src, options.fetch.check_stop)


def look(options):
    """(length in bytes or None, qcow2.ImageInfo or None) of the image that would be imported, from its first bytes. None where it is
    compressed and so not known without fetching it. Raises where it would be refused for those bytes."""
    if options.url is not None:
        length, head = fetch.probe(options.url, options.fetch, qcow2.HEAD)
        name = f"URL {http_text.shown(options.url)}"
    else:
        opened = source.open_file(options.src, options.fetch.check_stop)
        try:
            name, length = opened.name, opened.length
            head = transfer.take_head(opened.blocks(), qcow2.HEAD)[0][:qcow2.HEAD]
        finally:
            opened.close()
    if image_kinds.compression(head) is not None:
        return None, None
    return length, qcow2.inspect(head, length, options.format, name, options.max_virtual_size)
