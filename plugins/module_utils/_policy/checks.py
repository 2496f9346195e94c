# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The outcome of one check of a hypervisor."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import PERMANENT

OK, WARN, FAIL, SKIPPED = "ok", "warn", "fail", "skipped"


@dataclass(frozen=True)
class Check:
    """status: ok, warn, fail, or skipped where it cannot be looked at. message and hint are sentences; kind is that of the error when a
    failed check ends the module."""

    name: str
    status: str
    message: str
    hint: str = ""
    kind: str = PERMANENT

    def as_dict(self):
        return {"name": self.name, "status": self.status, "message": self.message, "hint": self.hint}


def table(checks):
    """The Checks as lines for people: status, name and message in columns, what to do about it below."""
    status = max((len(check.status) for check in checks), default=0)
    name = max((len(check.name) for check in checks), default=0)
    lines = []
    for check in checks:
        lines.append(f"{check.status.upper():{status}}  {check.name:{name}}  {check.message}")
        if check.hint:
            lines.append(f"{'':{status}}  {'':{name}}  -> {check.hint}")
    return lines
