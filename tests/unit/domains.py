# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kvm2_domain and kvm2_overlay over a fake hypervisor, for the tests of an instance's life."""

from __future__ import annotations

from ansible_collections.egress.kvm2.plugins.module_utils._policy import names
from ansible_collections.egress.kvm2.tests.unit.running import run_module

POOL = "/var/lib/libvirt/images"
LOCAL = "qemu:///system"
UID = names.derive_uid("edge", "one")


def domain(hypervisor, check=False, **given):
    options = {"fleet": "edge", "memory": "128MiB", "networks": [{"network": "default"}], "instances": [{"name": "one"}], **given}
    return run_module("domain", hypervisor, check=check, **options)


def files(hypervisor):
    return sorted(path.rpartition("/")[2] for path in hypervisor.machine.files)


def own(hypervisor):
    return [name for name in files(hypervisor) if names.parse_instance_volume(name)]


def acts(result):
    return [(action["act"], action["what"]) for action in result.actions]


def overlay(hypervisor, check=False, **given):
    return run_module("overlay", hypervisor, check=check, **{
        "fleet": "edge", "base": getattr(hypervisor, "base", None), "instances": [{"name": "one"}], **given})
