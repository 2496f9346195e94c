# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Hypervisor over libvirt: the only file that imports libvirt."""

from __future__ import annotations

import os
import threading
import traceback
from urllib.parse import urlsplit

from .._policy.errors import PERMANENT, TRANSIENT, Kvm2Error
from .._policy.model import STATES, Address, Domain, HostFacts
from . import classify, convert
from .hypervisor import Hypervisor

try:
    import libvirt
    LIBVIRT_IMPORT_ERROR = None
except ImportError:
    libvirt = None
    LIBVIRT_IMPORT_ERROR = traceback.format_exc()

# The largest block that the remote protocol of every supported release sends in one message.
BLOCK = 262120
RETRIES = 8
FIRST_PAUSE = 0.1

_SOURCES = {"lease": 0, "agent": 1, "arp": 2}


class LibvirtHypervisor(Hypervisor):
    """connect_timeout and keepalive_interval in seconds. `deadline` bounds what libvirt itself cannot bound."""

    def __init__(self, uri, deadline, connect_timeout=10, keepalive_interval=5, keepalive_count=3):
        self.uri = uri
        self._deadline = deadline
        self._closed_by_peer = threading.Event()
        self._events = _EventLoop.shared()
        deadline.narrow(connect_timeout, "connect to", f"hypervisor {uri}")
        try:
            self._conn = self._call("open", "connect to", f"hypervisor {uri}", libvirt.open, uri)
        finally:
            deadline.widen()
        self._call("open", "watch", f"hypervisor {uri}", self._conn.registerCloseCallback, self._on_close, None)
        if not self.is_local() or keepalive_interval:
            self._call("open", "watch", f"hypervisor {uri}", self._conn.setKeepAlive, int(keepalive_interval), int(keepalive_count))

    def _on_close(self, conn, reason, opaque):
        self._closed_by_peer.set()

    def close(self):
        # A close can wait behind a blocked call; it is given some seconds and then left to the end of the process.
        closer = threading.Thread(target=self._close, name="kvm2-close", daemon=True)
        closer.start()
        closer.join(5)

    def _close(self):
        try:
            self._conn.unregisterCloseCallback()
            self._conn.close()
        except libvirt.libvirtError:
            pass

    # -- calls

    def _error(self, operation, act, obj, error):
        code = error.get_error_code()
        kind, hint = classify.classify(operation, code, error.get_int1() or 0)
        if operation != "open" and self._is_lost():
            kind, hint = TRANSIENT, "The connection was lost; try again once the hypervisor answers."
        obj = obj if self.uri in obj else f"{obj} on {self.uri}"
        return Kvm2Error(kind, act, obj, error.get_error_message() or str(error), hint, code)

    def _is_lost(self):
        if self._closed_by_peer.is_set():
            return True
        try:
            return not self._conn.isAlive()
        except libvirt.libvirtError:
            return True

    def _call(self, operation, act, obj, function, *args):
        """Call; a passing condition of the daemon (a job in the pool, a volume still being made) is waited for, some ten seconds at most."""
        pause = FIRST_PAUSE
        for attempt in range(RETRIES):
            try:
                return function(*args)
            except libvirt.libvirtError as error:
                if attempt == RETRIES - 1 or not _is_passing(error) or operation == "open":
                    raise self._error(operation, act, obj, error) from error
            threading.Event().wait(pause)
            pause = min(pause * 2, 2.5)
        return None

    def _find(self, missing, act, obj, function, *args):
        """Like _call for a look-up: None where the object does not exist."""
        try:
            return function(*args)
        except libvirt.libvirtError as error:
            if error.get_error_code() == missing:
                return None
            raise self._error("read", act, obj, error) from error

    # -- the host

    def is_local(self):
        return not urlsplit(self.uri).hostname

    def host(self):
        obj = f"hypervisor {self.uri}"
        info = self._call("read", "read", obj, self._conn.getInfo)
        return HostFacts(
            hostname=self._call("read", "read", obj, self._conn.getHostname), arch=info[0], cpus=info[2], memory=info[1] * 1024 ** 2,
            libvirt_version=self._call("read", "read", obj, self._conn.getLibVersion),
            hypervisor_version=self._call("read", "read", obj, self._conn.getVersion),
            capabilities_xml=self._call("read", "read", obj, self._conn.getCapabilities))

    def domain_capabilities(self, virt_type, arch=None, machine=None):
        try:
            return self._conn.getDomainCapabilities(None, arch, machine, virt_type, 0)
        except libvirt.libvirtError as error:
            if not self._is_lost():
                return None
            raise self._error("read", "read", "domain capabilities", error) from error

    # -- pools and volumes

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

    def pools(self):
        handles = self._call("read", "list", f"pools of {self.uri}", self._conn.listAllStoragePools, 0)
        return tuple(self._read_pool(handle) for handle in handles)

    def pool(self, name):
        handle = self._find(classify.NO_STORAGE_POOL, "look up", f"pool {name}", self._conn.storagePoolLookupByName, name)
        return None if handle is None else self._read_pool(handle)

    def refresh_pool(self, name):
        self._call("refresh", "refresh", f"pool {name}", self._pool(name).refresh, 0)

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

    def volume(self, pool, name):
        handle = self._volume(pool, name)
        return None if handle is None else self._read_volume(pool, handle)

    def create_volume(self, pool, xml):
        name = convert.volume(pool, xml).name
        handle = self._call("create-volume", "create", f"volume {name} in pool {pool}", self._pool(pool).createXML, xml, 0)
        volume = self._read_volume(pool, handle)
        if volume is None:
            raise Kvm2Error(classify.CONFLICT, "create", f"volume {name} in pool {pool} on {self.uri}", "it vanished at once", "Run again.")
        return volume

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

    def resize_volume(self, pool, name, capacity):
        handle = self._the_volume(pool, name, "resize")
        self._call("resize-volume", "resize", f"volume {name} in pool {pool}", handle.resize, capacity, 0)

    def upload(self, pool, name, blocks, length):
        obj = f"volume {name} in pool {pool}"
        stream = self._call("upload", "upload", obj, self._conn.newStream, 0)
        handle = self._the_volume(pool, name, "upload")
        self._call("upload", "upload", obj, handle.upload, stream, 0, length, 0)
        finished = False
        try:
            sent = 0
            for block in blocks:
                # One byte more than was declared ends the daemon of some releases; fewer would be filled up with zeros.
                if sent + len(block) > length:
                    raise Kvm2Error(TRANSIENT, "upload", obj, f"the source has more than the {length} bytes it announced", "Try again.")
                view = memoryview(block)
                while len(view):
                    view = view[self._call("upload", "upload", obj, stream.send, bytes(view[:BLOCK])):]
                sent += len(block)
            if sent != length:
                raise Kvm2Error(TRANSIENT, "upload", obj, f"the source ended after {sent} of {length} bytes", "Try again.")
            self._call("upload", "finish the upload of", obj, stream.finish)
            finished = True
        finally:
            if not finished:
                _abort(stream)

    def download(self, pool, name, offset, length):
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

    # -- domains

    def _domain(self, uuid):
        return self._find(classify.NO_DOMAIN, "look up", f"domain {uuid}", self._conn.lookupByUUIDString, uuid)

    def _the_domain(self, uuid, act):
        handle = self._domain(uuid)
        if handle is None:
            raise Kvm2Error(classify.CONFLICT, act, f"domain {uuid} on {self.uri}", "it has gone", "Something removed it; run again.", classify.NO_DOMAIN)
        return handle

    def _read_domain(self, handle, detail=False):
        """model.Domain, or None when it vanished meanwhile. XML that cannot be read is said, not raised: it may hold references."""
        obj = f"domain {handle.name()}"
        try:
            state, reason = handle.state(0)
            active, persistent = bool(handle.isActive()), bool(handle.isPersistent())
            xml = live = unreadable = None
            try:
                if persistent:
                    xml = handle.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE)
                if active:
                    live = _live_xml(handle)
            except libvirt.libvirtError as error:
                if error.get_error_code() == classify.NO_DOMAIN or self._is_lost():
                    raise
                unreadable = error.get_error_message()
            return Domain(
                name=handle.name(), uuid=handle.UUIDString(), state=STATES[state] if state < len(STATES) else "nostate",
                reason=convert.state_reason(state, reason), active=active, persistent=persistent,
                autostart=bool(handle.autostart()) if persistent else False,
                managed_save=bool(handle.hasManagedSaveImage(0)) if persistent else False,
                snapshots=handle.snapshotNum(0) if detail else 0,
                checkpoints=len(handle.listAllCheckpoints(0)) if detail else 0,
                xml=xml, live_xml=live, unreadable=unreadable)
        except libvirt.libvirtError as error:
            if error.get_error_code() == classify.NO_DOMAIN:
                return None
            raise self._error("read", "read", obj, error) from error

    def domains(self):
        handles = self._call("read", "list", f"domains of {self.uri}", self._conn.listAllDomains, 0)
        read = (self._read_domain(handle) for handle in handles)
        return tuple(domain for domain in read if domain is not None)

    def domain(self, uuid):
        handle = self._domain(uuid)
        return None if handle is None else self._read_domain(handle, detail=True)

    def domain_by_name(self, name):
        handle = self._find(classify.NO_DOMAIN, "look up", f"domain {name}", self._conn.lookupByName, name)
        return None if handle is None else self._read_domain(handle, detail=True)

    def define(self, xml):
        name = convert.parse(xml).findtext("name")
        handle = self._call("define", "define", f"domain {name}", self._conn.defineXMLFlags, xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
        domain = self._read_domain(handle, detail=True)
        if domain is None:
            raise Kvm2Error(classify.CONFLICT, "define", f"domain {name} on {self.uri}", "it was removed at once", "Run again.")
        return domain

    def set_metadata(self, uuid, prefix, namespace, xml):
        handle = self._domain(uuid)
        if handle is None:
            return False
        flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG
        if handle.isActive():
            flags |= libvirt.VIR_DOMAIN_AFFECT_LIVE
        try:
            self._call(
                "metadata", "mark", f"domain {handle.name()}", handle.setMetadata, libvirt.VIR_DOMAIN_METADATA_ELEMENT, xml, prefix, namespace, flags)
        except Kvm2Error as error:
            if error.code == classify.NO_DOMAIN:
                return False
            raise
        return True

    def start(self, uuid):
        handle = self._the_domain(uuid, "start")
        try:
            self._call("start", "start", f"domain {handle.name()}", handle.create)
        except Kvm2Error:
            if not self._is_running(handle):
                raise

    def resume(self, uuid):
        handle = self._the_domain(uuid, "resume")
        self._call("stop", "resume", f"domain {handle.name()}", handle.resume)

    def _is_running(self, handle):
        try:
            return handle.state(0)[0] == libvirt.VIR_DOMAIN_RUNNING
        except libvirt.libvirtError:
            return False

    def shutdown(self, uuid):
        return self._stop(uuid, "shut down", lambda handle: handle.shutdown)

    def destroy(self, uuid):
        return self._stop(uuid, "destroy", lambda handle: handle.destroy)

    def _stop(self, uuid, act, method):
        handle = self._domain(uuid)
        if handle is None:
            return False
        try:
            self._call("stop", act, f"domain {handle.name()}", method(handle))
        except Kvm2Error:
            # The state is read again before the error is believed.
            if self._is_off(uuid):
                return False
            raise
        return True

    def _is_off(self, uuid):
        handle = self._domain(uuid)
        try:
            return handle is None or not handle.isActive()
        except libvirt.libvirtError:
            return self._domain(uuid) is None

    def undefine(self, uuid):
        handle = self._domain(uuid)
        if handle is None or not handle.isPersistent():
            return False
        flags = (
            libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
            | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA | getattr(libvirt, "VIR_DOMAIN_UNDEFINE_TPM", 0))
        try:
            self._call("undefine", "undefine", f"domain {handle.name()}", handle.undefineFlags, flags)
        except Kvm2Error as error:
            if error.code == classify.NO_DOMAIN:
                return False
            raise
        return True

    def set_autostart(self, uuid, on):
        handle = self._the_domain(uuid, "set the autostart of")
        self._call("define", "set the autostart of", f"domain {handle.name()}", handle.setAutostart, 1 if on else 0)

    def block_resize(self, uuid, path, capacity):
        handle = self._the_domain(uuid, "grow the disk of")
        self._call(
            "resize-disk", "grow the disk of", f"domain {handle.name()}", handle.blockResize, path, capacity,
            libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)

    def addresses(self, uuid, source):
        handle = self._domain(uuid)
        if handle is None:
            return ()
        try:
            interfaces = handle.interfaceAddresses(_SOURCES[source], 0) or {}
        except libvirt.libvirtError as error:
            if self._is_lost():
                raise self._error("read", "read the addresses of", f"domain {uuid}", error) from error
            # No agent yet, or no such source for this guest: not known yet.
            return ()
        return tuple(
            Address(mac=interface.get("hwaddr") or "", address=entry["addr"], prefix=int(entry.get("prefix") or 0), source=source)
            for interface in interfaces.values() for entry in interface.get("addrs") or ())

    # -- networks

    def networks(self):
        handles = self._call("read", "list", f"networks of {self.uri}", self._conn.listAllNetworks, 0)
        return tuple(
            convert.network(
                self._call("read", "read", f"network {handle.name()}", handle.XMLDesc, 0), bool(handle.isActive()), bool(handle.autostart()))
            for handle in handles)


def _live_xml(handle):
    try:
        return handle.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE)
    except libvirt.libvirtError as error:
        # Stopped between the two reads: then there is no running definition.
        if error.get_error_code() == classify.OPERATION_INVALID:
            return None
        raise


def _is_passing(error):
    """libvirt has no code of their own for these; the text is looked at only to wait a little, never to decide."""
    text = error.get_error_message() or ""
    return "asynchronous jobs running" in text or "is still being allocated" in text


def _abort(stream):
    try:
        stream.abort()
    except libvirt.libvirtError:
        pass


class _EventLoop:
    """libvirt's default event loop in a thread: without it keepalive does nothing. One a process."""

    _shared = None

    @classmethod
    def shared(cls):
        if libvirt is None:
            raise Kvm2Error(PERMANENT, "load", "the Python library libvirt", "it is not installed")
        if cls._shared is None:
            cls._shared = cls()
        return cls._shared

    def __init__(self):
        # libvirt prints errors on stderr by itself unless told otherwise.
        libvirt.registerErrorHandler(lambda context, error: None, None)
        libvirt.virEventRegisterDefaultImpl()
        # A timer that fires keeps the loop from sleeping for ever when nothing else is registered.
        libvirt.virEventAddTimeout(1000, lambda timer, opaque: None, None)
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="kvm2-events", daemon=True)
        self._thread.start()

    @staticmethod
    def _run():
        while True:
            libvirt.virEventRunDefaultImpl()
