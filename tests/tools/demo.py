# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""make demo: from whatever is there to proxies that answer."""

from __future__ import annotations

import time
from pathlib import Path

import environment
import nested
from console import Background, ToolError, say
from paths import CHECKOUT
from provision import FLEET, provision

# Each guest: the fleet that is made of it, and how long it takes.
GUESTS = {
    "debian": (FLEET, "Debian guests: without KVM each takes about three minutes from its start to its proxy"),
    "micro": (CHECKOUT / "tests" / "demo" / "fleet-micro.yml", "micro guests, which are there within seconds"),
}
DEFAULT = "debian"


def prepare(hosts: str, guest: str) -> Path:
    """Packages, then the environment and the hypervisors with the guest's image side by side; returns the venv's folder."""
    environment.ensure_packages()
    nested.harness("install the harness's packages", "packages")
    say("the Python environment and the nested hypervisors are made at the same time; lines of the latter are marked [nested]")
    hypervisors = Background("nested", nested.command("up", "--hosts", hosts, "--guest", guest))
    try:
        venv = environment.ensure()
        hypervisors.wait("start the nested hypervisors")
    except BaseException:
        hypervisors.stop()
        raise
    return venv


def demo(guest: str, extra: list[str]) -> int:
    """The whole demonstration; 0 when every proxy answered."""
    if guest not in GUESTS:
        raise ToolError(f"Failed to choose the guest {guest}: GUEST must be one of {', '.join(GUESTS)}")
    fleet, remark = GUESTS[guest]
    started = time.monotonic()
    say("two egress proxies on a nested hypervisor: packages, environment, hypervisor, fleet, requests", "demo")
    say(remark, "demo")
    prepare("hv1", guest)
    say(f"hypervisor ready after {time.monotonic() - started:.0f} s", "demo")
    code = provision(nested.INVENTORY, fleet, extra)
    say(f"{'done' if code == 0 else 'FAILED: a proxy did not answer'}, {time.monotonic() - started:.0f} s in all", "demo")
    return code
