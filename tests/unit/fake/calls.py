# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls to the fake, in order, and the places where a test makes one fail, kills the caller or lets somebody else act."""

from __future__ import annotations

import functools
from typing import NamedTuple

from ansible_collections.egress.kvm2.plugins.module_utils._host import classify
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error

WRITING = frozenset((
    "create_volume", "delete_volume", "resize_volume", "upload", "define", "set_metadata", "start", "resume", "shutdown", "destroy",
    "undefine", "drop_managed_save", "set_autostart", "block_resize"))


class Killed(BaseException):
    """The process that made the call was killed: nothing that it does afterwards reaches the hypervisor."""


class Call(NamedTuple):
    operation: str
    args: tuple

    @property
    def writes(self):
        return self.operation in WRITING


def libvirt_error(operation, act, obj, code, cause, os_error=0):
    """The Kvm2Error that the libvirt layer makes of an error with that code: kind and hint come from its own table."""
    kind, hint = classify.classify(operation, code, os_error)
    return Kvm2Error(kind, act, obj, cause, hint, code)


def recorded(method):
    """A method of the Hypervisor interface: noted in `calls`, and open to fail_at and hook."""
    operation = method.__name__

    @functools.wraps(method)
    def call(self, *args, **named):
        self.reach(operation, args, "before")
        result = method(self, *args, **named)
        self.reach(operation, args, "after")
        return result

    return call


class Recorder:
    """What FakeHypervisor inherits for all of the above."""

    def __init__(self):
        self.calls = []
        self.killed = False
        self._hooks = []
        self._counts = {}

    @property
    def writes(self):
        """The calls that could change something."""
        return [call for call in self.calls if call.writes]

    def forget_calls(self):
        self.calls.clear()

    def fail_at(self, operation, nth, error):
        """The nth call (1, 2, …, from now on) of an operation raises `error` and does nothing. A Killed ends the caller."""
        def fail(*args):
            raise error
        self.hook(operation, fail, nth=nth)

    def hook(self, operation, action, when="before", nth=None):
        """Call action(*args of the call) before or after the nth call from now on of an operation, or each one (nth None).

        Operation "*" stands for any, "upload_block" for each block of an upload.
        """
        if when not in ("before", "after"):
            raise ValueError(f"when is {when!r}")
        self._hooks.append((operation, when, None if nth is None else nth + self._counts.get((operation, when), 0), action))

    def reach(self, operation, args, when):
        if self.killed:
            raise Killed(f"{operation} by a process that was killed")
        if when == "before" and operation != "upload_block":
            self.calls.append(Call(operation, args))
        names = (operation,) if operation == "upload_block" else (operation, "*")
        for name in names:
            self._counts[name, when] = self._counts.get((name, when), 0) + 1
        for name, moment, nth, action in tuple(self._hooks):
            if name in names and moment == when and nth in (None, self._counts[name, when]):
                try:
                    action(*args)
                except Killed:
                    self.killed = True
                    raise
