# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kind of failure a libvirt error is: told by operation and code together, since one code stands for several things.

The table was measured on libvirt 9.0, 11.3 and 12.8. Numbers are virErrorNumber; the file needs no libvirt.
"""

from __future__ import annotations

import errno

from .._policy.errors import CONFLICT, PERMANENT, QUOTA, TRANSIENT

INTERNAL_ERROR = 1
NO_SUPPORT = 3
NO_CONNECT = 5
INVALID_ARG = 8
OPERATION_FAILED = 9
XML_ERROR = 27
OPERATION_DENIED = 29
SYSTEM_ERROR = 38
RPC = 39
NO_DOMAIN = 42
NO_NETWORK = 43
AUTH_FAILED = 45
NO_STORAGE_POOL = 49
NO_STORAGE_VOL = 50
OPERATION_INVALID = 55
CONFIG_UNSUPPORTED = 67
OPERATION_TIMEOUT = 68
NO_SNAPSHOT = 72
AGENT_UNRESPONSIVE = 86
AUTH_UNAVAILABLE = 79
NO_DOMAIN_METADATA = 80
RESOURCE_BUSY = 87
ACCESS_DENIED = 88
STORAGE_VOL_EXIST = 90

NO_RIGHTS = {AUTH_FAILED, AUTH_UNAVAILABLE, OPERATION_DENIED, ACCESS_DENIED}
MISSING = {NO_DOMAIN, NO_NETWORK, NO_STORAGE_POOL, NO_STORAGE_VOL}

_FULL = {errno.ENOSPC, errno.EDQUOT}
_CANNOT = "The host cannot run such a domain, perhaps for its machine type; kvm2_pool_check tells what it can."
_LOG = "See the daemon's log on the hypervisor: journalctl -u libvirtd -u virtqemud."
RIGHTS = "Run as root or as a member of the libvirt group, or see the daemon's access control."


def classify(operation, code, os_error=0):
    """(kind, hint) of a failure on an open connection; for opening one see classify_open.

    operation: read, refresh, create-volume, delete-volume, resize-volume, upload, download, define, metadata, start, stop, undefine,
    resize-disk.  os_error: the errno that libvirt reports beside SYSTEM_ERROR (its int1).
    """
    if code in NO_RIGHTS:
        return PERMANENT, RIGHTS
    if code in (RPC, OPERATION_TIMEOUT, AGENT_UNRESPONSIVE, RESOURCE_BUSY):
        return TRANSIENT, "Try again."
    if os_error in _FULL and code in (SYSTEM_ERROR, INTERNAL_ERROR):
        return QUOTA, "Free space in the pool, or use another pool."
    if os_error == errno.EFBIG and code in (SYSTEM_ERROR, INTERNAL_ERROR):
        return PERMANENT, "The pool's filesystem takes no file of that length: see whether that is what is meant."
    per_operation = _TABLE.get(operation, {})
    if code in per_operation:
        return per_operation[code]
    if code in MISSING:
        return CONFLICT, "It was removed while this ran; run again."
    return PERMANENT, _LOG


# What passes by itself within moments: libvirt has refused the call before it did anything, whichever it was. It has no codes of their own for
# these, so the text is looked at as well, only to wait a little and never to decide.
_PASSING = ((INTERNAL_ERROR, "asynchronous jobs running"), (OPERATION_INVALID, "is still being allocated"))


def is_passing(code, text):
    """Is it worth to wait a moment and do the same call again? For no other failure it is."""
    return any(code == known and part in text for known, part in _PASSING)


_TABLE = {
    "refresh": {
        INTERNAL_ERROR: (TRANSIENT, "A job runs in the pool; try again once it is done."),
        OPERATION_INVALID: (PERMANENT, "Start the pool: virsh pool-start NAME."),
    },
    "create-volume": {
        STORAGE_VOL_EXIST: (CONFLICT, "A volume of that name exists already."),
        OPERATION_INVALID: (CONFLICT, "A file that libvirt does not know is in the way, or the pool is not active."),
        INTERNAL_ERROR: (TRANSIENT, "Try again."),
        SYSTEM_ERROR: (PERMANENT, _LOG),
    },
    "delete-volume": {
        OPERATION_INVALID: (TRANSIENT, "The volume is still being made; try again."),
        INTERNAL_ERROR: (TRANSIENT, "Try again."),
    },
    "resize-volume": {
        OPERATION_INVALID: (TRANSIENT, "The volume is in use or still being made; try again."),
        INVALID_ARG: (PERMANENT, "A volume is never made smaller."),
    },
    "upload": {
        OPERATION_INVALID: (TRANSIENT, "The volume is still being made; try again."),
        # A stream that the daemon gave up, whatever for.
        OPERATION_FAILED: (TRANSIENT, "Try again."),
        SYSTEM_ERROR: (TRANSIENT, "Try again."),
    },
    "download": {
        OPERATION_INVALID: (TRANSIENT, "The volume is still being made; try again."),
        # A stream that the daemon gave up, whatever for.
        OPERATION_FAILED: (TRANSIENT, "Try again."),
        SYSTEM_ERROR: (TRANSIENT, "Try again."),
    },
    "define": {
        OPERATION_FAILED: (PERMANENT, "Another domain has that name or UUID, or the host has no fitting firmware."),
        INVALID_ARG: (PERMANENT, "The host cannot run that type of domain; use virt_type qemu where KVM does not work."),
        CONFIG_UNSUPPORTED: (PERMANENT, _CANNOT),
        # What it says to a machine that QEMU does not have, by release.
        XML_ERROR: (PERMANENT, _CANNOT),
        INTERNAL_ERROR: (PERMANENT, _CANNOT),
        OPERATION_INVALID: (CONFLICT, "Something else changed it meanwhile; run again."),
    },
    "metadata": {
        OPERATION_INVALID: (TRANSIENT, "Its state changed meanwhile; run again."),
    },
    "resize-disk": {
        OPERATION_INVALID: (TRANSIENT, "Its state changed meanwhile; run again."),
    },
    "start": {
        OPERATION_INVALID: (CONFLICT, "Something else changed its state meanwhile; run again."),
        NO_NETWORK: (PERMANENT, "Define and start the network: virsh net-start NAME."),
        SYSTEM_ERROR: (PERMANENT, "A bridge, disk file or device that the domain names is missing."),
        INTERNAL_ERROR: (PERMANENT, "See /var/log/libvirt/qemu on the hypervisor."),
    },
    "stop": {
        OPERATION_INVALID: (TRANSIENT, "Its state changed meanwhile; run again."),
        SYSTEM_ERROR: (TRANSIENT, "QEMU does not react; try again."),
        INTERNAL_ERROR: (TRANSIENT, "Try again."),
    },
    "undefine": {
        OPERATION_INVALID: (CONFLICT, "Something stands in the way of undefining it; see the cause."),
    },
}
