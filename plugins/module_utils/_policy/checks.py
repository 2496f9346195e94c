# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The outcome of one check of a hypervisor."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import PERMANENT

OK, WARNING, FAILED, SKIPPED = "ok", "warning", "failed", "skipped"


@dataclass(frozen=True)
class Check:
    """status: ok, warning, failed, or skipped where it cannot be looked at. message and hint are sentences; kind is that of the error when
    a failed check ends the module."""

    name: str
    status: str
    message: str
    hint: str = ""
    kind: str = PERMANENT

    def as_dict(self):
        return {"name": self.name, "status": self.status, "message": self.message, "hint": self.hint}
