# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A connection to libvirt: opening, keepalive, calls and their errors. The only file that imports libvirt."""

from __future__ import annotations

import threading
import traceback
from urllib.parse import urlsplit

from .._policy.errors import PERMANENT, TRANSIENT, Kvm2Error
from . import classify

try:
    import libvirt
    LIBVIRT_IMPORT_ERROR = None
except ImportError:
    libvirt = None
    LIBVIRT_IMPORT_ERROR = traceback.format_exc()

RETRIES = 8
FIRST_PAUSE = 0.1


class Connection:
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

    def is_local(self):
        return not urlsplit(self.uri).hostname

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

    def _step(self):
        """Called before each call to the daemon."""

    def _call(self, operation, act, obj, function, *args):
        """Call; a passing condition of the daemon (a job in the pool, a volume still being made) is waited for, some ten seconds at most."""
        pause = FIRST_PAUSE
        for attempt in range(RETRIES):
            self._step()
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
        self._step()
        try:
            return function(*args)
        except libvirt.libvirtError as error:
            if error.get_error_code() == missing:
                return None
            raise self._error("read", act, obj, error) from error


def _is_passing(error):
    """libvirt has no code of their own for these; the text is looked at only to wait a little, never to decide."""
    text = error.get_error_message() or ""
    return "asynchronous jobs running" in text or "is still being allocated" in text


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
        self._thread = threading.Thread(target=self._run, name="kvm2-events", daemon=True)
        self._thread.start()

    @staticmethod
    def _run():
        while True:
            libvirt.virEventRunDefaultImpl()
