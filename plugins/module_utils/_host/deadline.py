# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hard deadline for the whole process, which holds even where a call is blocked in C and no Python exception can reach it."""

from __future__ import annotations

import json
import os
import signal
import threading
import time


class Deadline:
    """A thread that ends the process when a time is over.

    narrow(seconds, act, object) sets a nearer limit for one act, widen() takes it back. At the end the process prints a failure that Ansible
    shows, ends the children it has started (libvirt's ssh), and exits.
    """

    def __init__(self, seconds, uri, clock=time.monotonic, leave=None):
        self._clock = clock
        self._leave = leave or _leave
        self._overall = clock() + seconds
        self._seconds = seconds
        self._uri = uri
        self._near = None
        self._work = ("finish within its timeout the work on", f"hypervisor {uri}")
        self._changed = threading.Condition()
        self._done = False
        self._thread = threading.Thread(target=self._watch, name="kvm2-deadline", daemon=True)
        self._thread.start()

    def narrow(self, seconds, act, obj):
        with self._changed:
            self._near = (self._clock() + seconds, seconds, act, obj)
            self._changed.notify()

    def working_on(self, act, obj):
        """Say what goes on from here, so that a failure at the overall limit names it."""
        self._work = (act, obj)

    def widen(self):
        with self._changed:
            self._near = None
            self._changed.notify()

    def cancel(self):
        """Stop watching; returns when the thread has ended."""
        with self._changed:
            self._done = True
            self._changed.notify()
        self._thread.join(5)

    def remaining(self):
        """Seconds left of the overall time, at least 0."""
        return max(0.0, self._overall - self._clock())

    def _watch(self):
        with self._changed:
            while not self._done:
                due = (self._overall, self._seconds, *self._work)
                if self._near is not None and self._near[0] < due[0]:
                    due = self._near
                left = due[0] - self._clock()
                if left <= 0:
                    self._leave(_failure(due, self._uri))
                    return
                self._changed.wait(left)


def _failure(due, uri):
    seconds, act, obj = due[1:]
    hint = "Check that the hypervisor and its storage answer (virsh -c URI list; virsh pool-refresh), or raise the timeout; then run again."
    message = f"Failed to {act} {obj}: no answer within {seconds:g} s. {hint}"
    error = {"kind": "transient", "code": None, "act": act, "object": obj, "hint": hint, "message": message}
    return json.dumps({"failed": True, "changed": False, "msg": message, "error": error, "errors": [error], "actions": [], "uri": uri})


def _leave(text):
    end_now(("\n" + text + "\n").encode())


def end_now(data=b""):
    """End this process and its children at once, after writing data for whoever reads its output.

    A blocked call cannot be interrupted, so neither finally blocks nor atexit handlers run.
    """
    for pid in children():
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    try:
        while data:
            data = data[os.write(1, data):]
    except OSError:
        # Nobody reads it any more; that must not keep the process.
        pass
    os._exit(1)


def children():
    """Process ids whose parent is this process."""
    me, found = str(os.getpid()), []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except OSError:
            continue
        if len(fields) > 1 and fields[1] == me:
            found.append(int(entry))
    return found
