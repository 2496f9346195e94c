# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every playbook in cases/ must pass against a nested hypervisor. Each starts from and ends with an unchanged pool."""

from __future__ import annotations

from pathlib import Path

import pytest

CASES = sorted((Path(__file__).parent / "cases").glob("*.yml"))


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_case(hv1, case):
    before = pool_listing(hv1)
    hv1.playbook(case, "--limit", "hv1,localhost")
    assert pool_listing(hv1) == before, f"{case.name} left something behind, or took something away"


def pool_listing(hypervisors):
    """Names, sizes and digests of the pool's files, and the names of all domains."""
    return hypervisors.shell(
        "hv1", "cd /var/lib/libvirt/images && find . -type f -exec sha256sum {} + | sort; virsh -q list --all --name; virsh -q vol-list default")
