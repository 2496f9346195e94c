# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import errno

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host.classify import classify, is_passing
from ansible_collections.egress.kvm2.plugins.module_utils._host.classify_open import classify_open
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import KINDS

CASES = [
    # operation, code, errno, kind: as measured on libvirt 9.0, 11.3 and 12.8
    ("refresh", 1, 0, "transient"),
    ("refresh", 55, 0, "permanent"),
    ("create-volume", 38, errno.ENOSPC, "quota"),
    ("create-volume", 38, errno.EFBIG, "permanent"),
    ("create-volume", 38, errno.EDQUOT, "quota"),
    ("create-volume", 38, errno.ENAMETOOLONG, "permanent"),
    ("create-volume", 90, 0, "conflict"),
    ("create-volume", 55, 0, "conflict"),
    ("delete-volume", 55, 0, "transient"),
    ("upload", 38, errno.ENOSPC, "quota"),
    ("upload", 38, errno.EPIPE, "transient"),
    ("upload", 9, 0, "transient"),
    ("download", 9, 0, "transient"),
    ("resize-volume", 8, 0, "permanent"),
    ("define", 9, 0, "permanent"),
    ("define", 27, 0, "permanent"),
    ("define", 1, 0, "permanent"),
    ("define", 67, 0, "permanent"),
    ("define", 8, 0, "permanent"),
    ("start", 38, errno.ENOENT, "permanent"),
    ("start", 43, 0, "permanent"),
    ("start", 55, 0, "conflict"),
    ("stop", 55, 0, "transient"),
    ("define", 55, 0, "conflict"),
    ("metadata", 55, 0, "transient"),
    ("resize-disk", 55, 0, "transient"),
    ("read", 42, 0, "conflict"),
    ("read", 39, 0, "transient"),
    ("start", 68, 0, "transient"),
    ("undefine", 88, 0, "permanent"),
]


@pytest.mark.parametrize("operation, code, os_error, kind", CASES)
def test_kind(operation, code, os_error, kind):
    assert classify(operation, code, os_error)[0] == kind


def test_every_operation_gives_a_known_kind_for_every_code():
    for operation in {case[0] for case in CASES} | {"download", "metadata", "resize-disk", "unheard-of"}:
        for code in range(120):
            kind, hint = classify(operation, code)
            assert kind in KINDS and hint.endswith(".")


@pytest.mark.parametrize("code, text, passing", [
    (1, "internal error: pool 'default' has asynchronous jobs running.", True),
    (55, "Requested operation is not valid: volume 'x' is still being allocated.", True),
    (55, "Requested operation is not valid: pool 'default' has asynchronous jobs running.", False),
    (1, "internal error: volume is still being allocated", False),
    (1, "internal error: client socket is closed", False),
    (38, "Cannot recv data: Connection reset by peer", False),
    (68, "Timed out during operation: cannot acquire state change lock", False),
    (55, "Requested operation is not valid: domain is already running", False),
])
def test_only_what_passes_within_moments_is_repeated(code, text, passing):
    assert is_passing(code, text) is passing


UNREACHED = "End of file while reading data: virt-ssh-helper: cannot connect to '/run/x': Failed to connect socket to '/run/x': "

