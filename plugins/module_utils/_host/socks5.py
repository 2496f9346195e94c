# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client's side of SOCKS5 (RFC 1928) with a user and password (RFC 1929), as far as one connection to a server needs it."""

from __future__ import annotations

import ipaddress

_VERSION = 5
_NO_LOGIN, _LOGIN, _NONE_FITS = 0, 2, 0xFF
_CONNECT = 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_NOT_ALLOWED = 2
_REPLIES = {
    1: "general failure", 2: "not allowed by its rules", 3: "network unreachable", 4: "host unreachable", 5: "connection refused by the server",
    6: "time to live expired", 7: "command not supported", 8: "kind of address not supported"}


class Refused(Exception):
    """The proxy does not serve this client, user or server; the text says how it put that."""


class Failed(Exception):
    """The proxy would serve, and could not, or what it says is not SOCKS5."""


def connect(connection, host, port, user=None, password=None):
    """Have the proxy behind a connected socket connect it to a server. Raises Refused, Failed, or OSError."""
    try:
        _log_in(connection, user, password)
        connection.sendall(bytes((_VERSION, _CONNECT, 0)) + _address(host) + port.to_bytes(2, "big"))
        version, reply, _reserved, kind = _read(connection, 4)
    except (EOFError, ConnectionResetError, BrokenPipeError):
        # It was connected, so something listens there: a proxy ends the connections of clients that it does not know.
        raise Refused("it closed the connection") from None
    _check_version(version)
    if reply == _NOT_ALLOWED:
        raise Refused(f"it answered: {_REPLIES[reply]}")
    if reply:
        raise Failed(f"it answered: {_REPLIES.get(reply, f'reply {reply}')}")
    try:
        _read(connection, {_IPV4: 4, _IPV6: 16}.get(kind) or _read(connection, 1)[0])
        _read(connection, 2)
    except (EOFError, ConnectionResetError):
        raise Failed("it closed the connection in the middle of its answer") from None


def _log_in(connection, user, password):
    methods = bytes((_NO_LOGIN,)) if user is None else bytes((_NO_LOGIN, _LOGIN))
    connection.sendall(bytes((_VERSION, len(methods))) + methods)
    version, method = _read(connection, 2)
    _check_version(version)
    if method == _NONE_FITS or method not in methods:
        raise Refused("it wants a user and a password" if user is None else "it takes no user and password")
    if method == _LOGIN:
        connection.sendall(b"\x01" + _counted(user) + _counted(password))
        _version, status = _read(connection, 2)
        if status:
            raise Refused("it does not take this user and password")


def _check_version(version):
    if version != _VERSION:
        raise Failed("its answer is not SOCKS5")


def _counted(text):
    data = text.encode()
    return bytes((len(data),)) + data


def _address(host):
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return bytes((_NAME,)) + _counted(host)
    return bytes((_IPV4 if address.version == 4 else _IPV6,)) + address.packed


def _read(connection, length):
    data = b""
    while len(data) < length:
        more = connection.recv(length - len(data))
        if not more:
            raise EOFError
        data += more
    return data
