# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module run as Ansible runs one, in a process of its own: what it printed, when it ended, and what is left of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

MODULES = "ansible_collections.egress.kvm2.plugins.modules"
# Nobody waits for longer: a run that does not end by itself is one that hangs. Longer than any bound on a machine that is twenty times slower than usual.
LONGEST = 300
# The limits of a run that nothing is to stop, however busy the machine is.
PATIENT = {"connect_timeout": 30, "keepalive_interval": 5, "keepalive_count": 10, "timeout": 240}
# For a child that was killed to be gone from the list of processes.
SETTLE = 3


@dataclass(frozen=True)
class Ended:
    """began and ended: time.monotonic(). result: what Ansible would read, or None. left: command lines of processes that outlived it."""

    began: float
    ended: float
    code: int | None
    result: dict | None
    output: str
    left: tuple

    @property
    def failed(self):
        return self.result is None or bool(self.result.get("failed"))

    @property
    def kind(self):
        return ((self.result or {}).get("error") or {}).get("kind", "")

    def problems(self):
        """What is wrong whatever came of the work, as texts."""
        found = []
        if self.code is None:
            found.append(f"it did not end within {LONGEST} s")
        elif self.result is None:
            found.append(f"it printed no result but {self.output[-800:]!r}")
        elif self.failed and not (self.kind and self.result.get("msg") and self.result["error"].get("hint")):
            found.append(f"its failure has no kind, message or hint: {self.result}")
        if self.left:
            found.append(f"left running: {self.left}")
        return found


class Call:
    """A run that goes on: stop() or end() has to follow. Standard output is a pipe, so a child that holds it is waited for, as Ansible would."""

    def __init__(self, module, options, environment=None, check=False):
        # libvirt hands TMPDIR on to the ssh it starts, and sshd takes it from nobody: so a process with it is the module's.
        self._folder = tempfile.TemporaryDirectory(prefix="kvm2-fault-")
        arguments = dict(options, _ansible_check_mode=check, _ansible_remote_tmp=self._folder.name)
        self.began = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{MODULES}.{module}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True, env=dict(os.environ, TMPDIR=self._folder.name, **(environment or {})))
        self._input = json.dumps({"ANSIBLE_MODULE_ARGS": arguments})

    @property
    def pid(self):
        return self._process.pid

    def end(self):
        try:
            output = self._process.communicate(self._input, timeout=LONGEST)[0]
        except subprocess.TimeoutExpired as late:
            output = (late.stdout or b"").decode(errors="replace")
        ended = time.monotonic()
        code = self._process.poll()
        left = self._left()
        self._stop()
        self._folder.cleanup()
        return Ended(self.began, ended, code, _result(output), output, left)

    def _left(self):
        """Command lines of what still runs a little later."""
        until = time.monotonic() + SETTLE
        while True:
            found = tuple(command for _pid, command in self.processes())
            if not found or time.monotonic() > until:
                return found
            time.sleep(0.1)

    def processes(self):
        mark = f"TMPDIR={self._folder.name}".encode()
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    ours = mark in file.read().split(b"\0")
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    command = file.read().replace(b"\0", b" ").decode(errors="replace").strip()[:120]
            except OSError:
                continue
            if ours:
                found.append((int(pid), command))
        return found

    def _stop(self):
        for pid, _command in self.processes():
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        self._process.wait()
        self._process.stdout.close()


def call(module, options, **how):
    return Call(module, options, **how).end()


def quiet(module, options, **how):
    """Its result, once it has succeeded; it has all the time."""
    done = call(module, {**options, **PATIENT}, **how)
    if done.failed or done.problems():
        raise AssertionError(f"{module} {options}: {done.output}")
    return done.result


def _result(output):
    """The last line that is a result, as Ansible finds it."""
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except ValueError:
                continue
    return None
