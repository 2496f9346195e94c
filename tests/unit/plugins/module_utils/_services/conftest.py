# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hypervisor with a published base and an overlay for the instance `one`, and time that passes by itself."""

from __future__ import annotations

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._services import power, waiting
from ansible_collections.egress.kvm2.tests.unit.domains import LOCAL, POOL
from ansible_collections.egress.kvm2.tests.unit.fake import qcow2_bytes
from ansible_collections.egress.kvm2.tests.unit.fake.hypervisor import FakeHypervisor
from ansible_collections.egress.kvm2.tests.unit.fake.machine import GIB, Guest
from ansible_collections.egress.kvm2.tests.unit.running import run_module


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    """Time passes by itself: each pause moves the clock that the waits use."""
    now = [0.0]
    monkeypatch.setattr(power.time, "monotonic", lambda: now[0])

    def pause(seconds):
        now[0] += seconds
    for function in (power.stop_all, waiting.wait_all):
        monkeypatch.setattr(function, "__defaults__", tuple(
            (lambda: now[0]) if callable(value) and value is not power.pause else pause if value is power.pause else value
            for value in function.__defaults__))


@pytest.fixture
def hypervisor(tmp_path):
    path = tmp_path / "image.qcow2"
    path.write_bytes(bytes(qcow2_bytes.image(GIB)) + b"\0" * 70000)
    fake = FakeHypervisor(uri=LOCAL)
    fake.machine.guest = Guest(addresses=("192.168.122.10",), polls=2)
    fake.machine.put_file(f"{POOL}/base-debian-13.qcow2", b"somebody else's")
    base = run_module("image", fake, key="micro", src=str(path)).image["base"]
    run_module("overlay", fake, fleet="edge", base=base, instances=[{"name": "one"}])
    fake.base, fake.image = base, str(path)
    fake.forget_calls()
    return fake
