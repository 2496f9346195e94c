# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Domains over libvirt."""

from __future__ import annotations

import threading
import time

from .._policy.errors import TRANSIENT, Kvm2Error
from .._policy.model import STATES, Domain
from . import classify, convert
from .libvirt_connection import Connection, libvirt
from .reopening import reads, writes

# States that only a guest with a process is in: running, blocked, paused, shutting down, asleep.
_ACTIVE = (1, 2, 3, 4, 7)
# Seconds that QEMU may take to tell that a guest is awake, and between two looks.
_WAKE, _LOOK = 5.0, 0.1
# A mark is written to what is there; that may change this often in a row between the look and the write.
_MOVES = 10


class DomainCalls(Connection):
    """The part of the Hypervisor interface about domains."""

    def _domain(self, uuid):
        return self._find(classify.NO_DOMAIN, "look up", f"domain {uuid}", self._conn.lookupByUUIDString, uuid)

    def _the_domain(self, uuid, act):
        handle = self._domain(uuid)
        if handle is None:
            raise Kvm2Error(classify.CONFLICT, act, f"domain {uuid} on {self.uri}", "it has gone", "Something removed it; run again.", classify.NO_DOMAIN)
        return handle

    def _read_domain(self, handle, known=None):
        """model.Domain, or None when it vanished meanwhile. XML that cannot be read is said, not raised: it may hold references.

        known: the answers of _facts, for callers who read many domains; without it each question is a call of its own.
        """
        obj = f"domain {handle.name()}"
        try:
            state, reason = handle.state(0)
            active = state in _ACTIVE or (state != libvirt.VIR_DOMAIN_SHUTOFF and bool(handle.isActive()))
            facts = _ask(handle) if known is None else {fact: handle.UUIDString() in there for fact, there in known.items()}
            persistent, saved = facts["persistent"], facts["persistent"] and facts["saved"]
            xml = live = unreadable = None
            snapshots = ()
            try:
                if persistent:
                    xml = handle.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE)
                if active:
                    live = _live_xml(handle)
                if facts["snapshots"]:
                    snapshots = _snapshot_xmls(handle)
            except libvirt.libvirtError as error:
                if error.get_error_code() == classify.NO_DOMAIN or self._is_lost():
                    raise
                unreadable = error.get_error_message()
            return Domain(
                name=handle.name(), uuid=handle.UUIDString(), state=STATES[state] if state < len(STATES) else "nostate",
                reason=convert.state_reason(state, reason), active=active, persistent=persistent,
                autostart=persistent and facts["autostart"], managed_save=saved, snapshots=len(snapshots),
                checkpoints=len(handle.listAllCheckpoints(0)) if facts["checkpoints"] else 0,
                xml=xml, live_xml=live, unreadable=unreadable, saved_xml=self._saved_xml(handle) if saved else None, snapshot_xmls=snapshots)
        except libvirt.libvirtError as error:
            if error.get_error_code() == classify.NO_DOMAIN:
                return None
            raise self._error("read", "read", obj, error) from error

    def _saved_xml(self, handle):
        try:
            return handle.managedSaveGetXMLDesc(libvirt.VIR_DOMAIN_SAVE_IMAGE_XML_SECURE)
        except libvirt.libvirtError:
            if self._is_lost():
                raise
            # Gone meanwhile, or damaged: libvirt starts such a guest from its definition.
            return None

    def _facts(self):
        """{fact: UUIDs of the domains it holds for}: a handful of calls for all domains together."""
        flags = {
            "active": libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE, "persistent": libvirt.VIR_CONNECT_LIST_DOMAINS_PERSISTENT,
            "saved": libvirt.VIR_CONNECT_LIST_DOMAINS_MANAGEDSAVE, "autostart": libvirt.VIR_CONNECT_LIST_DOMAINS_AUTOSTART,
            "snapshots": libvirt.VIR_CONNECT_LIST_DOMAINS_HAS_SNAPSHOT, "checkpoints": libvirt.VIR_CONNECT_LIST_DOMAINS_HAS_CHECKPOINT}
        return {
            fact: {handle.UUIDString() for handle in self._call("read", "list", f"domains of {self.uri}", self._conn.listAllDomains, flag)}
            for fact, flag in flags.items()}

    @reads
    def domains(self):
        handles = self._call("read", "list", f"domains of {self.uri}", self._conn.listAllDomains, 0)
        before = self._facts()
        read = [(handle, self._read_domain(handle, before)) for handle in handles]
        after = self._facts()
        # One that was started, saved or defined while the others were read may name other files now: it is read again by itself.
        moved = set().union(*(before[fact] ^ after[fact] for fact in before))
        read = [self._read_domain(handle) if handle.UUIDString() in moved else domain for handle, domain in read]
        return tuple(domain for domain in read if domain is not None)

    @reads
    def domain(self, uuid):
        handle = self._domain(uuid)
        return None if handle is None else self._read_domain(handle)

    @reads
    def domain_by_name(self, name):
        handle = self._find(classify.NO_DOMAIN, "look up", f"domain {name}", self._conn.lookupByName, name)
        return None if handle is None else self._read_domain(handle)

    @writes
    def define(self, xml):
        name = convert.parse(xml).findtext("name")
        handle = self._call("define", "define", f"domain {name}", self._conn.defineXMLFlags, xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
        domain = self._read_domain(handle)
        if domain is None:
            raise Kvm2Error(classify.CONFLICT, "define", f"domain {name} on {self.uri}", "it was removed at once", "Run again.")
        return domain

    @writes
    def set_metadata(self, uuid, prefix, namespace, xml):
        handle = self._domain(uuid)
        if handle is None:
            return False
        for times_left in reversed(range(_MOVES)):
            flags = self._copies(handle)
            if not flags:
                return False
            try:
                self._call(
                    "metadata", "mark", f"domain {handle.name()}", handle.setMetadata, libvirt.VIR_DOMAIN_METADATA_ELEMENT, xml, prefix, namespace, flags)
            except Kvm2Error as error:
                # Stopped or undefined since it was looked at.
                if error.code not in (classify.NO_DOMAIN, classify.OPERATION_INVALID) or not times_left:
                    raise
                continue
            if not self._copies(handle) & ~flags:
                return True
        raise Kvm2Error(
            TRANSIENT, "mark", f"domain {handle.name()} on {self.uri}", "it is started and stopped again and again", "Stop whatever does so, then run again.")

    def _copies(self, handle):
        """Flags of the definitions that the domain has now: the stored one, the running guest's own; 0 where it has gone."""
        obj = f"domain {handle.name()}"
        try:
            stored = self._call("metadata", "mark", obj, handle.isPersistent)
            running = self._call("metadata", "mark", obj, handle.isActive)
        except Kvm2Error as error:
            if error.code == classify.NO_DOMAIN:
                return 0
            raise
        return (libvirt.VIR_DOMAIN_AFFECT_CONFIG if stored else 0) | (libvirt.VIR_DOMAIN_AFFECT_LIVE if running else 0)

    @writes
    def start(self, uuid):
        handle = self._the_domain(uuid, "start")
        self._have_run(handle, "start", "start", handle.create)

    @writes
    def resume(self, uuid):
        handle = self._the_domain(uuid, "resume")
        obj = f"domain {handle.name()}"

        def sleeps():
            return self._call("read", "read", obj, handle.state, 0)[0] == libvirt.VIR_DOMAIN_PMSUSPENDED

        if not sleeps():
            # libvirt shows a guest as paused for a moment while it is started.
            self._have_run(handle, "stop", "resume", handle.resume)
            return
        # A guest that has put itself to sleep is woken, not resumed. libvirt answers before QEMU has told it that the guest is awake.
        self._have_run(handle, "stop", "wake", handle.pMWakeup, 0)
        until = time.monotonic() + _WAKE
        while sleeps() and time.monotonic() < until:
            threading.Event().wait(_LOOK)

    def _have_run(self, handle, kind, act, *call):
        """The state is read again before the error is believed."""
        try:
            self._call(kind, act, f"domain {handle.name()}", *call)
        except Kvm2Error:
            if not self._is_running(handle):
                raise

    def _is_running(self, handle):
        try:
            return handle.state(0)[0] == libvirt.VIR_DOMAIN_RUNNING
        except libvirt.libvirtError:
            return False

    @writes
    def shutdown(self, uuid):
        return self._stop(uuid, "shut down", lambda handle: handle.shutdown)

    @writes
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

    @writes
    def undefine(self, uuid):
        handle = self._domain(uuid)
        if handle is None:
            return False
        flags = (
            libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
            | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA | getattr(libvirt, "VIR_DOMAIN_UNDEFINE_TPM", 0))
        try:
            if not self._call("undefine", "undefine", f"domain {handle.name()}", handle.isPersistent):
                return False
            self._call("undefine", "undefine", f"domain {handle.name()}", handle.undefineFlags, flags)
        except Kvm2Error:
            # The state is read again before the error is believed: somebody else may have undefined it.
            if not self._copies(handle) & libvirt.VIR_DOMAIN_AFFECT_CONFIG:
                return False
            raise
        return True

    @writes
    def drop_managed_save(self, uuid):
        handle = self._domain(uuid)
        if handle is None:
            return False
        try:
            if not self._call("undefine", "drop the managed save of", f"domain {handle.name()}", handle.hasManagedSaveImage, 0):
                return False
            self._call("undefine", "drop the managed save of", f"domain {handle.name()}", handle.managedSaveRemove, 0)
        except Kvm2Error:
            # A start uses the save up, and so does whoever drops it as well.
            if not self._has_save(uuid):
                return False
            raise
        return True

    def _has_save(self, uuid):
        handle = self._domain(uuid)
        try:
            return handle is not None and bool(handle.hasManagedSaveImage(0))
        except libvirt.libvirtError:
            return self._domain(uuid) is not None

    @writes
    def set_autostart(self, uuid, on):
        handle = self._the_domain(uuid, "set the autostart of")
        self._call("define", "set the autostart of", f"domain {handle.name()}", handle.setAutostart, 1 if on else 0)

    @writes
    def block_resize(self, uuid, path, capacity):
        handle = self._the_domain(uuid, "grow the disk of")
        self._call(
            "resize-disk", "grow the disk of", f"domain {handle.name()}", handle.blockResize, path, capacity,
            libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)

    @reads
    def nwfilters(self):
        try:
            return tuple(handle.name() for handle in self._conn.listAllNWFilters(0))
        except libvirt.libvirtError as error:
            if error.get_error_code() == classify.NO_SUPPORT:
                return None
            raise self._error("read", "list", f"network filters of {self.uri}", error) from error


def _ask(handle):
    """What DomainCalls._facts tells of all domains, for one."""
    persistent = bool(handle.isPersistent())
    return {
        "persistent": persistent, "saved": persistent and bool(handle.hasManagedSaveImage(0)), "autostart": persistent and bool(handle.autostart()),
        "snapshots": True, "checkpoints": True}


def _snapshot_xmls(handle):
    found = []
    for snapshot in handle.listAllSnapshots(0):
        try:
            found.append(snapshot.getXMLDesc(0))
        except libvirt.libvirtError as error:
            # Deleted meanwhile.
            if error.get_error_code() != classify.NO_SNAPSHOT:
                raise
    return tuple(found)


def _live_xml(handle):
    try:
        return handle.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE)
    except libvirt.libvirtError as error:
        # Stopped between the two reads: then there is no running definition.
        if error.get_error_code() == classify.OPERATION_INVALID:
            return None
        raise
