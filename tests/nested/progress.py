# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the user sees: steps with their elapsed time, and programs whose output goes to a log."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
import sys
import threading
import time

TICK = 10.0  # seconds between two signs of life of a long step
_lock = threading.Lock()


class Failure(Exception):
    """A failure whose text names the object, the cause and what to do about it."""


def say(text: str) -> None:
    """Print one line at once, whole, whichever thread prints."""
    with _lock:
        print(text, file=sys.stderr, flush=True)


class Step:
    """One long step: says that it starts, where it is at least every ten seconds, and how long it took."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.detail = "working"
        self.more = None  # a function that tells the newest detail
        self.began = time.monotonic()
        self._over = threading.Event()

    def _tick(self) -> None:
        while not self._over.wait(TICK):
            detail = (self.more() if self.more else None) or self.detail
            say(f"{self.name}: {detail} … {self.elapsed():.0f} s")

    def elapsed(self) -> float:
        """Return the seconds since the step began."""
        return time.monotonic() - self.began


@contextlib.contextmanager
def step(name: str):
    """Run the body as a step of that name."""
    this = Step(name)
    say(f"{name} …")
    ticker = threading.Thread(target=this._tick, daemon=True)
    ticker.start()
    try:
        yield this
    except BaseException as reason:
        outcome = "interrupted" if isinstance(reason, KeyboardInterrupt) else "failed"
        say(f"{name}: {outcome} after {this.elapsed():.1f} s")
        raise
    else:
        say(f"{name}: done in {this.elapsed():.1f} s")
    finally:
        this._over.set()
        ticker.join()


def _tail(log: pathlib.Path) -> list[str]:
    """Return the last lines of a log."""
    with open(log, "rb") as handle:
        handle.seek(max(0, log.stat().st_size - 8192))
        return handle.read().decode(errors="replace").splitlines()[-40:]


def logged(
    this: Step, command: list[str], log: pathlib.Path, describe=None, env: dict[str, str] | None = None, fenced: bool = True
) -> None:
    """Run a program with its output in `log`; `describe` turns an output line into the step's detail, or None to skip it.

    A fenced program and all its children end with this process, even when it is killed: they live in a process namespace
    of their own whose first process gets a signal at our death. So does whatever they mount.
    """
    fence = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]

    def detail() -> str | None:
        return next(filter(None, map(describe, reversed(_tail(log)))), None) if describe else None

    with open(log, "w", encoding="utf-8") as sink:
        try:
            child = subprocess.Popen(
                (fence if fenced else []) + command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, env=env
            )
        except FileNotFoundError as reason:
            raise Failure(f"Failed to run {command[0]}: {reason}. Run `python3 tests/nested packages` first.") from reason
        this.more = detail
        try:
            code = child.wait()
        except BaseException:
            child.kill()
            child.wait()
            raise
        finally:
            this.more = None
    if code != 0:
        said = "\n  ".join(_tail(log)[-15:])
        raise Failure(f"Failed to run `{' '.join(command[:3])} …`: it ended with {code}. Its log is {log}; the end of it:\n  {said}")


def answer(command: list[str], timeout: float = 60, check: bool = True, stdin: str | None = None) -> str:
    """Run a short program and return what it printed; with check, a failure is raised with its own words."""
    try:
        done = subprocess.run(
            command, input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", timeout=timeout, check=False,
        )
    except FileNotFoundError as reason:
        raise Failure(f"Failed to run {command[0]}: {reason}. Run `python3 tests/nested packages` first.") from reason
    except subprocess.TimeoutExpired as reason:
        if not check:
            return ""
        raise Failure(f"Failed to run `{' '.join(command)}`: no end after {timeout:.0f} s.") from reason
    if done.returncode != 0 and check:
        said = (done.stderr or done.stdout).strip()
        raise Failure(f"Failed to run `{' '.join(command)}`: it ended with {done.returncode}: {said}")
    return done.stdout if done.returncode == 0 else ""


def wait_until(condition, timeout: float, what: str, pause: float = 0.25):
    """Call `condition` until it returns something true and return that; after `timeout` seconds fail and say what was awaited."""
    end = time.monotonic() + timeout
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise Failure(f"Failed to see {what}: not so after {timeout:.0f} s.")
        time.sleep(pause)
