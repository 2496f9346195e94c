# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Debian guest by both firmwares; the demo with it is in test_fleet.py. Emulated guests take minutes, so these tests are extended."""

from __future__ import annotations

import subprocess

import pytest

from .conftest import CHECKOUT, command

PLAYBOOK = CHECKOUT / "tests" / "integration" / "debian_efi.yml"


def harness(*arguments):
    return subprocess.run(
        [str(part) for part in command(*arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=3600, check=False)


@pytest.mark.extended
def test_by_bios_and_by_uefi_with_squid_and_dante():
    done = harness("selftest", "--guest", "debian")
    assert done.returncode == 0, done.stdout
    assert "selftest: the Debian guest is as it should be" in done.stdout


@pytest.mark.extended
def test_an_instance_with_uefi_firmware(hv1):
    done = harness("guest", "--kind", "debian")
    assert done.returncode == 0, done.stdout
    listing = "virsh -q list --all --name; virsh -q vol-list default; ls /var/lib/libvirt/qemu/nvram"
    before = hv1.shell("hv1", listing)
    hv1.playbook(PLAYBOOK, "--limit", "hv1", timeout=2400)
    assert hv1.shell("hv1", listing) == before
