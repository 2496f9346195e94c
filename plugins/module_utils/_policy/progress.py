# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a long step is: as the module writes it down, and as a line for a person."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Optional

from .units import format_size

# Through the environment, since an option would show in every result and in every documentation.
TOKEN = "KVM2_PROGRESS"
FILE = "status"
LIMIT = 512
_WORDS = {"fetch": "fetching", "store": "storing", "verify": "verifying"}


@dataclass(frozen=True)
class Sample:
    """phase: fetch, store, verify, or wait (for another run, done and total in seconds). done and total are bytes, total may be None; seconds:
    how long the phase had gone on then."""

    phase: str
    done: int
    total: Optional[int]
    seconds: float


def folder(token):
    """The folder that holds the file of a run, from its token of 32 hex digits that nobody can guess; None for anything else."""
    return f"/tmp/kvm2-progress-{token}" if token and re.fullmatch(r"[0-9a-f]{32}", token) else None


def render(sample):
    return (json.dumps(asdict(sample)) + "\n").encode()


def parse(text):
    """The Sample in what was read, or None: a terminal may have put something before it, and nothing is believed that is not of this shape."""
    found = re.search(r"\{[^{}]*\}", text)
    try:
        values = json.loads(found[0]) if found else None
        sample = Sample(**values) if values else None
    except (ValueError, TypeError):
        return None
    if sample is None or sample.phase not in (*_WORDS, "wait"):
        return None
    numbers = (sample.done, sample.seconds, *([] if sample.total is None else [sample.total]))
    return sample if all(type(number) in (int, float) and 0 <= number < 2 ** 63 for number in numbers) else None


def line(sample, before=None):
    """What to show: percent, pace since the Sample `before` (of an earlier look, or None), and the time that is left at that pace."""
    if sample.phase == "wait":
        return f"waiting for another run that has the same to do, {_duration(sample.done)} so far"
    share = format_size(sample.done)
    if sample.total:
        share = f"{min(100, sample.done * 100 // sample.total):.0f} % of {format_size(sample.total)}"
    if before is None or before.phase != sample.phase or before.done > sample.done:
        before = Sample(sample.phase, 0, None, 0.0)
    if sample.done == before.done:
        return f"{_WORDS[sample.phase]} {share}, nothing came since the last look"
    seconds = sample.seconds - before.seconds
    if seconds < 0.001:
        return f"{_WORDS[sample.phase]} {share}"
    pace = (sample.done - before.done) / seconds
    left = f", {_duration((sample.total - sample.done) / pace)} left" if sample.total and sample.total >= sample.done else ""
    return f"{_WORDS[sample.phase]} {share}, {format_size(int(pace))}/s{left}"


def _duration(seconds):
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"
