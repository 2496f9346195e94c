# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of libvirt's daemons the role hypervisor chooses, by what systemd lists."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

VARIABLES = Path(__file__).resolve().parents[3] / "roles" / "hypervisor" / "vars" / "main" / "main.yml"
# As systemctl list-unit-files --plain prints them on Debian 12: its columns are as wide as the longest name needs.
ALL = """libvirtd.service  {libvirtd:<8} enabled
virtlockd.service indirect enabled
virtlogd.service  indirect enabled
virtqemud.service {virtqemud:<8} enabled
libvirtd.socket   {libvirtd:<8} enabled
"""


def chosen(units):
    loader = DataLoader()
    variables = loader.load_from_file(str(VARIABLES), trusted_as_template=True)
    return Templar(loader, variables | {"__hypervisor_units": {"stdout": units}}).template(variables["__hypervisor_kind"])


@pytest.mark.parametrize("libvirtd, virtqemud, kind", [
    ("enabled", "enabled", "monolithic"), ("enabled", "masked", "monolithic"), ("disabled", "enabled", "modular"), ("masked", "enabled", "modular"),
    ("disabled", "disabled", "monolithic"), ("masked", "disabled", "modular"), ("masked", "masked", "none"),
])
def test_what_is_enabled_else_what_is_not_masked(libvirtd, virtqemud, kind):
    assert chosen(ALL.format(libvirtd=libvirtd, virtqemud=virtqemud)) == kind


@pytest.mark.parametrize("units, kind", [
    ("libvirtd.service enabled enabled\nvirtlogd.service enabled enabled\n", "monolithic"),
    ("libvirtd.service masked  enabled\nvirtlogd.service enabled enabled\n", "none"),
    ("libvirtd.service  masked   enabled\nvirtlockd.service indirect enabled\n", "none"),
    ("virtqemud.service  disabled enabled\nvirtstoraged.service disabled enabled\n", "modular"),
    ("virtlogd.service enabled enabled\n", "none"),
    ("", "none"),
])
def test_one_daemon_or_none(units, kind):
    assert chosen(units) == kind
