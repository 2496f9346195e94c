# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import errno

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host.classify import classify
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import KINDS

CASES = [
    # operation, code, errno, kind: as measured on libvirt 9.0, 11.3 and 12.8
    ("open", 38, errno.ENOENT, "transient"),
    ("open", 38, errno.EACCES, "permanent"),
    ("open", 5, 0, "permanent"),
    ("open", 45, 0, "permanent"),
    ("refresh", 1, 0, "transient"),
    ("refresh", 55, 0, "permanent"),
    ("create-volume", 38, errno.ENOSPC, "quota"),
    ("create-volume", 38, errno.EDQUOT, "quota"),
    ("create-volume", 38, errno.ENAMETOOLONG, "permanent"),
    ("create-volume", 90, 0, "conflict"),
    ("create-volume", 55, 0, "conflict"),
    ("delete-volume", 55, 0, "transient"),
    ("upload", 38, errno.ENOSPC, "quota"),
    ("upload", 38, errno.EPIPE, "transient"),
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
            assert kind in KINDS and isinstance(hint, str)
