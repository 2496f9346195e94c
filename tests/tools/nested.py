# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nested hypervisors, through the harness's command line and the inventory that it writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from console import must
from paths import CACHE, CHECKOUT

INVENTORY = CACHE / "nested" / "inventory.yml"
# The hypervisors of the integration tests, by release; the first one is the one that most tests use.
HOSTS = {"trixie": "hv1", "bookworm": "hv-bookworm", "forky": "hv-forky"}


def command(*arguments: str) -> list[str | Path]:
    """The harness's command line; it needs the standard library only, so any Python will do."""
    return [sys.executable, CHECKOUT / "tests" / "nested", *arguments]


def up_command(*releases: str) -> list[str | Path]:
    """The harness's command line that has the test hypervisors of these releases running."""
    hosts = [HOSTS[release] for release in releases]
    pairs = ",".join(f"{host}={release}" for host, release in zip(hosts, releases, strict=True))
    return command("up", "--hosts", ",".join(hosts), "--release", pairs)


def harness(what: str, *arguments: str) -> None:
    """Run a harness command on this terminal; ToolError when it fails."""
    must(what, command(*arguments))


def ask(host: str, script: str, seconds: float) -> tuple[int, str]:
    """Run a shell command on a nested hypervisor; its exit code and its output, errors included."""
    try:
        done = subprocess.run(
            [str(part) for part in command("ssh", host, script)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, f"no answer within {seconds:.0f} s"
    return done.returncode, done.stdout.strip()
