# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The password hash "SHA512-crypt" ($6$), which guests read in password files, made alike on every controller.

The filter password_hash draws its salt from whichever library the controller has, so two controllers would make two hashes of one password
with one salt, and a seed that changes is drift.
"""

from __future__ import annotations

import hashlib

_ROUNDS = 5000  # the scheme's own default: no count is written into the hash then
_ALPHABET = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SALT_LENGTH = 16


def derive_salt(*parts):
    """A salt that is always the same for the same texts and another one for others."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return "".join(_ALPHABET[byte & 63] for byte in digest[:_SALT_LENGTH])


def sha512_crypt(password, salt):
    """The hash of a password (str) as text. salt: 1 to 16 characters of letters, digits, dots and slashes."""
    key, seasoning = password.encode(), salt.encode()
    inner = _sha512(key + seasoning + key)
    start = key + seasoning + _stretch(inner, len(key))
    for bit in range(len(key).bit_length()):
        start += inner if len(key) >> bit & 1 else key
    digest = _sha512(start)
    keys = _stretch(_sha512(key * len(key)), len(key))
    salts = _stretch(_sha512(seasoning * (16 + digest[0])), len(seasoning))
    for number in range(_ROUNDS):
        odd = number & 1
        step = keys if odd else digest
        if number % 3:
            step += salts
        if number % 7:
            step += keys
        digest = _sha512(step + (digest if odd else keys))
    return f"$6${salt}${_encode(digest)}"


def _sha512(data):
    return hashlib.sha512(data).digest()


def _stretch(data, length):
    return (data * (length // len(data) + 1))[:length]


def _encode(digest):
    """The 64 bytes in the scheme's own order, six bits a character, the low ones first."""
    text = ""
    first, second, third = 0, 21, 42
    for _group in range(21):
        text += _characters(digest[first] << 16 | digest[second] << 8 | digest[third], 4)
        first, second, third = second + 1, third + 1, first + 1
    return text + _characters(digest[63], 2)


def _characters(value, count):
    return "".join(_ALPHABET[value >> 6 * place & 63] for place in range(count))
