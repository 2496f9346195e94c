# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fields of a domain that are managed, as they are compared, shown and hashed."""

from __future__ import annotations

import hashlib
import json

from . import domain_extra
from .domain_spec import EVENTS, STANDARD_DEVICES, console_log_path, has_panic_device
from .domain_tuning import OPTIONAL, limits_text

# What is managed only while it is asked for, with what it is once it is asked for no more.
UNASKED = {**dict.fromkeys(OPTIONAL), "on_crash": "destroy"}


def fields(spec):
    """{field: value} of everything the specification asks for, flat, for comparison and for people. Sizes in bytes.

    A field that it leaves alone is not in it; an interface is the field "interface <mac>".
    """
    found = {
        "virt_type": spec.virt_type, "arch": spec.arch, "firmware": spec.firmware, "cpu_mode": spec.cpu_mode,
        "memory": spec.memory_kib * 1024, "vcpus": spec.vcpus}
    optional = {
        "on_crash": spec.on_crash, "machine": spec.machine, "emulator": spec.emulator, "title": spec.title, "overlay": spec.overlay_path,
        "overlay_chain": chain_text(spec.overlay_chain) if spec.overlay_path is not None and spec.overlay_chain else None,
        "seed": spec.seed_path}
    found.update({field: value for field, value in optional.items() if value is not None})
    found.update({f"interface {interface.mac}": str(interface) for interface in spec.interfaces})
    found.update(EVENTS)
    found.update(dict.fromkeys(STANDARD_DEVICES, True))
    found.update({field: getattr(spec, field) for field in OPTIONAL if field != "io_tuning" and getattr(spec, field)})
    if spec.io_tuning and spec.overlay_path is not None:
        found["io_tuning"] = limits_text(spec.io_tuning)
    found["console_log"] = console_log_path(spec.name, spec.uuid) if spec.console_log else None
    found["xml_extra"] = domain_extra.shown(spec.xml_extra)
    if has_panic_device(spec):
        found["panic_device"] = True
    return found


def chain_text(chain):
    return " <- ".join(f"{path} ({volume_format or 'format not given'})" for path, volume_format in chain)


def generation(spec):
    """Hex sha256 of the managed specification: equal for equal specifications, whatever the order of the interfaces."""
    return hashlib.sha256(json.dumps(fields(spec), sort_keys=True).encode()).hexdigest()
