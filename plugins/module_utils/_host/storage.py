# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Touching storage that may have stopped answering: a process of its own does it, and is left behind where it does not come back.

A call on dead storage (an NFS server that is gone, a device that hangs) never returns, and no signal ends it. A thread in such a call keeps its
whole process alive, so a thread would not do; a fork would copy the locks of the other threads and the connection's descriptors. A new
interpreter has neither, holds nothing of the module open but its two pipes, and starts while the connection is being opened.
"""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import re
import select
import signal
import sys
import threading
import time

from .._policy.errors import TRANSIENT, Kvm2Error
from . import storage_worker

# Seconds that storage gets to answer what takes a moment where it works.
PATIENCE = 20.0
# And a killed process to be gone.
LEAVE = 2.0
# Between two looks whether anybody still wants to wait.
LOOK = 0.5


def nothing():
    """What is called in waits where nobody wants to stop them."""


class NoAnswer(Exception):
    """The worker is stuck, and has been left behind."""


class Ended(NoAnswer):
    """The worker has ended by itself, or something has ended it: that says nothing about the storage."""


class Worker:
    """One process of storage_worker. Not for several threads at once.

    check_stop: called in each wait; what it raises ends that, and the worker is to be closed then. answers: the descriptor from which it is read."""

    def __init__(self, check_stop=nothing):
        self.check_stop = check_stop
        self.status = None
        source = storage_worker.__spec__.loader.get_source(storage_worker.__name__)
        requests, self._requests = os.pipe()
        self.answers, answers = os.pipe()
        actions = [
            (os.POSIX_SPAWN_DUP2, requests, 0), (os.POSIX_SPAWN_DUP2, answers, 1), (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
        try:
            # A group of its own, so that ^C on a terminal does not end it in the middle of an answer.
            # run_command waits for the end of a program; this one is talked with.
            self.pid = os.posix_spawn(  # pylint: disable=ansible-bad-function
                sys.executable, [sys.executable, "-I", "-S", "-c", source], os.environ, file_actions=actions, setpgroup=0)
        except OSError:
            os.close(self._requests)
            os.close(self.answers)
            raise
        finally:
            os.close(requests)
            os.close(answers)
        # One that is stuck takes no more than its pipe does.
        os.set_blocking(self._requests, False)

    def ask(self, patience, name, *arguments):
        """What the worker's function of that name returns; raises what it raises. NoAnswer after `patience` seconds, and it is of no use then."""
        self.begin(patience, name, *arguments)
        return self.end(patience)

    def begin(self, patience, name, *arguments):
        """Ask, and leave the answer to end(), so that the worker works meanwhile."""
        data, until = memoryview(storage_worker.pack((name, arguments))), time.monotonic() + patience
        try:
            while data:
                self._await(self._requests, select.POLLOUT, until)
                with contextlib.suppress(BlockingIOError):
                    data = data[os.write(self._requests, data):]
        except OSError as error:
            raise self._ended(error) from error

    def end(self, patience):
        until = time.monotonic() + patience
        try:
            length = int.from_bytes(self._read(storage_worker.LENGTH, until), "big")
            good, *rest = marshal.loads(self._read(length, until))
        except OSError as error:
            raise self._ended(error) from error
        if good:
            return rest[0]
        raise OSError(*rest)

    def bare(self, size, patience):
        """At most so many bytes of what its function `send` writes; b"" at the end of the file. OSError as reading it raises."""
        self._await(self.answers, select.POLLIN, time.monotonic() + patience)
        block = os.read(self.answers, size)
        if not block and self.status is None:
            self._wait_for_end(LEAVE)
        if not block and self.status != 0:
            if self.status is None or not os.WIFEXITED(self.status):
                raise self._ended("something ended it in the middle")
            code = os.WEXITSTATUS(self.status)
            raise OSError(code, os.strerror(code))
        return block

    def _ended(self, cause):
        self.abandon()
        return Ended(f"its helper ended: {getattr(cause, 'strerror', None) or cause}")

    def _await(self, descriptor, event, until):
        poll = select.poll()
        poll.register(descriptor, event)
        while True:
            left = until - time.monotonic()
            if left <= 0:
                self.abandon()
                raise NoAnswer
            if poll.poll(min(left, LOOK) * 1000):
                return
            self.check_stop()

    def _read(self, size, until):
        data = b""
        while len(data) < size:
            self._await(self.answers, select.POLLIN, until)
            block = os.read(self.answers, size - len(data))
            if not block:
                raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))
            data += block
        return data

    def close(self):
        """End it: it has nothing to put away, and would take longer by itself. One that is stuck in the kernel stays behind until the storage answers."""
        self._close_pipes()
        self._kill()
        self._wait_for_end(LEAVE)

    def _wait_for_end(self, seconds):
        until = time.monotonic() + seconds
        while not self._is_reaped() and time.monotonic() < until:
            threading.Event().wait(0.001)

    def kill(self):
        """End it in the middle of what it is asked, from another thread than the one that asks."""
        if self.pid is not None:
            os.killpg(self.pid, signal.SIGKILL)

    def abandon(self):
        self._close_pipes()
        self._kill()

    def _close_pipes(self):
        if self._requests is not None:
            os.close(self._requests)
            os.close(self.answers)
            self._requests = self.answers = None

    def _kill(self):
        if not self._is_reaped():
            # It leads a group of its own, in which the program is that it runs.
            os.killpg(self.pid, signal.SIGKILL)
            if self not in _LEFT:
                _LEFT.append(self)

    def _is_reaped(self):
        if self.pid is not None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid == self.pid:
                    self.pid, self.status = None, status
            except ChildProcessError:
                self.pid = None
        return self.pid is None


