# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proxy programs that a guest can run: their packages and services, their configuration files, and whom they let in.

Each file is rendered from (proxy, settings): proxy is {engine, port, allow, user?, password?} with the networks of allow in their one form,
settings are the fleet-wide Settings. What is rendered becomes part of a guest's seed, and a seed that changes is drift: so explanations stay
on this side.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Callable, Optional, Tuple

HEAD = "# Written by cloud-init; changes belong into the fleet definition."
SQUID_PASSWORDS = "/etc/squid/passwords"


@dataclass(frozen=True)
class Settings:
    """connect_ports: ports that CONNECT reaches.  max_clients: connections at a time.  client_timeout: seconds without traffic.
    interfaces: names of the guest's interfaces."""

    connect_ports: Tuple[int, ...] = (443, 563)
    max_clients: int = 100
    client_timeout: int = 600
    interfaces: Tuple[str, ...] = ("eth0",)


@dataclass(frozen=True)
class Engine:
    """scheme: how clients speak to it.  port: its own default.  package and service: Debian's names.
    path, owner, mode: of its configuration, which render(proxy, settings) makes."""

    scheme: str
    port: int
    package: str
    service: str
    path: str
    owner: str
    mode: str
    render: Callable
    # Options for a drop-in file of its service.
    drop_in: Optional[str] = None


def _tinyproxy(proxy, settings):
    """Without a Listen line it listens on every address, of IPv4 and of IPv6."""
    lines = [
        HEAD,
        "User tinyproxy",
        "Group tinyproxy",
        f"Port {proxy['port']}",
        f"Timeout {settings.client_timeout}",
        f"MaxClients {settings.max_clients}",
        'DefaultErrorFile "/usr/share/tinyproxy/default.html"',
        'StatFile "/usr/share/tinyproxy/stats.html"',
        'LogFile "/var/log/tinyproxy/tinyproxy.log"',
        "LogLevel Notice",
        'PidFile "/run/tinyproxy/tinyproxy.pid"',
        "DisableViaHeader Yes",
        # It serves everybody where no Allow line is there. The guest itself is always named, so that an empty list allows nobody else.
        "Allow 127.0.0.1",
        "Allow ::1",
    ]
    lines += [f"Allow {network}" for network in proxy["allow"]]
    if proxy.get("user"):
        lines.append(f"BasicAuth {proxy['user']} {proxy['password']}")
    # CONNECT is meant for TLS. Without any line it would reach every port; the port 0 alone turns it off.
    lines += [f"ConnectPort {port}" for port in settings.connect_ports or (0,)]
    return _text(lines)


def _squid(proxy, settings):
    """Rules count in their order: who is no client is refused before anybody is asked for a password."""
    lines = [
        HEAD,
        f"http_port {proxy['port']}",
        "visible_hostname proxy",
        # Nothing is kept, and servers are not told that a proxy stands between.
        "cache deny all",
        "cache_mem 8 MB",
        "via off",
        "forwarded_for delete",
        "request_header_access Cache-Control deny all",
        "httpd_suppress_version_string on",
        "pinger_enable off",
        "access_log stdio:/var/log/squid/access.log",
        "coredump_dir /var/spool/squid",
        "shutdown_lifetime 1 second",
        f"read_timeout {settings.client_timeout} seconds",
        f"client_idle_pconn_timeout {settings.client_timeout} seconds",
    ]
    lines += [f"acl clients src {network}" for network in proxy["allow"]]
    if settings.connect_ports:
        lines.append("acl tunnels port " + " ".join(str(port) for port in settings.connect_ports))
    if proxy.get("user"):
        lines += [
            f"auth_param basic program /usr/lib/squid/basic_ncsa_auth {SQUID_PASSWORDS}",
            "auth_param basic children 5 startup=1 idle=1",
            "auth_param basic realm proxy",
            "auth_param basic casesensitive on",
            "acl users proxy_auth REQUIRED",
        ]
    if proxy["allow"]:
        lines += [
            "http_access deny !clients",
            "http_access deny manager",
            "http_access deny to_localhost",
            "http_access deny CONNECT" + (" !tunnels" if settings.connect_ports else ""),
            "http_access allow " + ("users" if proxy.get("user") else "clients"),
        ]
    return _text([*lines, "http_access deny all"])


def _dante(proxy, settings):
    """It wants to know the interface to go out by; the guest's network configuration names them, so no address has to be known."""
    method = "username" if proxy.get("user") else "none"
    # Any account of the guest that has a password would do otherwise.
    only = (f"user: {proxy['user']}",) if proxy.get("user") else ()
    lines = [
        HEAD,
        "logoutput: stderr",
        *(f"internal: {address} port = {proxy['port']}" for address in _wildcards(proxy["allow"])),
        *(f"external: {name}" for name in settings.interfaces),
        *(("external.rotation: route",) if len(settings.interfaces) > 1 else ()),
        "clientmethod: none",
        f"socksmethod: {method}",
        # Passwords are looked up in /etc/shadow, which only root reads.
        "user.privileged: root",
        "user.unprivileged: nobody",
        f"timeout.io: {settings.client_timeout}",
    ]
    lines += [_rule("client pass", network, "0/0") for network in proxy["allow"]]
    lines += [_rule("socks block", "0/0", own) for own in ("127.0.0.0/8", "::1/128")]
    lines += [_rule("socks pass", network, "0/0", "command: connect", *only) for network in proxy["allow"]]
    return _text(lines)


def _wildcards(networks):
    """The addresses to listen on: those of the families that clients come from, as the guest may be without IPv6."""
    versions = {ipaddress.ip_network(network).version for network in networks}
    return [*(["0.0.0.0"] if versions != {6} else []), *(["::"] if 6 in versions else [])]


def _rule(act, clients, servers, *more):
    return "\n".join([f"{act} {{", *(f"    {line}" for line in (f"from: {clients} to: {servers}", *more, "log: error")), "}"])


def _text(lines):
    return "\n".join(lines) + "\n"


ENGINES = {
    # It reads its file again as its own user whenever the logs are rotated.
    "tinyproxy": Engine(
        "http", 3128, "tinyproxy", "tinyproxy", "/etc/tinyproxy/tinyproxy.conf", "tinyproxy:tinyproxy", "0600", _tinyproxy),
    "squid": Engine("http", 3128, "squid", "squid", "/etc/squid/squid.conf", "root:root", "0644", _squid),
    # It ends where its interface has no address yet, as it may have none right after a boot.
    "dante": Engine(
        "socks5", 1080, "dante-server", "danted", "/etc/danted.conf", "root:root", "0644", _dante,
        "[Unit]\nWants=network-online.target\nAfter=network-online.target\n[Service]\nRestart=on-failure\nRestartSec=2\n"),
}
