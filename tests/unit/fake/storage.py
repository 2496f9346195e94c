# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pools and volumes of the fake, with libvirt's codes where it refuses."""

from __future__ import annotations

import errno
import posixpath

from ansible_collections.egress.kvm2.plugins.module_utils._host import classify, convert
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import CONFLICT, PERMANENT, TRANSIENT, Kvm2Error
from ansible_collections.egress.kvm2.plugins.module_utils._policy.model import Pool, Volume
from ansible_collections.egress.kvm2.plugins.module_utils._policy.xml import parse

from . import qcow2_bytes
from .calls import libvirt_error, recorded
from .machine import File

BLOCK = 65536


class Storage:
    """The part of the Hypervisor interface about pools and volumes, over self.machine."""

    def _pool_state(self, name):
        pool = self.machine.pools.get(name)
        if pool is None:
            raise Kvm2Error(PERMANENT, "use", f"pool {name} on {self.uri}", "there is no such pool", "See virsh pool-list --all.")
        return pool

    def _active_pool(self, operation, act, name):
        pool = self._pool_state(name)
        if not pool.active:
            raise libvirt_error(
                operation, act, f"pool {name} on {self.uri}", classify.OPERATION_INVALID, f"storage pool '{name}' is not active")
        return pool

    def _as_pool(self, pool):
        taken = 0 if not pool.active else pool.size - pool.available
        return Pool(
            name=pool.name, uuid=pool.uuid, type=pool.type, active=pool.active, path=pool.path, capacity=pool.size if pool.active else 0,
            allocation=taken, available=pool.available if pool.active else 0, autostart=pool.autostart)

    def _as_volume(self, pool, name):
        """model.Volume of a name that the pool lists, or None where it lists none or the file has gone."""
        path = posixpath.join(pool.path, name)
        file = self.machine.file(path) if name in pool.known else None
        if file is None:
            return None
        backing_path, backing_format = file.backing
        if backing_path is not None and not backing_path.startswith(("/", "json:")) and ":" not in backing_path:
            # libvirt gives a relative name back with the folder of the volume before it.
            backing_path = posixpath.join(pool.path, backing_path)
        return Volume(
            pool=pool.name, name=name, path=path, type="dir" if file.directory else "file", format="dir" if file.directory else file.format,
            capacity=file.capacity, allocation=file.allocated, physical=file.size, mtime=file.mtime, backing_path=backing_path,
            backing_format=backing_format)

    @recorded
    def backing_chain(self, path):
        """As qemu-img tells it on the machine itself."""
        if not self.is_local():
            return None
        chain, file = [], self.machine.file(path)
        while file is not None and file.backing[0] is not None:
            chain.append(file.backing[0])
            file = self.machine.file(chain[-1])
        return tuple(chain)

    @recorded
    def pools(self):
        return tuple(self._as_pool(pool) for pool in self.machine.pools.values())

    @recorded
    def pool(self, name):
        pool = self.machine.pools.get(name)
        return None if pool is None else self._as_pool(pool)

    @recorded
    def refresh_pool(self, name):
        pool = self._active_pool("refresh", "refresh", name)
        self.machine.refresh(pool)

    @recorded
    def volumes(self, pool):
        state = self._active_pool("read", "list", pool)
        found = (self._as_volume(state, name) for name in sorted(state.known))
        return tuple(volume for volume in found if volume is not None)

    @recorded
    def volume(self, pool, name):
        return self._as_volume(self._active_pool("read", "look up", pool), name)

    @recorded
    def create_volume(self, pool, xml):
        wanted, tree = convert.volume(pool, xml), parse(xml)
        obj = f"volume {wanted.name} in pool {pool} on {self.uri}"
        state = self._active_pool("create-volume", "create", pool)
        path = posixpath.join(state.path, wanted.name)

        def refuse(code, cause, os_error=0):
            return libvirt_error("create-volume", "create", obj, code, cause, os_error)

        if wanted.name in state.known:
            raise refuse(classify.STORAGE_VOL_EXIST, f"storage volume '{wanted.name}' exists already")
        if "/" in wanted.name:
            raise refuse(classify.OPERATION_INVALID, f"volume name '{wanted.name}' cannot contain '/'")
        if path in self.machine.files:
            raise refuse(classify.OPERATION_INVALID, f"volume target path '{path}' already exists")
        if len(wanted.name.encode()) > 255:
            raise refuse(classify.SYSTEM_ERROR, "File name too long", errno.ENAMETOOLONG)
        capacity = wanted.capacity
        if wanted.backing_path is not None:
            below = self.machine.file(posixpath.join(state.path, wanted.backing_path))
            if below is None:
                raise refuse(classify.SYSTEM_ERROR, f"Cannot access backing store volume {wanted.backing_path}", errno.ENOENT)
            capacity = capacity or below.capacity
        if wanted.format == "qcow2":
            data = qcow2_bytes.image(capacity, wanted.backing_path, wanted.backing_format)
            size = allocated = len(data)
        elif wanted.format in (None, "raw"):
            data, size = bytearray(), capacity
            allocated = capacity if tree.find("allocation") is None else min(wanted.allocation, capacity)
        else:
            raise NotImplementedError(f"the fake makes no volumes of format {wanted.format}")
        if allocated > self.machine.free(state):
            raise refuse(classify.SYSTEM_ERROR, f"cannot allocate {allocated} bytes in '{path}': No space left on device", errno.ENOSPC)
        self.machine.files[path] = File(data, size, self.machine.now, allocated)
        state.known.add(wanted.name)
        state.available -= allocated
        return self._as_volume(state, wanted.name)

    @recorded
    def delete_volume(self, pool, name):
        state = self._active_pool("delete-volume", "delete", pool)
        path = posixpath.join(state.path, name)
        if name not in state.known:
            return False
        state.known.discard(name)
        # The link goes, not what it points to; a running guest keeps its unlinked file.
        file = self.machine.files.pop(path, None)
        if file is None:
            return False
        state.available += file.allocated
        return True

    def _the_volume(self, operation, act, pool, name):
        state = self._active_pool(operation, act, pool)
        file = self.machine.file(posixpath.join(state.path, name)) if name in state.known else None
        if file is None:
            raise Kvm2Error(
                CONFLICT, act, f"volume {name} in pool {pool} on {self.uri}", "it has gone", "Something removed it; run again.",
                classify.NO_STORAGE_VOL)
        return state, file

    @recorded
    def resize_volume(self, pool, name, capacity):
        _state, file = self._the_volume("resize-volume", "resize", pool, name)

        def refuse(code, cause):
            return libvirt_error("resize-volume", "resize", f"volume {name} in pool {pool} on {self.uri}", code, cause)

        if capacity < file.capacity:
            raise refuse(classify.INVALID_ARG, "Can't shrink capacity below current capacity unless shrink flag explicitly specified")
        if self.machine.is_locked(file):
            raise refuse(classify.INTERNAL_ERROR, 'Failed to get "write" lock')
        self._grow(file, capacity)

    def _grow(self, file, capacity):
        file.mtime = self.machine.now
        if file.format == "qcow2":
            qcow2_bytes.grow(file.data, capacity)
            file.size, file.allocated = max(file.size, len(file.data)), max(file.allocated, len(file.data))
        else:
            file.size = capacity

    @recorded
    def upload(self, pool, name, blocks, length, sparse=False):
        obj = f"volume {name} in pool {pool} on {self.uri}"
        state, file = self._the_volume("upload", "upload", pool, name)
        sent = 0
        for block in blocks:
            self.reach("upload_block", (pool, name, sent), "before")
            if sent + len(block) > length:
                raise Kvm2Error(TRANSIENT, "upload", obj, f"the source has more than the {length} bytes it announced", "Try again.")
            room = self.machine.free(state) + file.allocated
            if sent + len(block) > file.allocated and sent + len(block) > room:
                raise RuntimeError(f"an upload into the unallocated {obj} met a full pool: that ends libvirtd 11.3")
            # Into the file that was there at the begin: if it was deleted since, nobody is told.
            file.write(sent, bytes(block))
            file.mtime = self.machine.now
            sent += len(block)
        if sent != length:
            raise Kvm2Error(TRANSIENT, "upload", obj, f"the source ended after {sent} of {length} bytes", "Try again.")
        if sparse:
            self._give_back(state, file)

    @recorded
    def dig_holes(self, path):
        file = self.machine.file(path)
        if not self.is_local() or file is None:
            return "its file is on another machine"
        self._give_back(next(pool for pool in self.machine.pools.values() if pool.path == posixpath.dirname(path)), file)
        return None

    def _give_back(self, state, file):
        data = sum(BLOCK for at in range(0, file.size, BLOCK) if any(file.read(at, min(BLOCK, file.size - at))))
        state.available += file.allocated - data
        file.allocated = data

    @recorded
    def download(self, pool, name, offset, length):
        return self._read_blocks(pool, name, offset, length)

    def _read_blocks(self, pool, name, offset, length):
        _state, file = self._the_volume("download", "read", pool, name)
        end = min(offset + length, file.size)
        while offset < end:
            block = file.read(offset, min(BLOCK, end - offset))
            offset += len(block)
            yield block
