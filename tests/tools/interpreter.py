# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the Python that the development environment is made of: the newest one that our pins were tried on."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from console import ToolError

# 3.14 joins when the pinned tools have been tried on it.
SUPPORTED = ((3, 13), (3, 12), (3, 11))

_PROBE = """
import os, sys, sysconfig, importlib.util
headers = os.path.join(sysconfig.get_path("include"), "Python.h")
print(*sys.version_info[:2], int(importlib.util.find_spec("ensurepip") is not None), int(os.path.exists(headers)), sys.executable)
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that ran: its path, (major, minor), and whether it can make a venv and compile extensions."""

    path: Path
    version: tuple[int, int]
    has_ensurepip: bool
    has_headers: bool

    @property
    def text(self) -> str:
        return f"{self.version[0]}.{self.version[1]}"

    @property
    def is_system(self) -> bool:
        """Whether it belongs to the distribution, so that its missing parts are packages."""
        return self.path.parent in (Path("/usr/bin"), Path("/bin"))


@functools.cache
def probe(command: str | Path) -> Interpreter | None:
    """Run a candidate; None where it is not a working Python (a version manager's shim may only print an error)."""
    try:
        # A venv's or a caller's settings must not change what the candidate says about itself.
        done = subprocess.run([str(command), "-I", "-c", _PROBE], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    parts = done.stdout.strip().split(" ", 4)
    if done.returncode or len(parts) != 5 or not parts[4]:
        return None
    major, minor, ensurepip, headers, path = parts
    return Interpreter(Path(path), (int(major), int(minor)), ensurepip == "1", headers == "1")


def _pyenv_pythons() -> Iterator[Path]:
    root = os.environ.get("PYENV_ROOT")
    if not root and shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=False).stdout.strip()
    versions = Path(root or Path.home() / ".pyenv") / "versions"
    if versions.is_dir():
        yield from sorted(versions.glob("3.*/bin/python3"), reverse=True)


def candidates() -> Iterator[str | Path]:
    """Everything that may be a Python, the likely ones first."""
    yield sys.executable
    for major, minor in SUPPORTED:
        yield from _on_path(f"python{major}.{minor}")
    yield from _on_path("python3")
    yield from _pyenv_pythons()


def _on_path(name: str) -> Iterator[Path]:
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.access(os.path.join(folder, name), os.X_OK):
            yield Path(folder, name)


def available(version: tuple[int, int]) -> list[Interpreter]:
    """The working Pythons of a version, outside of any venv (one inside would make the new environment depend on it)."""
    found = {python.path: python for python in map(probe, candidates()) if python and python.version == version}
    return [python for python in found.values() if not (python.path.parent.parent / "pyvenv.cfg").exists()]


@functools.cache
def _best(version: tuple[int, int]) -> Interpreter | None:
    return max(available(version), key=lambda python: python.has_ensurepip and python.has_headers, default=None)


def choose() -> Interpreter:
    """The newest supported Python here, or that of $KVM2_PYTHON; of equal ones, one that makes a venv and compiles as it is."""
    wanted = os.environ.get("KVM2_PYTHON")
    versions = [version for version in SUPPORTED if wanted in (None, "", ".".join(map(str, version)))]
    for version in versions:
        if python := _best(version):
            return python
    names = ", ".join(".".join(map(str, version)) for version in SUPPORTED)
    if not versions:
        raise ToolError(f"Failed to choose Python {wanted}: KVM2_PYTHON must be one of {names}")
    absent = f"{wanted} is not" if wanted else f"none of {names} is"
    raise ToolError(f"Failed to choose a Python: {absent} on this machine. Install one of {names}")


def forget() -> None:
    """Look again at the next choose(): packages were installed meanwhile."""
    probe.cache_clear()
    _best.cache_clear()
