# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every playbook in cases/ must pass against a nested hypervisor of each release. Each starts from and ends with an unchanged hypervisor.

Usually all of them but those with a line "# Extended" run on the default release, and those with a line "# Smoke" on the others too; the rest is
extended.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from nested import HOSTS

from .conftest import of_release

CASES = sorted((Path(__file__).parent / "cases").glob("*.yml"))


def is_usual(case, host):
    text = case.read_text(encoding="utf-8")
    return "\n# Smoke\n" in text or (host == "hv1" and "\n# Extended\n" not in text)


PARAMETERS = [
    pytest.param(release, case, id=f"{case.stem}-{release}", marks=[] if is_usual(case, host) else [pytest.mark.extended])
    for release, host in HOSTS.items() for case in CASES
]


@pytest.mark.parametrize("release, case", PARAMETERS)
def test_case(release, case):
    hypervisors, host = of_release(release), HOSTS[release]
    before = listing(hypervisors, host)
    hypervisors.playbook(case, "--limit", f"{host},localhost")
    assert listing(hypervisors, host) == before, f"{case.name} left something behind, or took something away"


def test_some_cases_run_on_every_release():
    usual = [parameters.id for parameters in PARAMETERS if not parameters.marks]
    for release in HOSTS:
        assert {f"image-{release}", f"instances-{release}"} <= set(usual)


def listing(hypervisors, host):
    """Names, sizes and digests of the pool's files, and the names of all domains, pools and networks."""
    return hypervisors.shell(
        host, "cd /var/lib/libvirt/images && find . -type f -exec sha256sum {} + | sort; virsh -q list --all --name; virsh -q vol-list default;"
        " virsh -q pool-list --all; virsh -q net-list --all")
