# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: overlapping.py [PART…] starts several guests at the same time, and kills the daemon under them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

import libvirt
from states import acts, require, run_parts

NAMES = ("one", "two", "three", "four", "five", "six")
AT_ONCE = 3
# Seconds in which so many starts have to have begun, where they do overlap.
BOUND = 120


@contextlib.contextmanager
def starts_meet(then):
    """The first AT_ONCE starts go on together, once the last of them has come and called then(); those that follow go on at once."""
    real, met, lock, begun = libvirt.virDomain.create, threading.Barrier(AT_ONCE, then, BOUND), threading.Lock(), []

    def create(handle):
        with lock:
            begun.append(handle.name())
            waits = len(begun) <= AT_ONCE
        if waits:
            met.wait()
        return real(handle)
    libvirt.virDomain.create = create
    try:
        yield begun
    finally:
        libvirt.virDomain.create = real


def kill_daemon():
    with open("/run/libvirtd.pid", encoding="ascii") as file:
        os.kill(int(file.read()), signal.SIGKILL)


def started_together(host, base):
    host.create(base, NAMES, state="defined")
    told = host.domain(check=True, names=NAMES, max_requests=AT_ONCE)
    with starts_meet(lambda: None) as begun:
        done = host.domain(names=NAMES, max_requests=AT_ONCE)
    require(not done.failed and len(begun) == len(NAMES), "started together", getattr(done, "msg", ""), begun)
    require(told.actions == done.actions, "check mode told", told.actions, done.actions)
    require([action["instance"] for action in done.actions] == list(NAMES), "the order is that of the instances", done.actions)
    require(all(host.state(name).isActive() for name in NAMES), "all run")
    again = host.domain(names=NAMES)
    require(not again.failed and not again.changed, "again", again.actions)
    host.remove(NAMES)


def daemon_killed_under_them(host, base):
    host.create(base, NAMES, state="defined")
    with starts_meet(kill_daemon):
        done = host.domain(names=NAMES, max_requests=AT_ONCE)
    require(done.failed and {error["kind"] for error in done.errors} == {"transient"}, "only what passes failed", done.errors)
    failed = {error["item"] for error in done.errors}
    require(len(failed) <= AT_ONCE, "those that had not begun went on over another connection", failed)
    require({action["instance"] for action in done.actions} == set(NAMES) - failed, "what was done is told", done.actions)
    host.reopen()
    require(all(host.state(name).isActive() for name in set(NAMES) - failed), "what was told to run runs")
    mended = host.domain(names=NAMES, max_requests=AT_ONCE)
    require(not mended.failed and set(acts(mended.actions)) <= {"start domain"}, "the next run mends it", getattr(mended, "msg", ""), mended.actions)
    require(all(host.state(name).isActive() for name in NAMES), "all run afterwards")
    host.remove(NAMES)


if __name__ == "__main__":
    run_parts(started_together, daemon_killed_under_them)
