# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The console of a guest: where its log is, and its last lines made fit for a message. What a guest writes is nobody's but its own."""

from __future__ import annotations

import re
import unicodedata

from .xml import parse

LINES = 20
LONGEST_LINE = 200
# Enough for twenty lines of any kernel, and never more than this is read.
TAIL = 16 * 1024
# Terminal sequences: CSI (ESC [ … letter), strings up to BEL or ESC \, and two-byte ones.
_SEQUENCES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?")


def log_path(xml):
    """Path of the file that a guest's serial console is logged to, as its XML says; None where it is logged to none."""
    tree = parse(xml)
    for device in ("serial", "console"):
        for log in tree.findall(f"devices/{device}/log"):
            if log.get("file"):
                return log.get("file")
    return None


def last_lines(data, whole=False, count=LINES):
    """The last lines that are not empty of the end of a log, as texts without control characters. whole: does data begin with the log itself?"""
    text = _SEQUENCES.sub("", data.decode("utf-8", "replace"))
    lines = text.replace("\r\n", "\n").split("\n")
    if not whole and len(lines) > 1:
        # The first one has lost its beginning.
        lines = lines[1:]
    # What was overwritten on a terminal, such as a progress bar, was not there at the end.
    shown = [_printable(next((part for part in reversed(line.split("\r")) if part.strip()), "")) for line in lines]
    return [line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE - 1] + "…" for line in shown if line][-count:]


def _printable(line):
    """Control, format and unassigned characters and surrogates go: they could turn a terminal, or the reading order of the message."""
    return "".join(" " if char == "\t" else char for char in line if char == "\t" or not unicodedata.category(char).startswith("C")).strip()
