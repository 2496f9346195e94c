# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of an instance's devices and limits, checked and turned into the values of a domain_spec.DomainSpec."""

from __future__ import annotations

import re

from . import domain_extra
from .domain_tuning import IO_LIMITS, canonical_cpus, parse_cpus
from .errors import InvalidInput
from .units import parse_size

# "none" takes for one instance away what all of them have.
NO_WATCHDOG = "none"
LEAST_MTU, MOST_MTU = 68, 65535
MOST_VLAN = 4094
# What both generations of the kernel's control groups take.
LEAST_SHARES, MOST_SHARES = 2, 10000
MOST_QUOTA = 100000
_PARAMETER_RE = re.compile(r"[A-Za-z0-9_]+")
_VALUE_RE = re.compile(r"[A-Za-z0-9_.:/]+")


def device_values(options, who, uuid):
    """{name: value} of a DomainSpec, of merged options. who: such as "of instance proxy-01". Raises InvalidInput that names the option."""
    watchdog = options["watchdog"]
    return {
        "console_log": bool(options["console_log"]), "on_crash": options["on_crash"], "watchdog": None if watchdog == NO_WATCHDOG else watchdog,
        **_cpu_values(options["cpu_tuning"] or {}, who), "io_tuning": _io_limits(options["io_tuning"] or {}, who),
        "xml_extra": _extra(options["xml_extra"] or (), who, uuid)}


def _between(value, least, most, obj):
    if value is not None and not least <= value <= most:
        raise InvalidInput(f"{obj} {value}", "it is out of range", f"Give {least} to {most}.")
    return value


def _cpu_values(tuning, who):
    pin = tuning.get("pin")
    if pin is not None and parse_cpus(pin) is None:
        raise InvalidInput(f"cpu_tuning.pin {who} {pin!r}", "it is no list of processors", "Write numbers and ranges, such as 0-3,6.")
    return {
        "cpu_shares": _between(tuning.get("shares"), LEAST_SHARES, MOST_SHARES, f"cpu_tuning.shares {who}"),
        "cpu_quota": _between(tuning.get("quota"), 1, MOST_QUOTA, f"cpu_tuning.quota {who}"), "cpu_pin": canonical_cpus(pin)}


def _io_limits(tuning, who):
    found = []
    for limit in IO_LIMITS:
        value = tuning.get(limit)
        if value is None:
            continue
        obj = f"io_tuning.{limit} {who}"
        number = parse_size(value, obj) if limit.endswith("_bytes") else value
        if number < 1:
            raise InvalidInput(f"{obj} {value}", "nothing could be read or written", "Give 1 or more, or leave it out for no limit.")
        found.append((limit, number))
    given = {limit for limit, _number in found}
    for kind in ("bytes", "iops"):
        if f"total_{kind}" in given and given & {f"read_{kind}", f"write_{kind}"}:
            raise InvalidInput(f"io_tuning {who}", f"total_{kind} excludes read_{kind} and write_{kind}", "Give the total alone, or the other two.")
    return tuple(found)


def _extra(texts, who, uuid):
    seen = set()
    for index, text in enumerate(texts):
        obj = f"xml_extra[{index}] {who}"
        domain_extra.check(text, obj, uuid)
        alias = domain_extra.alias(text)
        if alias in seen:
            raise InvalidInput(obj, "it is there twice", "Leave one of them out; two devices alike need something that tells them apart.")
        seen.add(alias)
    return tuple(texts)


# -- interfaces

def network_values(entry, obj):
    """{name: value} of a domain_spec.Interface, of an entry of networks: VLAN, MTU and filter."""
    name = entry.get("nwfilter") or None
    parameters = entry.get("nwfilter_parameters") or {}
    if parameters and name is None:
        raise InvalidInput(f"{obj} nwfilter_parameters", "there is no nwfilter that they are for", "Name the filter too, or leave them out.")
    return {
        "vlan": _between(entry.get("vlan"), 1, MOST_VLAN, f"{obj} vlan"), "mtu": _between(entry.get("mtu"), LEAST_MTU, MOST_MTU, f"{obj} mtu"),
        "nwfilter": name, "nwfilter_parameters": tuple(sorted(_parameters(parameters, f"{obj} nwfilter_parameters")))}


def _parameters(parameters, obj):
    for name, values in parameters.items():
        if not isinstance(name, str) or not _PARAMETER_RE.fullmatch(name):
            raise InvalidInput(f"{obj} {name!r}", "it is no name of a parameter", "Use letters, digits and underscores, such as IP.")
        for value in values if isinstance(values, (list, tuple)) else [values]:
            if not isinstance(value, (str, int)) or isinstance(value, bool) or not _VALUE_RE.fullmatch(str(value)):
                raise InvalidInput(f"{obj}.{name} {value!r}", "it is no value that a filter takes", "Give a text such as 192.0.2.7, or a list of them.")
            yield name, str(value)