# Workers that have been killed and are to be reaped once the kernel lets go of them.
_LEFT = []


class _Shared:
    """The worker that all single touches share, and what has stopped answering."""

    def __init__(self):
        self.lock = threading.Lock()
        self.worker = None
        self.dead = []

    def ask(self, about, patience, name, *arguments):
        """about: the path that the question is about."""
        with self.lock:
            for folder in self.dead:
                if _is_below(about, folder):
                    raise _dead(folder, "it did not answer before")
            try:
                return self._ask_again(patience, name, *arguments)
            except Ended as problem:
                raise no_helper(problem) from problem
            except NoAnswer as problem:
                self.dead.append(_mount(about))
                raise _dead(about, f"no answer within {patience:g} s") from problem

    def _ask_again(self, *question):
        try:
            return self._ask(*question)
        except Ended:
            # It was killed, perhaps for want of memory; the storage is not to blame, and a new one may do.
            return self._ask(*question)

    def _ask(self, *question):
        if self.worker is None:
            self.worker = start()
        try:
            return self.worker.ask(*question)
        except NoAnswer:
            self.worker = None
            raise

    def prepare(self):
        with self.lock:
            if self.worker is None:
                self.worker = start()

    def close(self):
        with self.lock:
            if self.worker is not None:
                self.worker.close()
            self.worker, self.dead = None, []


_SHARED = _Shared()


def start(check_stop=nothing):
    """A Worker of one's own, to be closed. Kvm2Error where none can be started."""
    _LEFT[:] = [worker for worker in _LEFT if not worker._is_reaped()]
    if not sys.executable:
        raise no_helper("this Python does not know its own path")
    try:
        return Worker(check_stop)
    except OSError as error:
        raise no_helper(error.strerror or error) from error


def no_helper(cause):
    return Kvm2Error(
        TRANSIENT, "start", f"the helper process {sys.executable or 'python'} that looks at the pools' storage", cause,
        "Look at the memory and the limits of processes of the machine.")


def touch(name, path, *arguments, patience=PATIENCE):
    """What the function of storage_worker of that name says of a path. OSError as it raises; a Kvm2Error that names the path where the storage
    does not answer within `patience` seconds. Whatever lies on the same mount is then refused at once."""
    return _SHARED.ask(path, patience, name, path, *arguments)


def run(command, path, patience):
    """(exit code, standard output) of a program that reads the file `path`; errors as with touch. A slow program says nothing about the mount, so it
    gets a process of its own, and nothing is refused afterwards."""
    worker = start()
    try:
        return worker.ask(patience, "run", list(command))
    except Ended as problem:
        raise no_helper(problem) from problem
    except NoAnswer as problem:
        raise _dead(path, f"no answer within {patience:g} s") from problem
    finally:
        worker.close()


def prepare():
    """Start the process that will be asked, so that nobody has to wait for it later."""
    _SHARED.prepare()


def close():
    """End it again; nothing of it is left but what is stuck in the kernel."""
    _SHARED.close()


def stopped(path, act, cause):
    """The Kvm2Error for storage that has stopped answering."""
    return Kvm2Error(
        TRANSIENT, act, f"the storage of {path}", cause, f"See what it lies on (findmnt -T {os.path.dirname(path)}), and run again once that answers.")


def _dead(path, cause):
    return stopped(path, "look at", cause)


def _is_below(path, folder):
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _mount(path):
    """Where the storage of a path is mounted by the mount table, read without touching it; the path's folder for the root."""
    found = max((folder for folder, _kind in mounts() if _is_below(path, folder)), key=len, default="/")
    return found if found != "/" else os.path.dirname(path)


def mounts():
    """(folder, type) of everything that is mounted, in order; empty where that cannot be told."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as table:
            lines = [line.split(" ") for line in table]
    except OSError:
        return []
    return [(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[1]), fields[2]) for fields in lines]
