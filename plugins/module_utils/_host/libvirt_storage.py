# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pools and volumes over libvirt."""

from __future__ import annotations

import contextlib
import errno

from .._policy.errors import PERMANENT, TRANSIENT, Kvm2Error
from . import classify, convert
from .libvirt_connection import Connection, libvirt
from .reopening import reads, writes

# The largest block that the remote protocol of every supported release sends in one message.
BLOCK = 262120
# A hole of that size is worth the extra messages.
PIECE = 65536
# An empty overlay takes some 200 KiB.
LEAST_ROOM = 1024 ** 2


class StorageCalls(Connection):
    """The part of the Hypervisor interface about pools and volumes."""

    def _pool(self, name):
        handle = self._find(classify.NO_STORAGE_POOL, "look up", f"pool {name}", self._conn.storagePoolLookupByName, name)
        if handle is None:
            raise Kvm2Error(PERMANENT, "use", f"pool {name} on {self.uri}", "there is no such pool", "See virsh pool-list --all.")
        return handle

    def _volume(self, pool, name):
        """The volume's handle or None."""
        handle = self._pool(pool)
        return self._find(classify.NO_STORAGE_VOL, "look up", f"volume {name} in pool {pool}", handle.storageVolLookupByName, name)

    def _the_volume(self, pool, name, act):
        handle = self._volume(pool, name)
        if handle is None:
            raise Kvm2Error(
                classify.CONFLICT, act, f"volume {name} in pool {pool} on {self.uri}", "it has gone", "Something removed it; run again.",
                classify.NO_STORAGE_VOL)
        return handle

    def _read_pool(self, handle):
        obj = f"pool {handle.name()}"
        return convert.pool(
            self._call("read", "read", obj, handle.XMLDesc, 0), bool(self._call("read", "read", obj, handle.isActive)),
            bool(self._call("read", "read", obj, handle.autostart)))

    @reads
    def pools(self):
        handles = self._call("read", "list", f"pools of {self.uri}", self._conn.listAllStoragePools, 0)
        return tuple(self._read_pool(handle) for handle in handles)

    @reads
    def pool(self, name):
        handle = self._find(classify.NO_STORAGE_POOL, "look up", f"pool {name}", self._conn.storagePoolLookupByName, name)
        return None if handle is None else self._read_pool(handle)

    @reads
    def refresh_pool(self, name):
        self._call("refresh", "refresh", f"pool {name}", self._pool(name).refresh, 0)

    @reads
    def volumes(self, pool):
        found = []
        for handle in self._call("read", "list", f"volumes of pool {pool}", self._pool(pool).listAllVolumes, 0):
            volume = self._read_volume(pool, handle)
            if volume is not None:
                found.append(volume)
        return tuple(found)

    def _read_volume(self, pool, handle):
        name = handle.name()
        xml = self._find(classify.NO_STORAGE_VOL, "read", f"volume {name} in pool {pool}", handle.XMLDesc, 0)
        return None if xml is None else convert.volume(pool, xml)

    @reads
    def volume(self, pool, name):
        handle = self._volume(pool, name)
        return None if handle is None else self._read_volume(pool, handle)

    @writes
    def create_volume(self, pool, xml):
        name = convert.volume(pool, xml).name
        obj = f"volume {name} in pool {pool}"
        try:
            handle = self._call("create-volume", "create", obj, self._pool(pool).createXML, xml, 0)
        except Kvm2Error as error:
            # Where qemu-img makes the volume libvirt passes on no errno: the pool itself tells whether it is full.
            if error.code == classify.INTERNAL_ERROR and not self._is_lost() and self._is_full(pool):
                kind, hint = classify.classify("create-volume", classify.SYSTEM_ERROR, errno.ENOSPC)
                raise Kvm2Error(kind, error.act, error.object, error.cause, hint, error.code) from error
            raise
        volume = self._read_volume(pool, handle)
        if volume is None:
            raise Kvm2Error(classify.CONFLICT, "create", f"volume {name} in pool {pool} on {self.uri}", "it vanished at once", "Run again.")
        return volume

    def _is_full(self, pool):
        self.refresh_pool(pool)
        found = self.pool(pool)
        return found is not None and found.available < LEAST_ROOM

    @writes
    def delete_volume(self, pool, name):
        handle = self._volume(pool, name)
        if handle is None:
            return False
        try:
            self._call("delete-volume", "delete", f"volume {name} in pool {pool}", handle.delete, 0)
        except Kvm2Error as error:
            if error.code == classify.NO_STORAGE_VOL:
                return False
            raise
        return True

    @writes
    def resize_volume(self, pool, name, capacity):
        handle = self._the_volume(pool, name, "resize")
        self._call("resize-volume", "resize", f"volume {name} in pool {pool}", handle.resize, capacity, 0)

    @writes
    def upload(self, pool, name, blocks, length, sparse=False):
        obj = f"volume {name} in pool {pool}"
        stream = self._call("upload", "upload", obj, self._conn.newStream, 0)
        handle = self._the_volume(pool, name, "upload")
        flags = libvirt.VIR_STORAGE_VOL_UPLOAD_SPARSE_STREAM if sparse else 0
        self._call("upload", "upload", obj, handle.upload, stream, 0, length, flags)
        finished = False
        try:
            sent = hole = 0
            for block in blocks:
                # One byte more than was declared ends the daemon of some releases; fewer would be filled up with zeros.
                if sent + len(block) > length:
                    raise Kvm2Error(TRANSIENT, "upload", obj, f"the source has more than the {length} bytes it announced", "Try again.")
                sent += len(block)
                for piece in _pieces(block) if sparse else (block,):
                    if sparse and piece.count(0) == len(piece):
                        hole += len(piece)
                        continue
                    hole = self._send_hole(stream, obj, hole)
                    self._send(stream, obj, piece)
            if sent != length:
                raise Kvm2Error(TRANSIENT, "upload", obj, f"the source ended after {sent} of {length} bytes", "Try again.")
            self._send_hole(stream, obj, hole)
            self._call("upload", "finish the upload of", obj, stream.finish)
            finished = True
        finally:
            if not finished:
                _abort(stream)

    def _send(self, stream, obj, data):
        while data:
            taken = self._call("upload", "upload", obj, stream.send, data if len(data) <= BLOCK else data[:BLOCK])
            data = data[taken:] if taken < len(data) else b""

    def _send_hole(self, stream, obj, size):
        if size:
            self._call("upload", "upload", obj, stream.sendHole, size, 0)
        return 0

    def download(self, pool, name, offset, length):
        self.revive()
        done = 0
        while True:
            try:
                with contextlib.closing(self._download(pool, name, offset + done, length - done)) as blocks:
                    for block in blocks:
                        done += len(block)
                        yield block
                return
            except Kvm2Error:
                # Over another connection it goes on where it was: what takes more than one block is a base, which is never written again.
                if not self.revive():
                    raise
            # A length of 0 would be all that is left.
            if done and done == length:
                return

    def _download(self, pool, name, offset, length):
        obj = f"volume {name} in pool {pool}"
        handle = self._the_volume(pool, name, "read")
        stream = self._call("download", "read", obj, self._conn.newStream, 0)
        self._call("download", "read", obj, handle.download, stream, offset, length, 0)
        finished = False
        try:
            while True:
                block = self._call("download", "read", obj, stream.recv, BLOCK)
                if not block:
                    break
                yield block
            self._call("download", "read", obj, stream.finish)
            finished = True
        finally:
            if not finished:
                _abort(stream)


def _pieces(block):
    """A block in parts small enough that holes between data are seen."""
    return (block[at:at + PIECE] for at in range(0, len(block), PIECE))


def _abort(stream):
    try:
        stream.abort()
    except libvirt.libvirtError:
        pass
