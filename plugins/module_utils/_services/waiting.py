# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for guests: all of a set at the same time with one deadline, and what was seen of those that did not come."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Mapping, Tuple

from .._policy import addresses, console
from .._policy.errors import CONFLICT, QUOTA, TRANSIENT, Kvm2Error
from .power import POLL, pause

# An agent that is there but hangs would hold up the wait for all the others.
AGENT_BOUND = 5
# libvirt's default: as long as the agent takes. What was set before cannot be read.
AGENT_UNBOUND = -2
_STOPPED = ("paused", "pmsuspended", "crashed")
# What libvirt or an operator's tool pauses a guest for by itself, and lets it go on afterwards.
_PASSING = ("migration", "save", "dump", "snapshot", "starting up", "shutting down", "postcopy")


@dataclass(frozen=True)
class Guest:
    """One that is waited for: the domain's name, the MAC addresses of its interfaces, and the sources that can know its addresses, best first.

    former: leases that were there before it was started, as left_leases() gives them.
    """

    name: str
    macs: Tuple[str, ...]
    sources: Tuple[str, ...]
    former: Mapping[Tuple[str, str], int] = field(default_factory=dict)


def left_leases(leases, macs):
    """Those of Hypervisor.leases() that the interfaces with these MAC addresses have, but for the endless ones, which look the same once renewed."""
    ours = {mac.lower() for mac in macs}
    return {lease: until for lease, until in leases.items() if lease[0] in ours and until}


def known_addresses(hypervisor, uuid, macs, sources, family=None, former=None):
    """Usable addresses of our interfaces: those of the sources up to the first that knows one of the family, or any where that is None.

    former: leases that count only once they were renewed.
    """
    found = ()
    for source in sources:
        found += tuple(entry for entry, renewed in _told(hypervisor, uuid, source, former or {}) if renewed)
        if addresses.usable(found, macs, family):
            break
    return addresses.usable(found, macs)


def _told(hypervisor, uuid, source, former):
    """(model.Address, is it of this life of the guest?) of everything that the source tells. A DHCP server puts off the end of each lease that it renews."""
    told = hypervisor.addresses(uuid, source)
    doubtful = source == "lease" and any((entry.mac.lower(), entry.address) in former for entry in told)
    now = hypervisor.leases() if doubtful else {}
    keys = [(entry.mac.lower(), entry.address) for entry in told]
    return [(entry, not doubtful or key not in former or now.get(key) != former[key]) for entry, key in zip(told, keys)]


@contextmanager
def agents_bounded(hypervisor, uuids):
    """Inside, the agents of these guests are waited for AGENT_BOUND seconds at each question.

    The bound is the daemon's and counts for all its clients. One that freezes a filesystem or runs a command may take longer, so it ends here.
    """
    try:
        for uuid in uuids:
            hypervisor.bound_agent(uuid, AGENT_BOUND)
        yield
    finally:
        for uuid in uuids:
            with suppress(Kvm2Error):
                hypervisor.bound_agent(uuid, AGENT_UNBOUND)


def wait_all(hypervisor, guests, what, timeout, family, clock=time.monotonic, wait=pause):
    """Wait until every guest runs (what: running), has an address of the family (address), or its agent answers (agent). timeout in seconds.

    guests: {uuid: Guest}. Returns {uuid: None or Kvm2Error}. A guest that cannot come any more, since it is off or paused, is not waited for.
    """
    asking = [uuid for uuid, guest in guests.items() if what == "agent" or (what == "address" and "agent" in guest.sources)]
    with agents_bounded(hypervisor, asking):
        return _wait_all(hypervisor, guests, what, timeout, family, clock, wait)


def _wait_all(hypervisor, guests, what, timeout, family, clock, wait):
    waiting, result, until = dict(guests), dict.fromkeys(guests), clock() + timeout
    asked = set()
    while waiting:
        for uuid in list(waiting):
            guest, domain = waiting[uuid], hypervisor.domain(uuid)
            error = trouble(hypervisor, guest.name, domain, what)
            if error is not None:
                result[uuid] = error
                del waiting[uuid]
            # Asking takes its time where agents hang, but each guest is asked once at least.
            elif uuid not in asked or clock() < until:
                asked.add(uuid)
                if _is_there(hypervisor, uuid, guest, domain, what, family):
                    del waiting[uuid]
        if not waiting or clock() >= until:
            break
        wait(min(POLL, max(0.0, until - clock())))
    for uuid, guest in waiting.items():
        result[uuid] = _too_late(hypervisor, uuid, guest, what, timeout, family)
    return result


