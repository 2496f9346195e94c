# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One request through an HTTP proxy, from connecting to the last byte within one deadline."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from dataclasses import dataclass

from .._policy.errors import TRANSIENT, Kvm2Error

# What is kept of an answer's body.
BODY_LIMIT = 2048


@dataclass(frozen=True)
class Answer:
    """status: HTTP status.  body: at most BODY_LIMIT bytes.  duration: seconds."""

    status: int
    body: bytes
    duration: float


def ask(address, port, url, timeout, obj):
    """GET an http URL through the proxy at address and port; any status is an Answer. `obj` names the proxy in errors.

    timeout: seconds for everything together. Raises Kvm2Error of the kind transient where no complete answer comes.
    """
    started = time.monotonic()
    connection = http.client.HTTPConnection(address, port, timeout=timeout)
    expired = threading.Event()

    def expire():
        # A socket's own timeout begins anew with every byte; shutting it down ends whatever waits for it.
        expired.set()
        if connection.sock is not None:
            try:
                connection.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # closed already

    watchdog = threading.Timer(timeout, expire)
    watchdog.daemon = True
    watchdog.start()
    try:
        connection.request("GET", url, headers={"Connection": "close", "User-Agent": "ansible-egress-kvm2"})
        response = connection.getresponse()
        body = response.read(BODY_LIMIT)
        if not expired.is_set():
            return Answer(response.status, body, time.monotonic() - started)
        cause = ""
    except (OSError, http.client.HTTPException) as error:
        cause = _cause(error)
    finally:
        watchdog.cancel()
        connection.close()
    if expired.is_set() or time.monotonic() - started >= timeout:
        cause = f"there was no complete answer within {timeout:g} s"
    raise Kvm2Error(TRANSIENT, "ask", obj, cause, "See that it runs and listens there, and that nothing between stops the connection.")


def _cause(error):
    if isinstance(error, http.client.RemoteDisconnected):
        return "it closed the connection without an answer"
    if isinstance(error, http.client.HTTPException):
        return f"its answer is not HTTP ({type(error).__name__}: {error})"
    return (error.strerror or str(error) or type(error).__name__).lower()
