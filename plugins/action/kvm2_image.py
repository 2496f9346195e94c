# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module kvm2_image as Ansible would, and meanwhile shows how far a long fetch is. The module's own file documents it."""

from __future__ import annotations

import copy
import secrets
import shlex
import threading
import time

from ansible.errors import AnsibleError
from ansible.plugins.action.normal import ActionModule as PlainAction
from ansible.utils.display import Display

from ansible_collections.egress.kvm2.plugins.module_utils._policy import progress

display = Display()

# Connections that open anew for each command, so that a copy of one is a second connection.
COPIED = ("ssh", "local")
FIRST = 3
# Seconds between two looks, by how long the fetch has gone on: a long one need not fill the log.
PAUSES = ((60, 5), (600, 15), (float("inf"), 60))


class ActionModule(PlainAction):
    """Same arguments, same result and same failures as without it."""

    def run(self, tmp=None, task_vars=None):
        if not self._can_be_watched():
            return super().run(tmp, task_vars)
        token = secrets.token_hex(16)
        environment = self._task.environment or []
        self._task.environment = [*(environment if isinstance(environment, list) else [environment]), {progress.TOKEN: token}]
        watcher = Watcher(self, token, f"{self._shown_host(task_vars or {})}: {self._task.args.get('key')}: ")
        try:
            result = super().run(tmp, task_vars)
        finally:
            watcher.stop()
            self._task.environment = environment
        # A module that reports an error of its own has removed its file; one that was killed has not.
        if watcher.looked and result.get("failed") and not result.get("unreachable") and "error" not in result:
            watcher.sweep()
        return result

    def _can_be_watched(self):
        """Check mode fetches nothing, an asynchronous task comes back at once, and what is displayed would not heed no_log."""
        task = self._task
        shell = getattr(self._connection, "_shell", None)
        quiet = task.check_mode or task.async_val or task.no_log
        return not quiet and self._connection.transport in COPIED and getattr(shell, "SHELL_FAMILY", None) == "sh"

    def _shown_host(self, task_vars):
        host = task_vars.get("inventory_hostname", "")
        return f"{host} -> {self._task.delegate_to}" if self._task.delegate_to else host


class Watcher:
    """A thread with a connection of its own that reads the status file and displays a line now and then. Its troubles are its own."""

    def __init__(self, action, token, prefix):
        self._folder = progress.folder(token)
        self._prefix = prefix
        self._action = self._second(action)
        self._stopped = threading.Event()
        self.looked = False
        self._thread = threading.Thread(target=self._watch, name="kvm2-progress", daemon=True)
        self._thread.start()

    @staticmethod
    def _second(action):
        second = copy.copy(action)
        second._connection = copy.copy(action._connection)
        # A become plugin remembers the marks of the command it has built last.
        second._connection.become = copy.copy(action._connection.become)
        return second

    def stop(self):
        """Nothing is displayed afterwards. A look that hangs is left alone: it ends with this process."""
        self._stopped.set()
        self._thread.join(2)

    def sweep(self):
        self._ask(f"rm -f {self._folder}/new {self._folder}/{progress.FILE}; rmdir {self._folder}")

    def _watch(self):
        began, before, pause = time.monotonic(), None, FIRST
        while not self._stopped.wait(pause):
            self.looked = True
            # Only a folder of the module's own user is read, and no link: once the module has gone, anybody may take its name.
            text = self._ask(f"[ -O {self._folder} ] && [ ! -L {self._folder} ] && head -c {progress.LIMIT} {self._folder}/{progress.FILE}")
            sample = progress.parse(text)
            if sample is not None and not self._stopped.is_set():
                display.display(self._prefix + progress.line(sample, before))
                before = sample
            pause = next(each for until, each in PAUSES if time.monotonic() - began < until)

    def _ask(self, script):
        """Output of a command beside the module, as the module's user; empty where it cannot be had."""
        try:
            return self._action._low_level_execute_command(f"/bin/sh -c {shlex.quote(script + ' 2>/dev/null')}")["stdout"]
        except (AnsibleError, OSError):
            return ""