def _is_there(hypervisor, uuid, guest, domain, what, family):
    if what == "agent":
        return hypervisor.agent_answers(uuid)
    if what == "address":
        known = known_addresses(hypervisor, uuid, guest.macs, guest.sources, family, guest.former)
        return bool(addresses.usable(known, guest.macs, family))
    return domain.state in ("running", "blocked")


def trouble(hypervisor, name, domain, what):
    """Why a guest cannot be what is waited for, as a Kvm2Error, or None. domain: model.Domain as it is now."""
    if domain is None:
        return Kvm2Error(CONFLICT, "wait for", _object(name, what), "it has gone", "Something removed it; run again.")
    if domain.active and (domain.state not in _STOPPED or (domain.state == "paused" and domain.reason in _PASSING)):
        return None
    console_text = last_words(hypervisor, domain)
    if domain.state == "paused" and domain.reason == "ioerror":
        return Kvm2Error(
            QUOTA, "wait for", _object(name, what), f"it is {state_text(domain)}: an I/O error, mostly a full disk",
            f"Free space in its pool, then run again: it is resumed.{console_text}")
    return Kvm2Error(
        TRANSIENT, "wait for", _object(name, what), f"it is {state_text(domain)}", f"See /var/log/libvirt/qemu/{name}.log on the hypervisor.{console_text}")


def _too_late(hypervisor, uuid, guest, what, timeout, family):
    domain = hypervisor.domain(uuid)
    seen = [f"{source}: {_reported(hypervisor, uuid, guest, source)}" for source in guest.sources]
    if "agent" not in guest.sources:
        seen.append("its agent answers" if hypervisor.agent_answers(uuid) else "its agent does not answer")
    wanted = f" with an {_FAMILY_TEXTS[family]} address" if what == "address" and family else ""
    return Kvm2Error(
        TRANSIENT, "wait for", _object(guest.name, what),
        f"it is not there{wanted} within {timeout:g} s; its state is {state_text(domain)}; addresses seen of {', '.join(guest.macs) or 'no interface'}: "
        + "; ".join(seen), f"The guest was left as it is.{last_words(hypervisor, domain)}")


_FAMILY_TEXTS = {"ipv4": "IPv4", "ipv6": "IPv6"}


def _reported(hypervisor, uuid, guest, source):
    """The addresses of our interfaces that a source reports, also those that do not count, such as link-local ones."""
    ours = {mac.lower() for mac in guest.macs}
    found = [
        entry.address + ("" if renewed else " (of before its start)")
        for entry, renewed in _told(hypervisor, uuid, source, guest.former) if entry.mac.lower() in ours]
    if not found and source == "agent":
        return "none" if hypervisor.agent_answers(uuid) else "it does not answer"
    why = "" if found else hypervisor.why_no_addresses(uuid, source)
    return ", ".join(found) or (f"libvirt cannot tell ({why})" if why else "none")


def state_text(domain):
    if domain is None:
        return "absent"
    return domain.state + (f" ({domain.reason})" if domain.reason else "")


def _object(name, what):
    return f"domain {name} (for: {what})"


def last_words(hypervisor, domain):
    """A sentence with the last lines of a guest's console, or with where to look for them."""
    if domain is None:
        return ""
    path = console.log_path(domain.guest_xml or domain.any_xml)
    if path is None:
        return f" Its console is not logged; look at it with: virsh console {domain.name}"
    found = hypervisor.console_tail(path, console.TAIL)
    if found is None:
        return f" Its console is logged to {path} on the hypervisor, which cannot be read from here."
    lines = console.last_lines(*found)
    if not lines:
        return f" It has written nothing to its console ({path})."
    return f" The last lines of its console ({path}):\n" + "\n".join(lines)
