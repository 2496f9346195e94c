# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a domain differs from its specification; what libvirt itself adds or writes in another way is no difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import domain_interface, domain_read
from .domain_fields import UNASKED, fields
from .domain_spec import console_log_path
from .xml import parse

REDEFINE = "redefine"
REPLACE = "replace"
_REPLACED = ("overlay", "overlay_chain", "seed")
# A log begins with the next start; nobody wants a restart for it.
_WITHOUT_RESTART = ("title", "console_log")
# Short machine types and the beginning of the versioned ones that libvirt turns them into.
_MACHINES = {"q35": "pc-q35-", "pc": "pc-i440fx-"}


@dataclass(frozen=True)
class Drift:
    """needs: "redefine", or "replace" where a fresh overlay or seed is needed. restart: a running guest has it only after its restart."""

    field: str
    have: Any
    want: Any
    needs: str
    restart: bool

    def as_dict(self):
        return {"field": self.field, "have": self.have, "want": self.want, "needs": self.needs, "restart": self.restart}


def drift(xml, spec):
    """A tuple of Drift, one for each managed field in which the XML of a domain (persistent or running) differs from a DomainSpec."""
    tree = parse(xml)
    have, want = domain_read.fields_of(tree), fields(spec)
    # An interface of ours that is not wanted any more; one that an operator attached is none of ours.
    for mac in domain_read.derived_macs(spec.uuid).union(spec.former_macs):
        want.setdefault(f"interface {mac}", None)
    # A mark may say more than is managed here, such as one of a later version.
    for option in UNASKED.keys() & set(spec.former_options):
        want.setdefault(option, UNASKED[option])
    return tuple(
        Drift(field, have.get(field), want[field], REPLACE if field in _REPLACED else REDEFINE, field not in _WITHOUT_RESTART)
        for field in sorted(want) if not _is_same(field, have.get(field), want[field], tree, spec))


def _is_same(field, have, want, tree, spec):
    if field == "machine":
        return same_machine(have, want)
    if field == "cpu_mode":
        # Started with host-model, a guest shows the custom model that this became.
        return have == want or (want == "host-model" and have is None and tree.get("id") is not None and tree.find("cpu") is not None)
    if field.startswith("interface "):
        mac = field.partition(" ")[2]
        return domain_interface.is_same(tree, mac, next((one for one in spec.interfaces if one.mac == mac), None), spec.former_options)
    if field == "console_log":
        # A log that somebody put elsewhere is none of ours, whether one is asked for or not.
        log = tree.find("devices/serial[1]/log")
        return have == want or (log is not None and log.get("file") != console_log_path(spec.name, spec.uuid))
    if field == "overlay_chain":
        return _is_same_chain(domain_read.read_chain(domain_read.find_disk(tree, "overlay")), spec.overlay_chain)
    return have == want


def same_machine(have, want):
    """Is `have`, as libvirt writes it, the machine type `want` or a version of it?"""
    if have is None:
        return False
    return have == want or have.startswith(_MACHINES.get(want, f"{want}-"))


def machine_family(machine):
    """Machines of one family have the same buses: "q35", "pc", else the type itself."""
    return next((short for short in _MACHINES if same_machine(machine, short)), machine)


def _is_same_chain(have, want):
    """A chain that is not written down, or only in part, differs only in what it says."""
    found, ends = have
    if ends and len(found) != len(want):
        return False
    return len(found) <= len(want) and all(
        path == wanted_path and volume_format in (None, wanted_format)
        for (path, volume_format), (wanted_path, wanted_format) in zip(found, want))
