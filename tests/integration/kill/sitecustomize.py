# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs inside a module on a hypervisor, by way of PYTHONPATH: notes the module's steps, and ends it by SIGKILL at one of them.

A step is a call of libvirt (virStoragePool.createXML, open), a sync or a rename (os.fsync), or what the helper process is asked that touches the
storage (helper.fsync, helper.hash_on), from the question to its answer. KVM2_KILL_LOG names the file that gets a line for
each: its name and how many times it was called. KVM2_KILL_AT says where to end: "before NAME N" and "after NAME N" for the N-th call of that
name, "sent N" and "received N" when N bytes have gone through libvirt's streams. What ends the process is written down before it happens.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import marshal
import os
import signal
import sys
import threading

# Of what the helper is asked: what is done once or in order in each run, and not by the clock.
ASKED = ("fsync", "fsync_folder", "hash_on", "is_same")
SYNCS = ("fsync", "fdatasync", "posix_fallocate", "ftruncate", "link", "rename", "replace")


class Steps:
    """Counts the calls of each name, and the bytes each way; thread-safe."""

    def __init__(self, log, at):
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        words = at.split()
        self._when, self._name, self._number = (words[0], " ".join(words[1:-1]), int(words[-1])) if words else ("", "", 0)
        self._lock = threading.Lock()
        self._calls = {}
        self._bytes = {"sent": 0, "received": 0}

    def write(self, text):
        os.write(self._log, (text + "\n").encode())

    def die(self, text):
        self.write(f"KILLED {text}")
        os.kill(os.getpid(), signal.SIGKILL)

    def begin(self, name):
        with self._lock:
            number = self._calls[name] = self._calls.get(name, 0) + 1
            self.write(f"{name} {number}")
            if (self._when, self._name, self._number) == ("before", name, number):
                self.die(f"before {name} {number}")
        return number

    def end(self, name, number):
        if (self._when, self._name, self._number) == ("after", name, number):
            with self._lock:
                self.die(f"after {name} {number}")

    def left(self, way):
        """How many bytes may still go that way; None for all."""
        return self._number - self._bytes[way] if self._when == way else None

    def count(self, way, amount):
        with self._lock:
            self._bytes[way] += amount
            if self._when == way and self._bytes[way] >= self._number:
                self.die(f"{way} {self._bytes[way]}")


def step(steps, name, function):
    @functools.wraps(function)
    def wrapped(*arguments, **named):
        number = steps.begin(name)
        try:
            return function(*arguments, **named)
        finally:
            steps.end(name, number)
    return wrapped


def sending(steps, function):
    @functools.wraps(function)
    def wrapped(stream, data):
        left = steps.left("sent")
        if left is not None and left < len(data):
            data = data[:left]
        sent = function(stream, data)
        steps.count("sent", max(sent, 0))
        return sent
    return wrapped


def receiving(steps, function):
    @functools.wraps(function)
    def wrapped(stream, size):
        data = function(stream, size)
        steps.count("received", len(data) if isinstance(data, bytes) else 0)
        return data
    return wrapped


def wrap_libvirt(steps, libvirt):
    for name, found in list(vars(libvirt).items()):
        if not isinstance(found, type) or not name.startswith("vir"):
            continue
        for method, function in list(vars(found).items()):
            if not callable(function) or method.startswith("_"):
                continue
            if name == "virStream" and method == "send":
                setattr(found, method, sending(steps, function))
            elif name == "virStream" and method == "recv":
                setattr(found, method, receiving(steps, function))
            else:
                setattr(found, method, step(steps, f"{name}.{method}", function))
    libvirt.open = step(steps, "open", libvirt.open)
    for name in SYNCS:
        setattr(os, name, step(steps, f"os.{name}", getattr(os, name)))


def wrap_helper(steps):
    """Questions and answers are marshalled, each pair by one thread."""
    dumps, loads, asked = marshal.dumps, marshal.loads, threading.local()

    def ask(values, *more):
        asked.step = None
        if isinstance(values, tuple) and values and values[0] in ASKED:
            name = f"helper.{values[0]}"
            asked.step = name, steps.begin(name)
        return dumps(values, *more)

    def answered(data, *more):
        values = loads(data, *more)
        step_of_it, asked.step = getattr(asked, "step", None), None
        if step_of_it is not None:
            steps.end(*step_of_it)
        return values

    marshal.dumps, marshal.loads = ask, answered


class Finder(importlib.abc.MetaPathFinder):
    """Finds libvirt as it would be found anyway, and wraps it once it is loaded: a Python without it is no module of ours."""

    def __init__(self, log, at):
        self._log, self._at = log, at

    def find_spec(self, fullname, path=None, target=None):
        if fullname != "libvirt":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            steps = Steps(self._log, self._at)
            wrap_libvirt(steps, module)
            wrap_helper(steps)

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("KVM2_KILL_LOG"):
    sys.meta_path.insert(0, Finder(os.environ["KVM2_KILL_LOG"], os.environ.get("KVM2_KILL_AT", "")))
