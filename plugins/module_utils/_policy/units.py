# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sizes, durations and shares as an operator writes them, read into bytes, seconds and numbers."""

from __future__ import annotations

import re

from .errors import InvalidInput

_BINARY = ("KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL = ("KB", "MB", "GB", "TB", "PB")
_SIZES = {"B": 1, "kB": 1000}
_SIZES.update({unit: 1024 ** power for power, unit in enumerate(_BINARY, 1)})
_SIZES.update({unit: 1000 ** power for power, unit in enumerate(_DECIMAL, 1)})
_SIZE_HINT = "Write a number with one of the units B, KiB, MiB, GiB, TiB (1024) or KB, MB, GB, TB (1000), such as 10GiB."
_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION_HINT = "Write a duration such as 90s, 10m, 2h30m or 1d; a bare number is seconds."
# libvirt counts bytes in 63 bits; a century is longer than any wait.
_MAX_SIZE = 2 ** 63 - 1
_MAX_SECONDS = 100 * 366 * 86400

# The lengths are bounded so that no text makes a number of a million digits.
_NUMBER = r"[0-9]{1,20}(?:\.[0-9]{1,20})?"
_SIZE = rf"({_NUMBER}) ?([A-Za-z]*)"
_DURATION = rf"(?:({_NUMBER})d)?(?:({_NUMBER})h)?(?:({_NUMBER})m)?(?:({_NUMBER})s)?"
# A guest with less does not boot.
SMALLEST_MEMORY = 16 * 1024 ** 2


def _text(value):
    """The value as stripped text; numbers that YAML has made of it count, True and None do not."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return value.strip() if isinstance(value, str) else None


def _exact(number):
    """What a _NUMBER stands for; nothing of it is rounded."""
    if "." not in number:
        return int(number)
    # Most texts have no point, and loading this takes longer than all that is done here.
    from fractions import Fraction
    return Fraction(number)


def _shown(value):
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def parse_size(text, what, allow_zero=False):
    """Bytes (int) of a size such as "10GiB", "512MiB", "10GB" or "1.5GiB"; a fraction of a byte is dropped.

    Raises InvalidInput, which names `what`, for anything without a unit, for zero unless allow_zero, and above 2**63-1 bytes.
    """
    obj = f"{what} {_shown(text)}"
    match = re.fullmatch(_SIZE, _text(text) or "")
    if match is None:
        raise InvalidInput(obj, "it is not a size", _SIZE_HINT)
    number, unit = match.groups()
    if not unit:
        raise InvalidInput(obj, "it has no unit", _SIZE_HINT)
    if unit not in _SIZES:
        raise InvalidInput(obj, f"{unit} is not a known unit", _SIZE_HINT)
    size = int(_exact(number) * _SIZES[unit])
    if size == 0 and not allow_zero:
        raise InvalidInput(obj, "it is less than one byte", "Give a size above zero.")
    if size > _MAX_SIZE:
        raise InvalidInput(obj, "it is more than libvirt can count", "Give a smaller size.")
    return size


def parse_duration(text, what):
    """Seconds (float, zero allowed) of a duration such as "10m", "90s", "2h30m" or "1d"; a bare number is seconds.

    Raises InvalidInput, which names `what`, for anything else.
    """
    obj = f"{what} {_shown(text)}"
    plain = _text(text) or ""
    if re.fullmatch(_NUMBER, plain):
        seconds = _exact(plain)
    else:
        match = re.fullmatch(_DURATION, plain)
        if not plain or match is None:
            raise InvalidInput(obj, "it is not a duration", _DURATION_HINT)
        seconds = sum(_exact(number) * _SECONDS[unit] for number, unit in zip(match.groups(), "dhms") if number)
    if seconds > _MAX_SECONDS:
        raise InvalidInput(obj, "it is longer than a hundred years", _DURATION_HINT)
    return float(seconds)


def _parse_percent(text, obj):
    """The number before a % sign, or None where there is no such sign."""
    if not text.endswith("%"):
        return None
    number = text[:-1].rstrip()
    if not re.fullmatch(_NUMBER, number) or _exact(number) > 100:
        raise InvalidInput(obj, "it is not a percentage", "Write a number from 0 to 100 before the % sign, such as 5%.")
    return float(number)


def parse_amount(text, what):
    """("percent", float from 0 to 100) of text such as "5%", else ("bytes", int) of a size; zero is allowed. Raises InvalidInput."""
    percent = _parse_percent(_text(text) or "", f"{what} {_shown(text)}")
    if percent is not None:
        return "percent", percent
    return "bytes", parse_size(text, what, allow_zero=True)


def parse_count(text, what):
    """("percent", float from 0 to 100) of text such as "25%", else ("count", int) of a whole number, zero allowed. Raises InvalidInput."""
    obj = f"{what} {_shown(text)}"
    plain = _text(text) or ""
    percent = _parse_percent(plain, obj)
    if percent is not None:
        return "percent", percent
    if not re.fullmatch(r"[0-9]{1,9}", plain):
        raise InvalidInput(obj, "it is neither a whole number nor a percentage", "Write for example 3 or 25%.")
    return "count", int(plain)


def format_size(size):
    """A size in bytes for people: "4.0 GiB", "512.0 MiB", "17 B"."""
    value, unit = abs(size), "B"
    for larger in _BINARY:
        # Rounded first, so that no size shows as 1024.0 of the smaller unit.
        if round(value, 1) < 1024:
            break
        value, unit = value / 1024, larger
    sign = "-" if size < 0 else ""
    return f"{sign}{value} B" if unit == "B" else f"{sign}{value:.1f} {unit}"
