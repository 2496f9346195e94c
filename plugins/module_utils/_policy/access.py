# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""User names, passwords and keys that a definition holds: what each engine's file and protocol can carry.

What is wrong with a password or a key is told without showing it.
"""

from __future__ import annotations

import base64
import binascii
import re

_PLAIN = re.compile(r"[A-Za-z0-9._-]+")
_ACCOUNT = re.compile(r"[a-z_][a-z0-9_-]*")
# Accounts that Debian's images have, or whose names packages and cloud-init take.
_TAKEN = frozenset((
    "root", "daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp", "proxy", "www-data", "backup", "list", "irc", "gnats",
    "_apt", "nobody", "messagebus", "sshd", "ntp", "ntpsec", "_chrony", "dnsmasq", "polkitd", "tinyproxy", "squid", "debian", "ubuntu", "admin"))
_ACCOUNT_LENGTH = 32
_LENGTH = 255
_KEY_TYPES = (
    "ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com")


def user_problem(engine, user):
    """Why the engine cannot have a client of this name, as a text, or None."""
    if engine == "tinyproxy":
        return None if _PLAIN.fullmatch(user) else "tinyproxy reads letters, digits, dots, dashes and underscores only"
    if engine == "squid":
        if ":" in user:
            return "a colon ends the name in squid's password file and in what clients send"
        if user.startswith("#"):
            return "squid's password file takes a line that begins with # for a comment"
        return None if _visible(user) else "squid's password file holds names of visible ASCII characters only"
    if not _ACCOUNT.fullmatch(user) or len(user) > _ACCOUNT_LENGTH:
        return (
            "for dante it is the name of an account in the guest, which is made of lower-case letters, digits, dashes and underscores, begins "
            f"with a letter or underscore and has at most {_ACCOUNT_LENGTH} characters")
    if user in _TAKEN or user.startswith("systemd-"):
        return "for dante it is the name of an account in the guest, and one of that name is there already. Choose another"
    return None


def password_problem(engine, user, password):
    """Why the engine cannot take this password, as a text that does not show it, or None."""
    if engine == "tinyproxy":
        if not _PLAIN.fullmatch(password):
            return "tinyproxy reads letters, digits, dots, dashes and underscores only"
        if len(user) + len(password) >= _LENGTH:
            return f"tinyproxy takes a name and a password of together less than {_LENGTH} characters"
        return None
    if not _visible(password.replace(" ", "x")):
        return (
            "it holds a line break, another control character, or one beyond ASCII, which clients write in different ways. Use visible ASCII "
            "characters and blanks")
    if len(password) > _LENGTH:
        return f"SOCKS5 carries at most {_LENGTH} bytes of it" if engine == "dante" else f"it has more than {_LENGTH} characters"
    return None


def _visible(text):
    return all("!" <= char <= "~" for char in text)


def key_problem(line):
    """Why this is no line for authorized_keys, as a text that does not show it, or None."""
    if "PRIVATE KEY" in line:
        return "it is a private key, which must not be here. Give the line of the public one, from the file whose name ends in .pub"
    if "\n" in line or "\r" in line:
        return "it has several lines. Give each key as an entry of its own"
    fields = line.split()
    if not fields or fields[0] not in _KEY_TYPES:
        return f"it does not begin with the type of a key. Give a line such as ssh-ed25519 AAAA… name; types are {', '.join(_KEY_TYPES)}"
    try:
        blob = base64.b64decode(fields[1], validate=True) if len(fields) > 1 else b""
    except (binascii.Error, ValueError):
        blob = b""
    name = fields[0].encode()
    # A key's own bytes begin with its type, as a length of four bytes and the text.
    if blob[:4 + len(name)] != len(name).to_bytes(4, "big") + name or len(blob) < 4 + len(name) + 32:
        return f"what follows {fields[0]} is not a key of that type, perhaps cut off or broken by a copy"
    return None
