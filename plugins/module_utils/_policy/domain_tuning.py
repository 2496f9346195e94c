# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a domain that are managed only while they are asked for: watchdog, processor and disk limits.

What is not asked for stays as it is, unless the mark says that it was asked for before; then it goes.
"""

from __future__ import annotations

from .domain_edit import ensure, remove, set_text
from .xml import etree

OPTIONAL = ("watchdog", "cpu_shares", "cpu_quota", "cpu_pin", "io_tuning")
WATCHDOG_ACTIONS = ("reset", "poweroff", "shutdown", "pause")
IO_LIMITS = ("total_bytes", "read_bytes", "write_bytes", "total_iops", "read_iops", "write_iops")
# Microseconds over which a quota is counted; libvirt has it so too where nothing is said.
PERIOD = 100000
_WATCHDOG_MODEL = "i6300esb"
# Every q35 has one of these by itself, and all of a domain's watchdogs have the same action.
_BUILT_IN = "itco"


# -- reading

def read(tree, overlay):
    """{field: value} of a parsed <domain>; overlay: the <disk> element of its overlay, or None. None where nothing is said."""
    placed = tree.find("vcpu")
    dogs = _watchdogs(tree)
    return {
        "watchdog": dogs[0].get("action", "reset") if dogs else None, "cpu_shares": _number(tree.findtext("cputune/shares")),
        "cpu_quota": _quota(tree), "cpu_pin": canonical_cpus(None if placed is None else placed.get("cpuset")),
        "io_tuning": limits_text(_limits(overlay)) or None}


def _watchdogs(tree):
    return [dog for dog in tree.findall("devices/watchdog") if dog.get("model") != _BUILT_IN]


def _number(text):
    text = (text or "").strip()
    return int(text) if text.isdigit() else None


def _quota(tree):
    """Percent of one processor of the host that each of the guest's may use; a fraction where somebody set one."""
    quota = _number(tree.findtext("cputune/quota"))
    if quota is None:
        return None
    percent = quota * 100 / (_number(tree.findtext("cputune/period")) or PERIOD)
    return int(percent) if percent == int(percent) else round(percent, 3)


def _limits(overlay):
    tune = None if overlay is None else overlay.find("iotune")
    if tune is None:
        return ()
    found = {limit: _number(tune.findtext(f"{limit}_sec")) for limit in IO_LIMITS}
    return tuple((limit, value) for limit, value in found.items() if value)


def limits_text(limits):
    return ", ".join(f"{limit} {value}" for limit, value in limits)


def parse_cpus(text):
    """The numbers in a list of processors such as "0-3,^2,8"; None where it is none."""
    found = set()
    for part in text.replace(" ", "").split(","):
        first, dash, last = part.lstrip("^").partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or part.startswith("^^") or max(len(first), len(last)) > 4:
            return None
        numbers = range(int(first), int(last or first) + 1)
        found = found.difference(numbers) if part.startswith("^") else found.union(numbers)
    return frozenset(found) or None


def canonical_cpus(text):
    """A list of processors as libvirt writes it, such as "0-1,3"; None for none."""
    numbers = parse_cpus(text) if text else None
    if numbers is None:
        return text or None
    ranges = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


# -- writing

def apply(tree, devices, spec, overlay):
    """Set what the DomainSpec asks for, and take away what it asked for once. overlay: the <disk> element, or None."""
    have = read(tree, overlay)
    for field in OPTIONAL:
        want = getattr(spec, field)
        if field == "io_tuning":
            want = limits_text(want)
        if have[field] != (want or None) and (want or field in spec.former_options):
            _SETTERS[field](tree, devices, overlay, getattr(spec, field) or None)


def _set_watchdog(tree, devices, _overlay, action):
    dogs = _watchdogs(tree)
    if action is None:
        for dog in dogs:
            devices.remove(dog)
    elif not dogs:
        etree.SubElement(devices, "watchdog", model=_WATCHDOG_MODEL)
    for dog in devices.findall("watchdog"):
        dog.set("action", action or "reset")


def _set_tune(tree, **values):
    """Children of <cputune>; None takes one away."""
    tune = ensure(tree, "cputune")
    for tag, value in values.items():
        if value is None:
            remove(tune, tag)
        else:
            set_text(tune, tag, str(value))
    if not len(tune):
        tree.remove(tune)


def _set_shares(tree, _devices, _overlay, shares):
    _set_tune(tree, shares=shares)


def _set_quota(tree, _devices, _overlay, percent):
    _set_tune(tree, period=None if percent is None else PERIOD, quota=None if percent is None else percent * PERIOD // 100)


def _set_pin(tree, _devices, _overlay, cpus):
    placed = ensure(tree, "vcpu")
    if cpus is None:
        placed.attrib.pop("cpuset", None)
    else:
        placed.set("cpuset", cpus)


def _set_limits(_tree, _devices, overlay, limits):
    if overlay is None:
        return
    remove(overlay, "iotune")
    if limits:
        tune = etree.SubElement(overlay, "iotune")
        for limit, value in limits:
            etree.SubElement(tune, f"{limit}_sec").text = str(value)


_SETTERS = {"watchdog": _set_watchdog, "cpu_shares": _set_shares, "cpu_quota": _set_quota, "cpu_pin": _set_pin, "io_tuning": _set_limits}
