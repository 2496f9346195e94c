# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Times as they are written down: RFC 3339 in UTC."""

from __future__ import annotations

import re
from datetime import datetime, timezone

_TIME_RE = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?P<fraction>\.\d{1,9})?(?:Z|(?P<sign>[+-])(?P<hours>\d\d):(?P<minutes>\d\d))",
    re.ASCII | re.IGNORECASE)


def format_time(seconds):
    return datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text):
    """Seconds since the epoch of an RFC 3339 time, or None."""
    # By hand, since what datetime.fromisoformat takes differs between Python releases.
    match = _TIME_RE.fullmatch(text.strip())
    if match is None:
        return None
    fraction, sign, hours, minutes = match["fraction"], match["sign"], match["hours"], match["minutes"]
    offset = 0 if sign is None else (int(hours) * 3600 + int(minutes) * 60) * (1 if sign == "+" else -1)
    if abs(offset) >= 86400 or int(minutes or 0) > 59:
        return None
    try:
        parsed = datetime.strptime(match["time"].upper(), "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    seconds = parsed.timestamp() - offset + (float(fraction) if fraction else 0)
    return seconds if seconds > 0 else None
