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


def command(*arguments: str) -> list[str | Path]:
    """The harness's command line; it needs the standard library only, so any Python will do."""
    return [sys.executable, CHECKOUT / "tests" / "nested", *arguments]


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
