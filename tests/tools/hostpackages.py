# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian packages that the tooling itself needs. Only what is missing is installed, so a prepared machine is left alone."""

from __future__ import annotations

import os
import shutil
import subprocess

from console import Step, ToolError, must
from interpreter import Interpreter

# For each purpose: the package, and the program that tells it is there however it was installed (None: ask dpkg).
_WANTED: dict[str, dict[str, str | None]] = {
    "venv": {"git": "git", "gcc": "gcc", "pkg-config": "pkg-config", "openssh-client": "ssh", "libc6-dev": None, "libvirt-dev": None},
    "lint": {"shellcheck": "shellcheck"},
    "unit": {"qemu-utils": "qemu-img"},
}


def _installed(package: str) -> bool:
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Status}", package], capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.strip().endswith(" installed")


def missing(python: Interpreter, *purposes: str) -> list[str]:
    """Names of the packages that are still to be installed for a venv of this Python, and for further purposes."""
    wanted = {package: program for purpose in ("venv", *purposes) for package, program in _WANTED[purpose].items()}
    names = [package for package, program in wanted.items() if not (shutil.which(program) if program else _installed(package))]
    if python.is_system:
        if not python.has_ensurepip:
            names.append(f"python{python.text}-venv")
        if not python.has_headers:
            names.append(f"python{python.text}-dev")
    return names


def as_root() -> list[str]:
    """What stands before a command that needs root: nothing, or sudo."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo"):
        return ["sudo"]
    raise ToolError("Failed to get root: this user is not root and sudo is not installed. Run as root, or install sudo")


def install(names: list[str]) -> None:
    """Install Debian packages; nothing happens for an empty list."""
    if not names:
        return
    if not shutil.which("apt-get"):
        raise ToolError(f"Failed to install {', '.join(names)}: there is no apt-get here. Install what corresponds to them and run again")
    apt = [*as_root(), "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "Dpkg::Use-Pty=0", "-o", "DPkg::Lock::Timeout=300"]
    with Step(f"installing Debian packages: {' '.join(names)}"):
        must("read the package lists", [*apt, "update"])
        # Hundreds of lines about unpacking; what goes wrong is on the error output.
        must("install " + " ".join(names), [*apt, "install", "-y", "--no-install-recommends", *names], quiet=True)
