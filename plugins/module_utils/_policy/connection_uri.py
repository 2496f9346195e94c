# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""libvirt URIs: what may be in them, and what is added so that nothing ever asks a question."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from dataclasses import dataclass
from typing import Optional
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from .errors import InvalidInput

# With a host, without one.
_REMOTE = ("ssh", "libssh", "libssh2", "tls", "tcp")
_EXAMPLES = "Give one such as qemu:///system or qemu+ssh://root@hypervisor/system."
# Where the daemons of this machine, root's or a user's, have their sockets. One elsewhere may be forwarded, or a container's.
_SOCKET_FOLDER = r"(/var)?/run/(user/\d+/)?libvirt(/.*)?"
# user:password@ in the place of the host.
_PASSWORD = r"(//[^/?#:@]*):[^/?#]*@"
_JUMP = r"(?:(?P<user>[A-Za-z0-9._][A-Za-z0-9._-]*)@)?(?P<host>[A-Za-z0-9._][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?"


@dataclass(frozen=True)
class Uri:
    """transport: unix, ssh, libssh, libssh2, tls or tcp; host is empty for unix."""

    text: str
    transport: str
    host: str

    @property
    def is_local(self):
        """Are the hypervisor's files those of this machine?"""
        # libvirt takes a name in capitals too, and a semicolon for what separates.
        sockets = [value for name, value in parse_qsl(urlsplit(self.text).query.replace(";", "&")) if name.lower() == "socket"]
        return not self.host and all(re.fullmatch(_SOCKET_FOLDER, posixpath.dirname(posixpath.normpath(path))) for path in sockets)


def parse(text):
    """The Uri of a text that an operator gave; InvalidInput where libvirt could not use it or would do something else than it says."""
    if not text.strip():
        raise InvalidInput("uri ''", "it is empty", _EXAMPLES)
    shown = re.sub(_PASSWORD, r"\1:…@", text)
    obj = f"uri {shown!r}"
    if shown != text:
        raise InvalidInput(obj, "it has a password in it, which no transport uses and every message would show", "Leave it out; ssh takes a keyfile.")
    try:
        parts = urlsplit(text)
        host, _port = parts.hostname or "", parts.port
    except ValueError as error:
        raise InvalidInput(obj, error, _EXAMPLES) from error
    driver, plus, transport = parts.scheme.partition("+")
    transport = transport if plus else "tls" if host else "unix"
    if driver != "qemu":
        raise InvalidInput(obj, "it does not name libvirt's QEMU driver", _EXAMPLES)
    if transport not in ("unix", *_REMOTE):
        raise InvalidInput(obj, f"there is no transport {transport}", f"Use one of unix, {', '.join(_REMOTE)}.")
    if parts.path not in ("/system", "/session"):
        raise InvalidInput(obj, f"its path is {parts.path!r}", "The daemon is called /system, or /session for a user's own.")
    if transport == "unix" and host:
        raise InvalidInput(obj, "a socket of this machine has no host", f"Leave the host out, or use qemu+ssh://{host}{parts.path}.")
    if transport != "unix" and not host:
        raise InvalidInput(obj, f"the transport {transport} needs a host", _EXAMPLES)
    if transport == "tcp" and not _is_loopback(host):
        raise InvalidInput(
            obj, "TCP is neither encrypted nor authenticated, so whoever is on the way could do anything there",
            f"Use {_authority(parts, 'ssh')} or {_authority(parts, 'tls')}; TCP goes to 127.0.0.1, [::1] or localhost only, such as a tunnel's end.")
    return Uri(text, transport, host)


def _is_loopback(host):
    """Without looking a name up: what that says may change."""
    # Only TCP asks.
    import ipaddress
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _authority(parts, transport):
    """The same hypervisor's URI over another transport."""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"qemu+{transport}://{host}{parts.path}"


def parameters(text):
    """[(name, value)] of the URI's query."""
    return parse_qsl(urlsplit(text).query, keep_blank_values=True)


def without_questions(uri, command=None):
    """The text for libvirt of a Uri: ssh never asks for a password or about a host key, on whatever terminal. command: run instead of ssh."""
    if uri.transport != "ssh":
        return uri.text
    added = {"no_tty": "1"}
    if command is not None:
        added["command"] = command
    kept = [(name, value) for name, value in parameters(uri.text) if name not in added]
    parts = urlsplit(uri.text)
    return parts._replace(query=urlencode([*kept, *added.items()], quote_via=quote, safe="/")).geturl()


@dataclass(frozen=True)
class Ssh:
    """known_hosts: path of the file with the keys of hosts, or None for ssh's own.  jump_host: [user@]host[:port] that is gone through."""

    known_hosts: Optional[str] = None
    jump_host: Optional[str] = None

    @property
    def is_plain(self):
        return self.known_hosts is None and self.jump_host is None


def check_ssh(uri, ssh):
    """Raise InvalidInput where the options for ssh mean nothing or cannot be used."""
    for name in ("known_hosts", "jump_host"):
        value = getattr(ssh, name)
        if value is not None and uri.transport != "ssh":
            raise InvalidInput(f"ssh_{name} {value!r}", f"uri {uri.text!r} does not go over qemu+ssh", "Leave it out, or use qemu+ssh.")
    if not ssh.is_plain and any(name == "command" for name, _value in parameters(uri.text)):
        raise InvalidInput(f"uri {uri.text!r}", "it has a command of its own, which ssh_known_hosts and ssh_jump_host do not reach", "Leave out either.")
    if ssh.known_hosts is not None and (not os.path.isabs(ssh.known_hosts) or '"' in ssh.known_hosts or not ssh.known_hosts.isprintable()):
        raise InvalidInput(f"ssh_known_hosts {ssh.known_hosts!r}", "it is not a usable absolute path", "Give one such as /etc/ssh/known_hosts_kvm2.")
    if ssh.jump_host is not None and not _jump(ssh.jump_host):
        raise InvalidInput(f"ssh_jump_host {ssh.jump_host!r}", "it is not of the form [user@]host[:port]", "Give one such as ops@bastion.example.com:22.")


def _jump(text):
    match = re.fullmatch(_JUMP, text)
    return match if match is not None and 0 < int(match["port"] or 22) < 65536 else None


def ssh_script(uri, ssh, connect_timeout):
    """The shell script that runs ssh with these options and with the arguments that it is given. connect_timeout in seconds."""
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={max(1, int(connect_timeout))}"]
    if ssh.known_hosts is not None:
        options += ["-o", f'UserKnownHostsFile="{ssh.known_hosts}"']
    command = ["ssh", *options]
    if ssh.jump_host is not None:
        match = _jump(ssh.jump_host)
        # ssh's own -J would pass none of these options on to the jump host, and so could ask there.
        through = ["ssh", *options, *(["-p", match["port"]] if match["port"] else []), *(["-l", match["user"]] if match["user"] else [])]
        key = next((value for name, value in parameters(uri.text) if name == "keyfile"), None)
        through += ["-i", key] if key else []
        escaped = " ".join(shlex.quote(word).replace("%", "%%") for word in through)
        command += ["-o", f"ProxyCommand={escaped} -W '[%h]:%p' {shlex.quote(match['host'].strip('[]'))}"]
    return "#!/bin/sh\nexec " + " ".join(shlex.quote(word) for word in command) + ' "$@"\n'
