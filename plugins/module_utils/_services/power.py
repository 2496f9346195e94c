# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stopping guests: all of a set at the same time, each bounded."""

from __future__ import annotations

import threading
import time

from .._policy.errors import TRANSIENT, Kvm2Error

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
