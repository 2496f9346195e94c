# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What URLs and HTTP headers say, without asking anybody. Headers are mappings whose `get` takes a name in any case."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import urlsplit, urlunsplit

from .errors import InvalidInput

_PORTS = {"http": 80, "https": 443}
_CONTENT_RANGE = r"(?a)bytes\s+(\d+)-(\d+)/(\d+|\*)\s*"
_HEADER = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_HEADER_VALUE = r"[\t\x20-\x7e\xa0-\xff]*"


def check_url(url, what):
    """Raise InvalidInput for what is no http or https URL that can be asked."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in _PORTS and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good or re.search(r"[\x00-\x20\x7f]", url):
        # Not shown: what does not parse may hold a password anywhere.
        raise InvalidInput(what, "it is not an http or https URL", "Write it as http://host/path, a blank in it as %20; for a file on the hypervisor use src.")


def check_headers(headers, what="headers"):
    """Raise InvalidInput for what no request can carry. Values are not shown: they may be secrets."""
    for name, value in headers.items():
        if not re.fullmatch(_HEADER, name):
            # Not shown either: with the value in the wrong place it would hold that.
            raise InvalidInput(what, "one of the names holds a character that no header's name has", "Write them as NAME: value, without more in the name.")
        if not isinstance(value, (str, int)):
            raise InvalidInput(what, f"the value of {name} is no text", "Write it in quotes.")
        if not re.fullmatch(_HEADER_VALUE, str(value)):
            raise InvalidInput(
                what, f"the value of {name} holds a line break or another character that no header can carry",
                "Take it out; the filter trim removes a line break at the end.")


def shown(url):
    """The URL without user, password, query and fragment: fit for messages and records."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    if parts.port:
        host = f"{host}:{parts.port}"
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def identifying(url):
    """The URL as shown, with a digest in the place of its query: two queries are two sources, and what they say stays hidden."""
    query = urlsplit(url).query
    return f"{shown(url)}#{hashlib.sha256(query.encode()).hexdigest()[:16]}" if query else shown(url)


def _server(url):
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def same_server(first, other):
    """May what was given for the first URL be told to the other's server? The same one, or its secured side on the usual ports."""
    one, two = _server(first), _server(other)
    return one == two or (one[1] == two[1] and one[::2] == ("http", 80) and two[::2] == ("https", 443))


def length(headers):
    """Content-Length in bytes, or None where there is none that can be relied on."""
    text = (headers.get("Content-Length") or "").strip()
    if headers.get("Transfer-Encoding") or not re.fullmatch(r"\d{1,18}", text, re.ASCII):
        return None
    return int(text)


def whole_length(headers):
    """Length of the whole of which an answer holds a part, or None where it does not say."""
    found = re.fullmatch(_CONTENT_RANGE, headers.get("Content-Range") or "")
    return int(found[3]) if found and found[3] != "*" else None


def resumable(etag, last_modified):
    """What names a version exactly enough to go on in the middle of it, or None: a weak tag does not."""
    if etag:
        return None if etag.startswith("W/") else etag
    return last_modified or None


def continues(headers, start, whole, etag, last_modified):
    """Does an answer hold everything from byte `start` on, of the same version with `whole` bytes (None where that was not known)?"""
    found = re.fullmatch(_CONTENT_RANGE, headers.get("Content-Range") or "")
    if found is None or int(found[1]) != start:
        return False
    if found[3] == "*":
        if whole is None or int(found[2]) != whole - 1:
            return False
    elif int(found[2]) != int(found[3]) - 1 or whole not in (None, int(found[3])):
        return False
    return same_version(headers, etag, last_modified) is not False


def same_version(headers, etag, last_modified):
    """Do an answer's validators name the same version as these? None where there is nothing to compare."""
    if etag and headers.get("ETag"):
        # A conditional request compares tags without their mark of weakness.
        return headers.get("ETag").removeprefix("W/") == etag.removeprefix("W/")
    if last_modified and headers.get("Last-Modified"):
        return headers.get("Last-Modified") == last_modified
    return None
