# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-test sanity over a copy of the checkout, uncommitted work included, in the folder layout that it insists on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import environment
import interpreter
from console import Step, ToolError, must, say
from paths import CHECKOUT, IN_COLLECTIONS, SANITY


def checkout_files() -> list[str]:
    """Every file that is or would be committed, relative to the checkout."""
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", CHECKOUT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise ToolError(f"Failed to list the files of {CHECKOUT}: {done.stderr.decode().strip()}. The checkout must be a git work tree")
    return sorted({os.fsdecode(name) for name in done.stdout.split(b"\0") if name})


def copy_checkout(target: Path) -> None:
    """Make target a fresh git tree with the checkout's files as they are now."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in checkout_files():
        source = CHECKOUT / name
        if source.is_symlink() or source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)
    must("make a git tree of the copy", ["git", "init", "--quiet", target])


def run(arguments: list[str]) -> None:
    """Run the sanity tests with the venv's ansible-core; ToolError when one fails. arguments are handed on to ansible-test."""
    environment.ensure_packages("lint")
    venv = environment.ensure()
    python = interpreter.choose()
    target = SANITY / IN_COLLECTIONS
    with environment.locked("sanity"), Step(f"ansible-test sanity on Python {python.text} (its own tools are installed at the first run)"):
        copy_checkout(target)
        command = [venv / "bin" / "ansible-test", "sanity", "--requirements", "--color", "no", "--python", python.text, *arguments]
        code = _without_pip([str(part) for part in command], environment.venv_env(venv), target)
        if code:
            raise ToolError(f"Failed to pass the sanity tests: ansible-test ended with {code}; what it found is above")


# ansible-test hands no setting on to pip, which is as talkative as it pleases; its errors begin otherwise.
_PIP = re.compile(
    r"Looking in |Collecting |Processing /|Requirement already |Installing collected |Successfully installed |Downloading |Using cached "
    r"|━|WARNING: Location "
)


def _without_pip(command: list[str], env: dict[str, str], cwd: Path) -> int:
    """Run a program and print its lines without those in which pip says how it gets on; its exit code."""
    with subprocess.Popen(
        command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for line in process.stdout:
            text = line.strip()
            if text and not _PIP.match(text):
                say(text, "sanity")
    return process.returncode
