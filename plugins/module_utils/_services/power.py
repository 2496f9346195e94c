# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stopping guests and waiting for them: all of a set at the same time, each bounded."""

from __future__ import annotations

import threading
import time

from .._policy import addresses
from .._policy.errors import QUOTA, TRANSIENT, Kvm2Error

POLL = 0.5
# A guest that is still booting drops the first request, so it is asked again.
ASK_AGAIN = 10
FORCE_BOUND = 30
# Guests in these states do not hear an ACPI request.
_DEAF = ("paused", "pmsuspended", "crashed")


def pause(seconds):
    threading.Event().wait(seconds)


def stop_all(hypervisor, wanted, mode, timeout, clock=time.monotonic, wait=pause):
    """Stop domains. wanted: {uuid: name}; mode: graceful or force; timeout: seconds for all of them together, before they are forced.

    Returns {uuid: None or the Kvm2Error that kept it from stopping}.
    """
    errors = {}
    running = _still_active(hypervisor, wanted, errors)
    if mode == "graceful":
        until, asked = clock() + timeout, {}
        while running and clock() < until:
            for uuid in list(running):
                domain = running[uuid]
                if domain.state in _DEAF:
                    _guarded(errors, uuid, hypervisor.destroy, uuid)
                elif clock() - asked.get(uuid, -ASK_AGAIN) >= ASK_AGAIN:
                    asked[uuid] = clock()
                    # A guest that cannot be asked is forced when the time is over.
                    _guarded({}, uuid, hypervisor.shutdown, uuid)
            running = _still_active(hypervisor, running, errors)
            if running:
                wait(min(POLL, max(0.0, until - clock())))
                running = _still_active(hypervisor, running, errors)
    for uuid in running:
        _guarded(errors, uuid, hypervisor.destroy, uuid)
    until = clock() + FORCE_BOUND
    while True:
        running = _still_active(hypervisor, running, errors)
        if not running or clock() >= until:
            break
        wait(POLL)
        for uuid in _still_active(hypervisor, running, errors):
            # Something may have started it again.
            _guarded({}, uuid, hypervisor.destroy, uuid)
    for uuid, domain in running.items():
        errors.setdefault(uuid, Kvm2Error(
            TRANSIENT, "stop", f"domain {domain.name}", f"it is still {domain.state} {FORCE_BOUND} s after it was forced off", "See QEMU on the hypervisor."))
    # The state is read again before an error is believed: the guest may be off all the same.
    active = _still_active(hypervisor, errors, {})
    return {uuid: errors[uuid] if uuid in active else None for uuid in wanted}


def _still_active(hypervisor, uuids, errors):
    found = {}
    for uuid in uuids:
        if uuid in errors:
            continue
        domain = hypervisor.domain(uuid)
        if domain is not None and domain.active:
            found[uuid] = domain
    return found


def _guarded(errors, uuid, function, *args):
    try:
        function(*args)
    except Kvm2Error as error:
        errors[uuid] = error


def known_addresses(hypervisor, uuid, macs, sources, family=None):
    """Addresses of our interfaces from the first source that knows any."""
    for source in sources:
        found = addresses.usable(hypervisor.addresses(uuid, source), macs, family)
        if found:
            return found
    return ()


def wait_all(hypervisor, guests, what, timeout, family, clock=time.monotonic, wait=pause):
    """Wait until every guest runs (what: running), has an address, or its agent answers. One deadline for all; timeout in seconds.

    guests: {uuid: (name, macs, sources)}. Returns {uuid: None or Kvm2Error}.
    """
    waiting, result, until = dict(guests), dict.fromkeys(guests), clock() + timeout
    last = {}
    while waiting:
        for uuid in list(waiting):
            name, macs, sources = waiting[uuid]
            domain = hypervisor.domain(uuid)
            state = "absent" if domain is None else domain.state
            last[uuid] = f"its state is {state}" + (f" ({domain.reason})" if domain is not None and domain.reason else "")
            if domain is None or not domain.active or state in ("paused", "crashed"):
                result[uuid] = _not_running(name, domain, what)
                del waiting[uuid]
            elif _has(hypervisor, uuid, macs, sources, what, family):
                del waiting[uuid]
        if not waiting or clock() >= until:
            break
        wait(min(POLL, max(0.0, until - clock())))
    for uuid, (name, macs, sources) in waiting.items():
        seen = ", ".join(entry.address for entry in known_addresses(hypervisor, uuid, macs, sources)) or "none"
        result[uuid] = Kvm2Error(
            TRANSIENT, "wait for", f"domain {name} (for: {what})",
            f"not there within {timeout:g} s; {last[uuid]}, addresses seen from {' and '.join(sources)} of {', '.join(macs) or 'no interface'}: {seen}",
            f"Look at its console (virsh console {name}); the guest was left as it is.")
    return result


def _has(hypervisor, uuid, macs, sources, what, family):
    if what == "running":
        return True
    if what == "agent":
        # An agent that answers reports at least the guest's loopback interface.
        return bool(hypervisor.addresses(uuid, "agent"))
    return bool(known_addresses(hypervisor, uuid, macs, sources, family))


def _not_running(name, domain, what):
    obj = f"domain {name} (for: {what})"
    if domain is None:
        return Kvm2Error("conflict", "wait for", obj, "it has gone", "Something removed it; run again.")
    if domain.state == "paused" and domain.reason == "ioerror":
        return Kvm2Error(QUOTA, "wait for", obj, "it is paused by an I/O error, mostly a full disk", "Free space in its pool, then run again: it is resumed.")
    return Kvm2Error(
        TRANSIENT, "wait for", obj, f"it is {domain.state}" + (f" ({domain.reason})" if domain.reason else ""),
        f"See its console and /var/log/libvirt/qemu/{name}.log on the hypervisor.")