NO_CALLBACK = "No user interaction callback provided"
OTHER_KEY = "authentication failed: !!! SSH HOST KEY VERIFICATION FAILED !!!: Identity of host 'h:22' differs from stored identity."
# As libvirt 9.0, 11.3 and 12.8 and OpenSSH 9.2 say it: transport, code, errno, text, kind, a part of the hint, is it tried again.
OPENS = [
    ("unix", 38, errno.ENOENT, "Failed to connect socket to '/var/run/libvirt/libvirt-sock': No such file or directory", "transient", "is running", True),
    ("unix", 38, errno.ECONNREFUSED, "Failed to connect socket to '/x': Connection refused", "transient", "libvirtd", True),
    ("unix", 38, errno.EACCES, "Failed to connect socket to '/x': Permission denied", "permanent", "root", False),
    ("unix", 38, errno.EIO, "End of file while reading data: Input/output error", "transient", "libvirtd", True),
    ("unix", 45, 0, "authentication failed: authentication unavailable", "permanent", "libvirt group", False),
    ("unix", 79, 0, "authentication unavailable: no polkit agent available", "permanent", "libvirt group", False),
    ("unix", 88, 0, "access denied", "permanent", "libvirt group", False),
    ("unix", 5, 0, "no connection driver available for qemu:///system", "permanent", "Check the URI", False),
    ("unix", 1, 0, "internal error: Unable to parse URI qemu://[/x", "permanent", "Check the URI", False),
    ("unix", 39, -1, "packet 1213486156 bytes received from server too large, want 33554432", "permanent", "no libvirt daemon", False),
    ("tcp", 38, errno.ECONNREFUSED, "unable to connect to server at '127.0.0.1:1': Connection refused", "transient", "libvirtd-tcp.socket", True),
    ("tcp", 38, errno.ECONNRESET, "Cannot recv data: Connection reset by peer", "transient", "libvirtd-tcp.socket", True),
    ("tcp", 39, -1, "packet 1213486156 bytes received from server too large, want 33554432", "permanent", "no libvirt daemon", False),
    ("tcp", 39, -1, "got unexpected RPC call prog 2021161080 vers 2021161080 proc 1 type 1", "permanent", "no libvirt daemon", False),
    ("tcp", 38, -1, "Unable to resolve address 'nohost.invalid' service '16509': Name or service not known", "permanent", "look it up", False),
    ("tcp", 38, -1, "Unable to resolve address 'h' service '16509': Temporary failure in name resolution", "transient", "look it up", True),
    ("tls", 38, errno.ENOENT, "Cannot read CA certificate '/etc/pki/CA/cacert.pem': No such file or directory", "permanent", "pkipath", False),
    ("tls", 45, 0, "authentication failed: Failed to verify peer's certificate", "permanent", "server's certificate names", False),
    ("tls", 38, errno.EIO, "Unable to read TLS confirmation: Input/output error", "permanent", "there is none", False),
    ("tls", 39, 0, "server verification (of our certificate or IP address) failed", "permanent", "pkipath", False),
    ("tls", 38, errno.ECONNREFUSED, "unable to connect to server at 'h:16514': Connection refused", "transient", "libvirtd-tls.socket", True),
    ("tls", 38, errno.ECONNREFUSED, "unable to connect to server at 'h:16514': Connection refused", "transient", "libvirtd-tls.socket", True),
    ("ssh", 38, errno.ECONNRESET, "Cannot recv data: Host key verification failed.: Connection reset by peer", "permanent", "ssh_known_hosts", False),
    ("ssh", 38, errno.EIO, "End of file while reading data: @@@\r\nWARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!\r\n: Input/output error",
     "permanent", "ssh_known_hosts", False),
    ("ssh", 38, errno.ECONNRESET, "Cannot recv data: nobody@h: Permission denied (publickey).: Connection reset by peer", "permanent", "keyfile", False),
    ("ssh", 38, errno.ECONNRESET, "Cannot recv data: ssh: connect to host h port 22: Connection refused: Connection reset by peer",
     "transient", "sshd answers", True),
    ("ssh", 38, errno.ECONNRESET, "Cannot recv data: ssh: Could not resolve hostname h: Name or service not known: Connection reset by peer",
     "permanent", "look it up", False),
    ("ssh", 38, errno.ECONNRESET, "Cannot recv data: ssh: Could not resolve hostname h: Temporary failure in name resolution: Connection reset by peer",
     "transient", "look it up", True),
    ("ssh", 38, errno.ECONNRESET, "Cannot recv data: kex_exchange_identification: Connection closed by remote host: Connection reset by peer",
     "transient", "sshd answers", True),
    ("ssh", 38, errno.ECONNRESET, "Cannot recv data: libvirt:  error : cannot execute binary ssh: No such file or directory: Connection reset by peer",
     "permanent", "ssh client", False),
    ("ssh", 38, errno.ECONNRESET, "Cannot recv data: libvirt:  error : cannot execute binary /tmp/x/ssh: Permission denied: Connection reset by peer",
     "permanent", "TMPDIR", False),
    ("ssh", 38, errno.EIO, "End of file while reading data: sh: 1: nc: not found: Input/output error", "permanent", "virt-ssh-helper", False),
    ("ssh", 38, errno.EIO, UNREACHED + "Permission denied: Input/output error", "permanent", "libvirt group", False),
    ("ssh", 38, errno.EIO, UNREACHED + "No such file or directory: Input/output error", "transient", "is running", True),
    ("ssh", 38, errno.EIO, "End of file while reading data: : Input/output error", "transient", "BatchMode", True),
    ("ssh", 45, 0, "authentication failed: authentication unavailable", "permanent", "libvirt group", False),
    ("libssh", 98, -1, f"libssh transport error: {NO_CALLBACK}: Can't verify the session host key", "permanent", "known_hosts in the URI", False),
    ("libssh2", 85, -1, f"SSH transport error: {NO_CALLBACK}: Can't verify the session host key", "permanent", "known_hosts in the URI", False),
    ("libssh", 45, -1, OTHER_KEY, "permanent", "known_hosts in the URI", False),
    ("libssh2", 45, -1, OTHER_KEY, "permanent", "known_hosts in the URI", False),
    ("libssh", 98, -1, "libssh transport error: failed to authenticate: Access denied for 'publickey'. Authentication that can continue: password",
     "permanent", "keyfile", False),
    ("libssh", 45, -1, "authentication failed: error while reading private key '/k'", "permanent", "keyfile", False),
    ("libssh2", 45, -1, "authentication failed: authentication with private key '/k' has failed: Username/PublicKey combination invalid",
     "permanent", "keyfile", False),
    ("libssh2", 85, -1, f"SSH transport error: {NO_CALLBACK}: Can't retrieve private key passphrase", "permanent", "keyfile", False),
    ("libssh2", 85, -1, "SSH transport error: Failed to connect to ssh agent", "permanent", "keyfile", False),
    ("libssh", 38, errno.ECONNREFUSED, "unable to connect to server at 'h:9': Connection refused", "transient", "sshd answers", True),
    ("libssh2", 38, -1, "Unable to resolve address 'h' service '22': Name or service not known", "permanent", "look it up", False),
    ("libssh2", 38, -1, "Unable to resolve address 'h' service '22': Temporary failure in name resolution", "transient", "look it up", True),
]


@pytest.mark.parametrize("transport, code, os_error, text, kind, hint, again", OPENS)
def test_why_a_connection_could_not_be_opened(transport, code, os_error, text, kind, hint, again):
    verdict = classify_open(transport, code, os_error, text)
    assert (verdict.kind, verdict.again) == (kind, again) and hint in verdict.hint


def test_every_failure_to_open_has_a_kind_and_says_what_to_do():
    for transport in ("unix", "ssh", "libssh", "libssh2", "tls", "tcp"):
        for code in range(120):
            verdict = classify_open(transport, code, 0, "")
            assert verdict.kind in KINDS and verdict.hint and (not verdict.again or verdict.kind == "transient")
