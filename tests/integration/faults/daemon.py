# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The libvirt daemon of the hypervisor that this runs on: stopped, killed, restarted, and well again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time

PID_FILE = "/run/libvirtd.pid"
# A daemon on a loaded machine answers within that time, one that is stuck never does.
ANSWER, READY = 20, 60
ANSWERED, REFUSED, STUCK = range(3)


def pid():
    with open(PID_FILE, encoding="ascii") as file:
        return int(file.read())


def stop():
    os.kill(pid(), signal.SIGSTOP)


def kill():
    os.kill(pid(), signal.SIGKILL)


def restart():
    """As an administrator does it, and back before a module can ask again."""
    old = pid()
    os.kill(old, signal.SIGTERM)
    _until(lambda: not os.path.exists(f"/proc/{old}"))
    _until(answers)


@contextlib.contextmanager
def replaced(*arguments):
    """The daemon is one with these arguments inside, and the usual one afterwards. What would start that again meanwhile is stopped."""
    old = pid()
    keeper = _fields(old)[1]
    os.kill(int(keeper), signal.SIGSTOP)
    process = None
    try:
        os.kill(old, signal.SIGTERM)
        # Nobody takes note of its end yet.
        _until(lambda: _fields(old)[0] == "Z")
        process = subprocess.Popen(["libvirtd", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _until(answers)
        yield
    finally:
        if process is not None:
            process.terminate()
            process.wait(READY)
        os.kill(int(keeper), signal.SIGCONT)
        _until(answers)


def _fields(process):
    """State, parent and what else /proc tells of a process."""
    with open(f"/proc/{process}/stat", encoding="utf-8") as stat:
        return stat.read().rpartition(")")[2].split()


def mend():
    """Whatever was done to it, the daemon is well afterwards. True where it had to be killed for that."""
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        os.kill(pid(), signal.SIGCONT)
    # One that is just being started refuses for a moment; one that is stuck takes the question and never answers.
    _until(lambda: _asked() != REFUSED)
    if answers():
        return False
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        kill()
    _until(answers)
    return True


def answers():
    return _asked() == ANSWERED


def _asked():
    try:
        done = subprocess.run(
            ["virsh", "-q", "list"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=ANSWER, check=False)
    except subprocess.TimeoutExpired:
        return STUCK
    return REFUSED if done.returncode else ANSWERED


def _until(condition):
    until = time.monotonic() + READY
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError("the daemon does not answer again")
        time.sleep(0.2)


class Ward:
    """Looks after the daemon for cases that run at the same time. A client that goes away in the middle of an upload can leave libvirtd 11.3 in a
    deadlock of its own; nobody but an administrator helps then, and what ran meanwhile tells nothing."""

    def __init__(self):
        self.revived = 0
        self._lock = threading.Lock()

    def look(self):
        with self._lock:
            self.revived += mend()
            return self.revived
