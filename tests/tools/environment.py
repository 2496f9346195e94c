# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The virtual environment with every pinned tool, made once for each set of pins and Python."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import hostpackages
import interpreter
from console import Step, ToolError, must, say
from paths import CACHE, CHECKOUT
from placement import place

_PINS = [CHECKOUT / "tests" / "requirements" / name for name in ("requirements.txt", "constraints.txt")]
# Written last: a venv without it was interrupted, and is made again.
_MARKER = "kvm2-complete"


def venv_path(python: interpreter.Interpreter) -> Path:
    """Folder of the venv for these pins and this Python; the folder's own path counts, since a venv cannot be moved."""
    digest = hashlib.sha256()
    for part in [os.fsencode(python.path), python.text.encode(), os.fsencode(CACHE), *(path.read_bytes() for path in _PINS)]:
        digest.update(len(part).to_bytes(8, "big") + part)
    return CACHE / f"venv-{digest.hexdigest()[:12]}"


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a lock in the state folder; a second make of the same checkout waits and says so. The kernel drops it with the process."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting: another run works on {name} in {CACHE}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def ensure_packages(*purposes: str) -> None:
    """Install the Debian packages that the venv and the purposes (lint, unit) need."""
    hostpackages.install(hostpackages.missing(interpreter.choose(), *purposes))
    interpreter.forget()


def ensure() -> Path:
    """Make the venv where it is missing or half made, place the collection, and return the venv's folder."""
    place()
    python = interpreter.choose()
    target = venv_path(python)
    if not (target / _MARKER).exists():
        ensure_packages()
        with locked("venv"):
            if not (target / _MARKER).exists():
                _make(interpreter.choose(), target)
    _link(target)
    return target


def _make(python: interpreter.Interpreter, target: Path) -> None:
    with Step(f"making the Python {python.text} environment in {target} (about a minute)"):
        shutil.rmtree(target, ignore_errors=True)
        must("make the venv", [python.path, "-m", "venv", target])
        # Twice quiet: only errors. What is not compiled now is compiled when it is first used.
        pip = [target / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "-qq", "--no-input", "--no-compile"]
        must("install the pinned tools", [*pip, "-r", _PINS[0], "-c", _PINS[1]], env=clean_env())
        must("check the installed tools", [target / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "check"], env=clean_env())
        (target / _MARKER).touch()


def _link(target: Path) -> None:
    """Point .cache/venv at the venv in use; replaced by rename, so that it is there at any moment."""
    link = CACHE / "venv"
    if link.is_symlink() and os.readlink(link) == target.name:
        return
    if link.exists() and not link.is_symlink():
        raise ToolError(f"Failed to link {link}: something that is not ours is there. Move it away and run again")
    fresh = CACHE / f"venv.link-{os.getpid()}"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target.name)
    os.replace(fresh, link)


def clean_env() -> dict[str, str]:
    """The caller's environment without what would lead Python or Ansible astray."""
    dropped = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "ANSIBLE_CONFIG", "ANSIBLE_COLLECTIONS_PATH", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    return {key: value for key, value in os.environ.items() if key not in dropped}


def venv_env(venv: Path) -> dict[str, str]:
    """Environment for the venv's programs: its bin first on PATH, and the collection findable."""
    env = clean_env()
    env["PATH"] = f"{venv / 'bin'}{os.pathsep}{env.get('PATH', os.defpath)}"
    env["VIRTUAL_ENV"] = str(venv)
    env["ANSIBLE_COLLECTIONS_PATH"] = str(place())
    return env
