# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The end of a process before its work is done, and of the processes that it has started."""

from __future__ import annotations

import os
import shutil
import signal
import threading

# Folders that go when the process is ended here; whoever makes one takes care of it otherwise.
SCRATCH = set()
# Held by the thread that tells the result, until the process has ended.
_LAST_WORD = threading.RLock()


def clean_up_code(archive):
    """Have the folder that Ansible put the module's code into removed too where this process is ended here: its own cleaning up does not run then.

    archive: the path of the archive with the code, empty where there is none."""
    folder = os.path.dirname(archive)
    if "_payload_" in os.path.basename(folder) and os.path.basename(archive).startswith("ansible_"):
        SCRATCH.add(folder)


class EndedEarly(Exception):
    """Passes through what goes on to the next item after a Kvm2Error: nobody wants the next item any more. error: the Kvm2Error to report."""

    def __init__(self, error):
        super().__init__(str(error))
        self.error = error


def take_last_word():
    """Return in the one thread that tells the result; any other one waits here for the end of the process, since Ansible stands one result only."""
    _LAST_WORD.acquire()


def before_last_word(act):
    """What act() returns, or None where a thread tells the result already. None begins to tell it meanwhile."""
    if not _LAST_WORD.acquire(blocking=False):
        return None
    try:
        return act()
    finally:
        _LAST_WORD.release()


def end_now(data=b"", code=1):
    """End this process and all that it has started at once, after writing data for whoever reads its output.

    A blocked call cannot be interrupted, so neither finally blocks nor atexit handlers run.
    """
    take_last_word()
    try:
        # A copy: another thread may still take its own folder out.
        for folder in tuple(SCRATCH):
            shutil.rmtree(folder, ignore_errors=True)
        while data:
            data = data[os.write(1, data):]
    except OSError:
        # Nobody reads it any more; that must not keep the process.
        pass
    finally:
        try:
            # At the very end: where a thread is blocked in one of them, it goes on from here.
            end_children()
        finally:
            os._exit(code)


def leave(result):
    """End this process with a result, JSON text, that Ansible finds on a line of its own."""
    end_now(("\n" + result + "\n").encode())


def plain_failure(error):
    """What a module returns where nothing is known but the Kvm2Error."""
    return {"changed": False, "msg": error.message, "error": error.as_dict(), "errors": [error.as_dict()], "actions": []}


def end_children(which=None):
    """Kill the children of this process, or those of `which` that still are, with what they have started: ssh starts another for a jump host."""
    for pid in children():
        if which is None or pid in which:
            for one in (*_below(pid), pid):
                try:
                    os.kill(one, signal.SIGKILL)
                except OSError:
                    pass


def children():
    """Process ids whose parent is this process."""
    return _parents().get(os.getpid(), [])


def _below(pid):
    """All that a process has started, the nearest first."""
    parents, found, next_ones = _parents(), [], [pid]
    while next_ones:
        next_ones = [child for parent in next_ones for child in parents.get(parent, ())]
        found += next_ones
    return found


def _parents():
    """{process id: those of its children}; nothing where there is no Linux's /proc."""
    found = {}
    try:
        entries = os.listdir("/proc")
    except OSError:
        return found
    for entry in entries:
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except OSError:
            continue
        if len(fields) > 1:
            found.setdefault(int(fields[1]), []).append(int(entry))
    return found
