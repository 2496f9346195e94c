# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors as values: what was tried on which object, why it failed, and whether trying again can help."""

from __future__ import annotations

TRANSIENT = "transient"
PERMANENT = "permanent"
QUOTA = "quota"
CONFLICT = "conflict"
KINDS = (TRANSIENT, PERMANENT, QUOTA, CONFLICT)


class Kvm2Error(Exception):
    """One failure.

    kind: one of KINDS: transient (try again), permanent (change the input or the host), quota (no space), conflict (someone else's object).
    act: what was tried, as an infinitive ("create").  object: on what, with its type ("volume kvm2-… in pool default").
    cause: why it failed.  hint: what to do about it, may be empty.  code: libvirt's error number where there is one.
    """

    def __init__(self, kind, act, obj, cause, hint="", code=None):
        if kind not in KINDS:
            raise ValueError(f"unknown kind of error: {kind}")
        self.kind = kind
        self.act = act
        self.object = obj
        self.cause = str(cause).strip().rstrip(".")
        self.hint = hint
        self.code = code
        super().__init__(self.message)

    @property
    def message(self):
        text = f"Failed to {self.act} {self.object}: {self.cause}."
        return f"{text} {self.hint}" if self.hint else text

    def as_dict(self):
        return {"kind": self.kind, "code": self.code, "act": self.act, "object": self.object, "hint": self.hint, "message": self.message}


class InvalidInput(Kvm2Error):
    """A value that an operator gave and that cannot be used; nothing was done."""

    def __init__(self, obj, cause, hint=""):
        super().__init__(PERMANENT, "read", obj, cause, hint)


class MissingLibrary(Kvm2Error):
    """A Python library that only some inputs need, by its import name, is not there. The hint is for whoever knows the distribution to set."""

    def __init__(self, library, act, obj):
        super().__init__(PERMANENT, act, obj, f"the Python library {library} is not installed where the module runs")
        self.library = library


def kind_of_several(kinds):
    """The kind of a failure made of several: transient only where every one is, else the first kind that is not."""
    for kind in kinds:
        if kind != TRANSIENT:
            return kind
    return TRANSIENT
