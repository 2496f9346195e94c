# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of kvm2_pool_check, read once into the policy's values. Everything wrong raises InvalidInput that names the option."""

from __future__ import annotations

import re

from .._policy import capability, mark, names
from .._policy.errors import InvalidInput
from .._policy.need import Need
from .._policy.units import parse_amount, parse_size

_CHECKSUM_RE = re.compile(r"(sha256|sha512):(https?://\S+|[0-9A-Fa-f]{64}|[0-9A-Fa-f]{128})")


def parse_need(given):
    """(need.Need, the checksum that the image is pinned by or None)."""
    if given.get("key") is not None:
        names.check_label(given["key"], "need.key")
    if given.get("instances") is not None and given["instances"] < 0:
        raise InvalidInput(f"need.instances {given['instances']}", "it is below 0", "Give the number of new instances.")
    checksum = given.get("checksum")
    if checksum is not None and not _CHECKSUM_RE.fullmatch(checksum):
        raise InvalidInput(
            f"need.checksum {checksum!r}", "it is neither a digest nor the URL of a sums file", "Give what kvm2_image gets as checksum.")
    overlays = []
    for index, entry in enumerate(given.get("overlays") or ()):
        name = names.check_label(entry["name"], f"need.overlays[{index}].name")
        uid = names.derive_uid(given["fleet"], name) if entry.get("uid") is None else names.parse_uid(entry["uid"])
        if uid is None:
            raise InvalidInput(f"need.overlays[{index}].uid {entry['uid']!r}", "it is not a UUID", "Leave it out to have it derived.")
        overlays.append((name, uid, parse_size(entry["capacity"], f"need.overlays[{index}].capacity")))
    need = Need(
        fixed=_size(given, "bytes"), instances=given.get("instances") or 0, capacity=_size(given, "capacity"), image=_size(given, "image"),
        key=given.get("key"), fleet=given.get("fleet"), overlays=tuple(overlays), filled=_share(given.get("filled")))
    return need, checksum


def _size(given, name):
    return 0 if given.get(name) is None else parse_size(given[name], f"need.{name}", allow_zero=True)


def _share(text):
    if text is None:
        return 1.0
    kind, number = parse_amount(text, "need.filled")
    if kind != "percent" or number <= 0:
        raise InvalidInput(f"need.filled {text!r}", "it is not a share above 0", "Give a percentage such as 50%.")
    return number / 100


def parse_require(given):
    """The capability.Require."""
    found = {name: value for name, value in given.items() if value is not None}
    for name in ("networks", "bridges"):
        found[name] = tuple(found.get(name, ()))
    if "memory" in found:
        found["memory"] = parse_size(found["memory"], "require.memory", allow_zero=True)
    if found.get("vcpus", 1) < 1:
        raise InvalidInput(f"require.vcpus {found['vcpus']}", "it is below 1", "Give what the largest instance needs.")
    if found.get("vcpus_total", 0) < 0:
        raise InvalidInput(f"require.vcpus_total {found['vcpus_total']}", "it is below 0", "Give what all instances have together.")
    return capability.Require(**found)


def parse_time(text):
    """Seconds since the epoch of a time in seconds or as RFC 3339 has it; None of None."""
    if text is None:
        return None
    plain = text.strip()
    seconds = float(plain) if re.fullmatch(r"[0-9]{1,11}(\.[0-9]{1,9})?", plain) else mark.parse_time(plain)
    if seconds is None:
        raise InvalidInput(
            f"controller_time {text!r}", "it is not a time", "Give seconds since 1970, or a time such as 2030-01-31T12:00:00Z.")
    return seconds
