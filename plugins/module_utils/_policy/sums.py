# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sums files (SHA256SUMS and the like): the checksum that such a file lists for one file name."""

from __future__ import annotations

import posixpath
import re

from .errors import InvalidInput

HEX_LENGTH = {"sha256": 64, "sha512": 128}
_SHOWN = 5

_COREUTILS = r"(?a)(\\?)([0-9A-Fa-f]{32,128})(?: [ *]|[ \t]+)(\S.*)"
_BSD = r"(?ai)(\\?)SHA(?:2-)?(\d+)\s*\((.+)\)\s*=\s*([0-9A-Fa-f]+)"
_SIGNED = "-----BEGIN PGP SIGNED MESSAGE-----"
_SIGNATURE = "-----BEGIN PGP SIGNATURE-----"


def find_checksum(text, file_name, algorithm):
    """The hexadecimal digits, in lower case, that a sums file lists for a file.

    text: the sums file, in the form of coreutils ("<hex>  name") or of BSD ("SHA256 (name) = <hex>"), clear-signed or not.
    algorithm: sha256 or sha512.  Raises InvalidInput where the file is listed not at all or with different checksums.
    """
    obj = f"checksum of {file_name}"
    entries = [(name, digits.lower()) for name, digits, kind in _entries(text) if kind == algorithm]
    exact = {digits for name, digits in entries if _normal(name) == _normal(file_name)}
    found = exact or {digits for name, digits in entries if posixpath.basename(name) == posixpath.basename(file_name)}
    if len(found) > 1:
        raise InvalidInput(obj, f"the sums file lists {len(found)} different {algorithm} checksums for it", "Give the right one itself.")
    if found:
        return found.pop()
    alone = text.strip()
    if not entries and len(alone) == HEX_LENGTH[algorithm] and re.fullmatch(r"[0-9A-Fa-f]+", alone):
        # A file beside the image that holds its digest and nothing else.
        return alone.lower()
    raise InvalidInput(obj, f"the sums file lists no {algorithm} checksum for it", _nearby(text, file_name, algorithm, entries))


def _normal(name):
    return posixpath.normpath(name)


def _entries(text):
    """(name, digits, algorithm) of each line that is an entry."""
    for line in _body(text):
        bsd = re.fullmatch(_BSD, line)
        if bsd:
            kind = f"sha{bsd[2]}"
            if len(bsd[4]) == HEX_LENGTH.get(kind):
                yield _unescaped(bsd[3], bsd[1]), bsd[4], kind
            continue
        plain = re.fullmatch(_COREUTILS, line)
        if plain:
            kind = next((kind for kind, length in HEX_LENGTH.items() if length == len(plain[2])), None)
            if kind:
                yield _unescaped(plain[3], plain[1]), plain[2], kind


def _unescaped(name, mark):
    """coreutils begins the line with a backslash where the name has a backslash or newline in it."""
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "r": "\r"}.get(match[1], match[1]), name) if mark else name


def _body(text):
    """The lines of the text; of a clear-signed one only what is signed, without its dash escapes."""
    lines = [line.strip() for line in text.splitlines()]
    if _SIGNED not in lines:
        return lines
    signed = lines[lines.index(_SIGNED) + 1:]
    if _SIGNATURE in signed:
        signed = signed[:signed.index(_SIGNATURE)]
    start = signed.index("") + 1 if "" in signed else 0
    return [line[2:].strip() if line.startswith("- ") else line for line in signed[start:]]


def _nearby(text, file_name, algorithm, entries):
    other = sorted({kind for name, _digits, kind in _entries(text) if kind != algorithm and posixpath.basename(name) == file_name})
    if other:
        return f"It lists a {other[0]} checksum: write {other[0]}: before the URL."
    listed = sorted({name for name, _digits in entries})
    if not listed:
        return f"It holds no {algorithm} checksums at all; check its URL."
    import difflib
    near = difflib.get_close_matches(file_name, listed, _SHOWN, 0.4) or listed[:_SHOWN]
    return f"Check the file's name; it lists {len(listed)} names, such as {', '.join(near)}."
