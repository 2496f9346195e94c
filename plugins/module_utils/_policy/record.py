# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record that publishes a base, and which base is the one that is wanted.

A base without a record that parses is used by nobody, so the parser believes nothing that is not complete and consistent.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass
from typing import Optional, Union

from . import names
from .sums import HEX_LENGTH, find_checksum

__all__ = ["LIMIT", "Identity", "Record", "Unreadable", "choose", "find_checksum", "identity", "matches", "parse", "render"]

VERSION = 1
LIMIT = 64 * 1024


@dataclass(frozen=True)
class Record:
    """What is known of a published base.

    size and virtual_size are bytes; digest is the hex sha256 of the stored bytes; fetched is "<algorithm>:<hex>" of the bytes as they were
    fetched; checksum is the pinned "<algorithm>:<hex>" or empty; checksum_url is where it came from or empty; source is a URL without
    secrets or a path; published_at is seconds since the epoch; durable says whether the bytes were seen to reach the disk.
    """

    key: str
    format: str
    size: int
    digest: str
    fetched: str
    source: str
    checksum: str
    checksum_url: str
    virtual_size: int
    published_at: float
    durable: bool
    etag: str = ""
    last_modified: str = ""


@dataclass(frozen=True)
class Unreadable:
    """A record that is there and cannot be believed: its base counts as not published."""

    why: str


@dataclass(frozen=True)
class Identity:
    """A wanted base: key and format with either a pinned checksum ("<algorithm>:<hex>") or the source it comes from."""

    key: str
    format: str
    checksum: Optional[str] = None
    source: Optional[str] = None


def render(record):
    """The bytes of a record: JSON with sorted keys and a newline at the end."""
    return (json.dumps(dict(asdict(record), version=VERSION), sort_keys=True, ensure_ascii=True) + "\n").encode()


def parse(data, name) -> Union[Record, Unreadable]:
    """The Record in bytes read from the record volume of the base `name` (a names.BaseName), or why it cannot be believed."""
    try:
        return _parse(data, name)
    except _Doubt as doubt:
        return Unreadable(str(doubt))


class _Doubt(Exception):
    pass


def _parse(data, name):
    if len(data) > LIMIT:
        raise _Doubt(f"it is larger than {LIMIT} bytes")
    if not data.strip(b"\0"):
        raise _Doubt("it is empty")
    if not data.endswith(b"}\n"):
        raise _Doubt("it is incomplete")
    try:
        values = json.loads(data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise _Doubt("it is not JSON") from None
    if not isinstance(values, dict):
        raise _Doubt("it is not a JSON object")
    if values.get("version") != VERSION or isinstance(values["version"], bool):
        raise _Doubt(f"its version is {values.get('version')!r} and not {VERSION}")
    record = Record(
        **{field: _text(values, field) for field in ("key", "format", "digest", "fetched", "source", "checksum", "checksum_url")},
        **{field: _text(values, field) if field in values else "" for field in ("etag", "last_modified")},
        size=_bytes(values, "size"), virtual_size=_bytes(values, "virtual_size"), published_at=_time(values, "published_at"),
        durable=_bool(values, "durable"))
    _check_digests(record)
    _check_name(record, name)
    return record


def _once(pairs):
    values = dict(pairs)
    if len(values) != len(pairs):
        raise _Doubt("a field appears more than once")
    return values


def _no_constant(text):
    raise _Doubt(f"it holds {text}")


def _value(values, field):
    if field not in values:
        raise _Doubt(f"{field} is missing")
    return values[field]


def _text(values, field):
    value = _value(values, field)
    if not isinstance(value, str) or not value.isprintable():
        raise _Doubt(f"{field} is not a line of text")
    return value


def _bytes(values, field):
    value = _value(values, field)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2 ** 63:
        raise _Doubt(f"{field} is not a number of bytes")
    return value


def _time(values, field):
    value = _value(values, field)
    # Up to the year 9999, so that it can be shown.
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value) or not 0 < value < 253402300800:
        raise _Doubt(f"{field} is not a time in seconds")
    return value


def _bool(values, field):
    value = _value(values, field)
    if not isinstance(value, bool):
        raise _Doubt(f"{field} is neither true nor false")
    return value


def _check_digests(record):
    if not _is_hex(record.digest, "sha256"):
        raise _Doubt("digest is not a sha256 in hexadecimal digits")
    for field in ("fetched", "checksum"):
        value = getattr(record, field)
        algorithm, _colon, digits = value.partition(":")
        if not _is_hex(digits, algorithm) and (value or field == "fetched"):
            raise _Doubt(f"{field} is not a digest such as sha256:<hexadecimal digits>")
    if not record.source:
        raise _Doubt("source is empty")
    if record.checksum and record.checksum.partition(":")[0] == record.fetched.partition(":")[0] and record.checksum != record.fetched:
        raise _Doubt("what was fetched is not what its checksum asks for")


def _is_hex(digits, algorithm):
    return len(digits) == HEX_LENGTH.get(algorithm) and re.fullmatch("[0-9a-f]+", digits) is not None


def _check_name(record, name):
    if record.key != name.key:
        raise _Doubt(f"its key is {record.key!r} but the base is named for {name.key!r}")
    if record.format != name.format:
        raise _Doubt(f"its format is {record.format!r} but the base is named for {name.format!r}")
    digests = (text.rpartition(":")[2] for text in (record.checksum, record.fetched, record.digest))
    fitting = {names.id16_of_digest(digits) for digits in digests if digits} | {names.id16_of_url(record.source)}
    if name.id16 not in fitting:
        raise _Doubt(f"neither its digests nor its source belong to a base named {name.id16}")


def identity(key, image_format, checksum, source):
    """The Identity of a wanted base. checksum: "<algorithm>:<hex>", or None where nothing is pinned; then source is the URL or path."""
    if (checksum is None) == (source is None):
        raise ValueError("an identity is either pinned by a checksum or told by its source")
    return Identity(key, image_format, None if checksum is None else checksum.lower(), source)


def matches(wanted, name, record):
    """Is the base `name` (a names.BaseName) with this Record the wanted one (an Identity)?"""
    if (wanted.key, wanted.format) != (record.key, record.format) or (name.key, name.format) != (record.key, record.format):
        return False
    if wanted.checksum is None:
        return record.source == wanted.source
    # The stored bytes count as well: they are the wanted file when their own digest is the pinned one.
    return wanted.checksum in (record.checksum, record.fetched, f"sha256:{record.digest}")


def choose(candidates):
    """The one published last, of things with a `name` and a `record`; None of none. Names settle a tie, so that every run agrees."""
    return max(candidates, key=lambda one: (one.record.published_at, str(one.name)), default=None)
