# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What we render is what libvirt's own schema allows: every golden file of the unit tests, on each release."""

from __future__ import annotations

import base64
import io
import tarfile
from pathlib import Path

import pytest
from nested import HOSTS

from .conftest import CHECKOUT, of_release

GOLDEN = sorted((CHECKOUT / "tests/unit/plugins/module_utils/_policy/golden").glob("domain-*.xml"))


def packed(paths):
    """The files as text that a shell command can carry."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        for path in paths:
            archive.add(path, Path(path).name)
    return base64.b64encode(written.getvalue()).decode()


@pytest.mark.parametrize("release", [pytest.param(release, marks=[] if host == "hv1" else [pytest.mark.extended]) for release, host in HOSTS.items()])
def test_libvirts_schema_allows_every_golden_file(release):
    said = of_release(release).shell(
        HOSTS[release],
        f"cd $(mktemp -d) && echo {packed(GOLDEN)} | base64 -d | tar xzf - && "
        "for file in *.xml; do virt-xml-validate $file domain 2>&1 | grep -v ' validates$'; done; ls *.xml | wc -l; rm -r $PWD")
    assert said.split() == [str(len(GOLDEN))], said


def test_the_schema_refuses_what_is_none_of_its_own():
    said = of_release("trixie").shell(
        HOSTS["trixie"],
        "cd $(mktemp -d); echo \"<domain type='kvm'><name>a</name><nonsense/></domain>\" > a.xml; virt-xml-validate a.xml domain 2>&1; echo $?; rm -r $PWD")
    assert said.split()[-1] != "0", said
