# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One request through a proxy of HTTP or SOCKS5, from connecting to the last byte within one deadline."""

from __future__ import annotations

import base64
import errno
import http.client
import socket
import threading
import time
from dataclasses import dataclass
from typing import Optional
from urllib.parse import urlsplit

from .._policy.errors import PERMANENT, TRANSIENT, Kvm2Error
from . import socks5

# What is kept of an answer's body.
BODY_LIMIT = 2048
_AGENT = "ansible-egress-kvm2"


@dataclass(frozen=True)
class Proxy:
    """scheme: http or socks5.  user and password: both or none.  source: the address to ask from, None for the machine's own choice."""

    scheme: str
    address: str
    port: int
    user: Optional[str] = None
    password: Optional[str] = None
    source: Optional[str] = None

    @property
    def token(self):
        """User and password as HTTP carries them, or None."""
        return None if self.user is None else base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


@dataclass(frozen=True)
class Answer:
    """status: HTTP status.  body: at most BODY_LIMIT bytes.  duration: seconds."""

    status: int
    body: bytes
    duration: float


@dataclass(frozen=True)
class Refusal:
    """A SOCKS5 proxy would not serve.  how: a text.  duration: seconds."""

    how: str
    duration: float


def ask(proxy, url, timeout, obj):
    """GET an http URL through a proxy; any status is an Answer, and what SOCKS5 refuses is a Refusal. `obj` names the proxy in errors.

    timeout: seconds for everything together. Raises Kvm2Error of the kind transient where no complete answer comes.
    """
    started = time.monotonic()
    connection = http.client.HTTPConnection(
        proxy.address, proxy.port, timeout=timeout, source_address=(proxy.source, 0) if proxy.source else None)
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
    kind, refused = TRANSIENT, None
    hint = "See that it runs and listens there, and that nothing between stops the connection."
    try:
        response = _request(connection, proxy, url)
        body = response.read(BODY_LIMIT)
        if not expired.is_set():
            return Answer(response.status, body, time.monotonic() - started)
        cause = ""
    except socks5.Refused as error:
        cause = refused = str(error)
    except socks5.Failed as error:
        cause, hint = str(error), "See that the proxy's machine reaches the server of this URL, and that the scheme of the proxy is right."
    except (OSError, http.client.HTTPException) as error:
        cause = _cause(error)
        if isinstance(error, OSError) and error.errno == errno.EADDRNOTAVAIL and proxy.source:
            kind, cause = PERMANENT, f"{proxy.source} is not an address of this machine"
            hint = "Give source_address one of this machine's, or leave it out."
    finally:
        watchdog.cancel()
        connection.close()
    if expired.is_set() or time.monotonic() - started >= timeout:
        cause = f"there was no complete answer within {timeout:g} s"
    elif refused is not None:
        return Refusal(refused, time.monotonic() - started)
    raise Kvm2Error(kind, "ask", obj, cause, hint)


def _request(connection, proxy, url):
    headers = {"Connection": "close", "User-Agent": _AGENT}
    if proxy.scheme == "socks5":
        server = urlsplit(url)
        connection.connect()
        socks5.connect(connection.sock, server.hostname, server.port or 80, proxy.user, proxy.password)
        # From here on the connection leads to the server itself.
        headers["Host"] = server.netloc.rpartition("@")[2]
        target = server.path or "/"
        connection.request("GET", f"{target}?{server.query}" if server.query else target, headers=headers)
    else:
        if proxy.token is not None:
            headers["Proxy-Authorization"] = f"Basic {proxy.token}"
        connection.request("GET", url, headers=headers)
    return connection.getresponse()


def _cause(error):
    if isinstance(error, http.client.RemoteDisconnected):
        return "it closed the connection without an answer"
    if isinstance(error, http.client.HTTPException):
        return f"its answer is not HTTP ({type(error).__name__}: {error})"
    return (error.strerror or str(error) or type(error).__name__).lower()
