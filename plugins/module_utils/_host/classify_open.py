# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a connection could not be opened. libvirt has one code for nearly all of it, so the transport, errno and what ssh said tell more."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass

from .._policy.errors import PERMANENT, TRANSIENT
from . import classify

_DAEMON = {
    "unix": "Check that libvirtd (or virtqemud) is running there and that this user may use its socket.",
    "tcp": "Check host and port, and that libvirtd-tcp.socket (or virtproxyd-tcp.socket) is listening there.",
    "tls": "Check host and port, and that libvirtd-tls.socket (or virtproxyd-tls.socket) is listening there.",
}
_SSH = "Check that sshd answers there, and that libvirtd (or virtqemud) is running: ssh -o BatchMode=yes HOST virsh list."
_SSHD = "Check host and port in the URI, and that sshd answers there."
_NO_SSH = (
    "Install the ssh client on the machine the module runs on; for ssh_known_hosts and ssh_jump_host TMPDIR has to be a folder that allows programs.")
_HOST_KEY = (
    "The host's key is not the known one. Find out why, then put the right one into known_hosts of the user that runs the module, or into the file "
    "that ssh_known_hosts names: ssh-keyscan HOST. Over libssh and libssh2 it is the file that known_hosts in the URI names.")
_USER = "The host does not accept this user and key. Check user and keyfile in the URI: ssh -o BatchMode=yes -i KEYFILE USER@HOST true."
_CHECK_URI = "Check the URI, such as qemu:///system or qemu+ssh://root@hypervisor/system."
_CERTIFICATES = (
    "Put the certificates where libvirt looks for them (/etc/pki/CA/cacert.pem, /etc/pki/libvirt), or name their folder with pkipath in the URI. "
    "The host in the URI has to be one that the server's certificate names.")
# What libvirt says where the server closes the connection right after it has seen who asks.
_NO_CONFIRMATION = "tls confirmation"
_NOT_ACCEPTED = (
    "The server does not accept the client's certificate, or there is none: put clientcert.pem and clientkey.pem of an authority that it trusts where "
    "libvirt looks for them (/etc/pki/libvirt), or into the folder that pkipath in the URI names.")
_NAME = "Check the host's name in the URI, and that this machine can look it up."

# What ssh, libssh and libssh2 say, as (pattern, kind, hint, does it pass by itself within moments): it has no codes.
_SSH_SAYS = (
    (r"cannot execute binary|cannot find '?ssh'? in path", PERMANENT, _NO_SSH, False),
    (r"host key verification failed|host identification has changed|verify the session host key", PERMANENT, _HOST_KEY, False),
    (r"failed to connect socket.*permission denied", PERMANENT, classify.RIGHTS, False),
    (r"failed to connect socket", TRANSIENT, _DAEMON["unix"], True),
    (r"permission denied|too many authentication failures|no supported authentication methods", PERMANENT, _USER, False),
    (r"failed to authenticate|with private key .* has failed|reading private key|private key passphrase|connect to ssh agent", PERMANENT, _USER, False),
    (r"temporary failure in name resolution", TRANSIENT, _NAME, True),
    (r"could not resolve hostname|unable to resolve address", PERMANENT, _NAME, False),
    (r"command not found|: not found", PERMANENT, "Install libvirt's virt-ssh-helper (part of its daemon or clients) or netcat there.", False),
    (r"connection refused|(connection|operation) timed out|no route to host|network is unreachable", TRANSIENT, _SSHD, True),
    (r"connection closed by|kex_exchange_identification|banner exchange", TRANSIENT, _SSHD, True),
)


@dataclass(frozen=True)
class Verdict:
    """again: it may pass within moments, as a daemon that restarts or has too many clients does."""

    kind: str
    hint: str
    again: bool = False


def classify_open(transport, code, os_error, text):
    """The Verdict on a failure to open. transport: as in connection_uri.Uri.  os_error: the errno that libvirt reports beside its code.  text: its
    message, in which what ssh wrote on standard error stands."""
    if transport == "tls" and _NO_CONFIRMATION in text.lower():
        return Verdict(PERMANENT, _NOT_ACCEPTED)
    if transport == "tls" and ("certificate" in text.lower() or os_error in (errno.ENOENT, errno.EACCES)):
        return Verdict(PERMANENT, _CERTIFICATES)
    if "ssh" in transport:
        for pattern, kind, hint, again in _SSH_SAYS:
            if re.search(pattern, text, re.IGNORECASE):
                return Verdict(kind, hint, again)
    if code in classify.NO_RIGHTS:
        return Verdict(PERMANENT, classify.RIGHTS)
    if code == classify.RPC:
        return Verdict(PERMANENT, "What answers there is no libvirt daemon, or one of another kind. " + _DAEMON.get(transport, _CHECK_URI))
    if code in (classify.NO_CONNECT, classify.INVALID_ARG, classify.XML_ERROR) or "unable to parse uri" in text.lower():
        return Verdict(PERMANENT, _CHECK_URI)
    if "ssh" in transport:
        return Verdict(TRANSIENT, _SSH, code == classify.SYSTEM_ERROR)
    if os_error in (errno.EACCES, errno.EPERM):
        return Verdict(PERMANENT, classify.RIGHTS)
    if "unable to resolve address" in text.lower():
        passing = "temporary failure" in text.lower()
        return Verdict(TRANSIENT if passing else PERMANENT, _NAME, passing)
    return Verdict(TRANSIENT, _DAEMON[transport], code == classify.SYSTEM_ERROR)
