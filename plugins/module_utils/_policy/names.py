# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of everything the collection makes: rendered and parsed here and nowhere else.

A name that does not parse back to exactly what would be rendered is not ours.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass
from typing import Optional

from .errors import InvalidInput

# Patterns are text, so that only those which a run needs are compiled; re keeps them then. None of these needs to be told that it is ASCII.
LABEL = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
LABEL_MAX = 32
PREFIX = "kvm2-"
FORMATS = ("qcow2", "raw")
# What check mode shows in the place of a nonce that is not drawn yet.
PREDICTED_NONCE = "xxxxxx"
# The folder of the consoles' logs: libvirt makes it, and its daemon for logs may write there on every distribution.
CONSOLE_LOGS = "/var/log/libvirt/qemu"

NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:egress:kvm2:instance:1")

_HEX = "[0-9a-f]"
_NONCE = f"(?P<nonce>{_HEX}{{6}}|{PREDICTED_NONCE})"
_UUID = f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"
# uuid.UUID by itself also takes underscores, other scripts' digits and dashes anywhere.
_ANY_UUID = r"(?ai)[0-9a-f]{8}(-?)(?:[0-9a-f]{4}\1){3}[0-9a-f]{12}"
# Not one of a group; and libvirt takes the one of zeros for none, and makes one up.
_MAC = "(?!00(?::00){5})[0-9a-f][02468ace](?::[0-9a-f]{2}){5}"
_BASE = rf"kvm2-base-(?P<key>{LABEL})-(?P<id16>(?:u{_HEX}{{15}}|{_HEX}{{16}}))-{_NONCE}\.(?P<format>qcow2|raw)"
_INSTANCE = rf"kvm2-(?P<fleet>{LABEL})\.(?P<name>{LABEL})-(?P<uid>{_UUID})-{_NONCE}\.(?P<ext>qcow2|iso)"


def check_label(value, what):
    """Return value when it is a label, else raise InvalidInput that names `what` (such as "fleet")."""
    text = value if isinstance(value, str) else str(value)
    if len(text) > LABEL_MAX:
        raise InvalidInput(f"{what} {text!r}", f"it has {len(text)} characters, at most {LABEL_MAX} are allowed", "Choose a shorter name.")
    if not re.fullmatch(LABEL, text):
        raise InvalidInput(
            f"{what} {text!r}", "it is not a label", "Use lower-case letters, digits and dashes, with a letter or digit at both ends.")
    return text


def is_label(value):
    return isinstance(value, str) and len(value) <= LABEL_MAX and re.fullmatch(LABEL, value) is not None


def parse_uid(value):
    """The canonical form of a UUID's text, which may be in upper case or without dashes; None for anything else."""
    if not isinstance(value, str) or not re.fullmatch(_ANY_UUID, value):
        return None
    return str(uuid.UUID(value))


def derive_uid(fleet, name):
    return str(uuid.uuid5(NAMESPACE, f"{fleet}/{name}"))


def domain_name(fleet, name):
    return f"{fleet}.{name}"


def parse_domain_name(text):
    """(fleet, name) of a domain name that we would render, or None."""
    fleet, dot, name = text.partition(".")
    if dot and is_label(fleet) and is_label(name):
        return fleet, name
    return None


def mac_address(uid, index):
    """The MAC of an instance's interface number `index` (0, 1, …): always the same for the same instance."""
    digest = hashlib.sha256(f"{uid}/{index}".encode()).digest()
    return "52:54:00:" + ":".join(f"{byte:02x}" for byte in digest[:3])


def is_mac_address(text):
    """Is this, in lower case, an address that one interface can have?"""
    return re.fullmatch(_MAC, text) is not None


@dataclass(frozen=True)
class BaseName:
    key: str
    id16: str
    nonce: str
    format: str

    def __str__(self):
        return f"kvm2-base-{self.key}-{self.id16}-{self.nonce}.{self.format}"

    @property
    def record(self):
        return f"{self}.json"


@dataclass(frozen=True)
class InstanceVolumeName:
    """Name of an overlay (kind "overlay") or a seed (kind "seed")."""

    kind: str
    fleet: str
    name: str
    uid: str
    nonce: str

    def __str__(self):
        ext = "qcow2" if self.kind == "overlay" else "iso"
        return f"kvm2-{self.fleet}.{self.name}-{self.uid}-{self.nonce}.{ext}"


def id16_of_digest(digest):
    return digest[:16]


def id16_of_url(url):
    return "u" + hashlib.sha256(url.encode()).hexdigest()[:15]


def parse_base(text) -> Optional[BaseName]:
    match = re.fullmatch(_BASE, text)
    if not match or not is_label(match["key"]):
        return None
    return BaseName(match["key"], match["id16"], match["nonce"], match["format"])


def parse_record(text) -> Optional[BaseName]:
    """The base that a record's volume name belongs to, or None."""
    return parse_base(text[:-5]) if text.endswith(".json") else None


def parse_instance_volume(text) -> Optional[InstanceVolumeName]:
    match = re.fullmatch(_INSTANCE, text)
    if not match or not is_label(match["fleet"]) or not is_label(match["name"]):
        return None
    kind = "overlay" if match["ext"] == "qcow2" else "seed"
    return InstanceVolumeName(kind, match["fleet"], match["name"], match["uid"], match["nonce"])


def is_predicted(text):
    """Is this a name that check mode made up for something that is not there yet?"""
    parsed = parse_base(text) or parse_instance_volume(text)
    return parsed is not None and parsed.nonce == PREDICTED_NONCE
