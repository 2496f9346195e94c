# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""make lint: every linter over what is there; all of them run, and one that complains fails the whole."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import environment
from console import Step, ToolError, run
from paths import CHECKOUT
from placement import collections_root
from sanity import checkout_files

_ANTSIBULL = CHECKOUT / "tests" / "tools" / "antsibull.cfg"


def _shell_scripts() -> list[str]:
    """The checkout's shell scripts, by name or by their first line."""
    return [name for name in checkout_files() if _is_shell(CHECKOUT / name)]


def _is_shell(path: Path) -> bool:
    if not path.is_file() or path.is_symlink():
        return False
    if path.suffix == ".sh":
        return True
    with path.open("rb") as handle:
        first = handle.readline(80)
    return first.startswith(b"#!") and first.rstrip().endswith((b"/sh", b"/bash", b"env bash", b"env sh"))


def _commands(venv: Path) -> dict[str, list[str | Path]]:
    program = venv / "bin"
    commands: dict[str, list[str | Path]] = {
        "ruff": [program / "ruff", "check", "--no-cache", "."],
        "yamllint": [program / "yamllint", "--strict", "."],
        "ansible-lint": [program / "ansible-lint", "--nocolor", "--offline"],
        "antsibull-changelog": [program / "antsibull-changelog", "lint"],
        "antsibull-docs": [program / "antsibull-docs", "--config-file", _ANTSIBULL, "lint-collection-docs", "--plugin-docs", "."],
    }
    scripts = _shell_scripts()
    if scripts and shutil.which("shellcheck"):
        commands["shellcheck"] = ["shellcheck", "--", *scripts]
    return commands


def lint() -> None:
    """Run all linters; ToolError names those that complained."""
    environment.ensure_packages("lint")
    venv = environment.ensure()
    # From inside its collection tree, since ansible-lint and antsibull-docs tell by the path what the collection is called.
    where = collections_root() / "ansible_collections" / "egress" / "kvm2"
    failed = []
    for name, command in _commands(venv).items():
        with Step(name, "lint"):
            if run(command, env=environment.venv_env(venv), cwd=where):
                failed.append(name)
                sys.stderr.flush()
    if failed:
        raise ToolError(f"Failed to lint: {', '.join(failed)} complained; see the lines above")
