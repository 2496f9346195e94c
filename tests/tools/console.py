# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tooling prints and how it runs programs: each step is announced, timed and prefixed."""

from __future__ import annotations

import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


class ToolError(Exception):
    """A step failed; the text says what, why and what to do about it."""


def say(text: str, prefix: str = "kvm2") -> None:
    """Print one line at once, so that the order on the screen is the order of events."""
    print(f"[{prefix}] {text}", flush=True)


def run(command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None, quiet: bool = False) -> int:
    """Run a program on this terminal (quiet: without its standard output) and return its exit code."""
    sys.stdout.flush()
    output = subprocess.DEVNULL if quiet else None
    return subprocess.run([str(part) for part in command], env=env, cwd=cwd, stdout=output, check=False).returncode


def must(
    what: str, command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None, quiet: bool = False
) -> None:
    """Run a program like run(); ToolError names the step and the command when it fails."""
    code = run(command, env=env, cwd=cwd, quiet=quiet)
    if code:
        raise ToolError(f"Failed to {what}: exit code {code} from: {shlex.join(str(part) for part in command)}")


class Step:
    """A block whose start, end and duration are printed."""

    def __init__(self, what: str, prefix: str = "kvm2") -> None:
        self.what, self.prefix = what, prefix

    def __enter__(self) -> Step:
        self.started = time.monotonic()
        say(f"{self.what} ...", self.prefix)
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        say(f"{self.what}: {'FAILED after' if kind else 'done in'} {time.monotonic() - self.started:.0f} s", self.prefix)


class Background:
    """A program that runs beside this one; each of its lines is printed with a prefix."""

    def __init__(self, prefix: str, command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> None:
        self.prefix, self.command = prefix, [str(part) for part in command]
        self.process = subprocess.Popen(
            self.command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        self.reader = threading.Thread(target=self._copy, daemon=True)
        self.reader.start()

    def _copy(self) -> None:
        for line in self.process.stdout:
            say(line.rstrip(), self.prefix)

    def wait(self, what: str) -> None:
        """Wait for the end; ToolError when it failed."""
        code = self.process.wait()
        self.reader.join()
        if code:
            raise ToolError(f"Failed to {what}: exit code {code} from: {shlex.join(self.command)} (see the lines marked [{self.prefix}])")

    def stop(self) -> None:
        """End it where another step has failed; what it leaves half done is finished by the next run."""
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()
        self.reader.join()
