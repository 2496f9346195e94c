# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory and processors: what the guests of a hypervisor may take together, with those that are about to come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

from .checks import FAIL, OK, WARN, Check
from .domain_read import fields_of
from .units import format_size
from .xml import parse


@dataclass(frozen=True)
class Use:
    """What the domains of a hypervisor take, as (running, off but started at boot): memory in bytes, vcpus as a count.

    own_*: what the running ones of the instances that are asked about take; they are not among the others.  unread: names of domains whose
    XML cannot be read, which are not counted.
    """

    memory: Tuple[int, int]
    vcpus: Tuple[int, int]
    own_memory: int
    own_vcpus: int
    unread: Tuple[str, ...]


def use_of(domains, own):
    """The Use by these model.Domains; own: UUIDs of the instances that are asked about."""
    memory, vcpus, own_memory, own_vcpus, unread = [0, 0], [0, 0], 0, 0, []
    for domain in domains:
        if not domain.active and (not domain.autostart or domain.uuid in own):
            continue
        text = domain.live_xml if domain.live_xml is not None else domain.xml
        try:
            if text is None:
                raise ValueError("it has no XML")
            fields = fields_of(parse(text))
        except ValueError:
            unread.append(domain.name)
            continue
        if domain.uuid in own:
            own_memory, own_vcpus = own_memory + fields["memory"], own_vcpus + fields["vcpus"]
        else:
            index = 0 if domain.active else 1
            memory[index] += fields["memory"]
            vcpus[index] += fields["vcpus"]
    return Use(tuple(memory), tuple(vcpus), own_memory, own_vcpus, tuple(unread))


def checks(use, facts, memory, vcpus, memory_ratio, vcpu_ratio, memory_available=None):
    """The Checks of the budget.

    memory (bytes) and vcpus (count): what all instances that are asked about take together, None where nothing is asked for.  The ratios say
    how many times what the host has may be given away.  memory_available: bytes that can be had at this moment, None where unknown.
    """
    found = [
        _budget("memory budget", use.memory, use.own_memory, memory, facts.memory, memory_ratio, format_size, "memory_overcommit_ratio"),
        _budget("vcpu budget", use.vcpus, use.own_vcpus, vcpus, facts.cpus, vcpu_ratio, str, "vcpu_overcommit_ratio")]
    new = max(0, (memory or 0) - use.own_memory)
    if memory_available is not None and new:
        message = f"{format_size(new)} are about to be given to guests, and {format_size(memory_available)} can be had at this moment"
        enough = new <= memory_available
        found.append(Check(
            "free memory", OK if enough else WARN, f"{message}.", "" if enough else "Stop what is not needed, or place fewer guests here: free -m."))
    if use.unread:
        found.append(Check(
            "unreadable domains", WARN, f"These domains cannot be read and are not counted: {', '.join(use.unread)}.", "See: virsh dumpxml."))
    return found


def _budget(name, others, own, asked, have, ratio, show, option):
    running, at_boot = others
    limit = have * ratio
    total = running + max(own, asked or 0)
    figures = f"Guests get {show(total)}, {show(running)} of it others that run; the host has {show(have)}, and {ratio:g} times that may be given away"
    hint = f"Place fewer or smaller guests here, stop others (virsh list), or raise {option}."
    if total > limit:
        # What runs already is no reason to fail: only what is asked for on top of it.
        return Check(name, FAIL if asked is not None and asked > own else WARN, f"{figures}: that is too much.", hint)
    if total + at_boot > limit:
        return Check(name, WARN, f"{figures}; the ones that are off now and start at boot take {show(at_boot)} more: that is too much.", hint)
    return Check(name, OK, f"{figures}.")
