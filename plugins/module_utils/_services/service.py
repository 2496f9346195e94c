# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module's service is, and what it is given besides the hypervisor."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from .._host import turn
from .._policy.errors import Kvm2Error
from . import clock as pool_clock


def _ignore(*_arguments):
    """What is called where nobody listens."""


class Context:
    """What a service may use besides the hypervisor: a nonce, the clock (seconds since the epoch), the time on a pool's machine, a place for
    warnings, and the list of what was done and what failed, from which the result is made.

    pool_time(hypervisor, pool, volumes, wall_clock) gives seconds since the epoch; the one for check mode writes nothing and may be early.
    progress(done, total, phase) is told how many bytes of a long step are through, at each block of some 256 KiB. phase: fetch (from the source),
    store (from a temporary file into the pool), verify (read back) or wait (for another run, in seconds); total is None where it is not known.
    turn(what, patience, waiting) gives a _host.turn.Turn; the one for check mode, and the default, writes nothing and never waits. What is put
    into held is released when the run ends, whatever came of it.
    check_stop() raises a Kvm2Error where the run has to end early. It is asked at each block and in each wait, from more than one thread.
    """

    def __init__(self, nonce, warn, clock=time.time, deadline=None):
        self.nonce = nonce
        self.clock = clock
        self.pool_time = pool_clock.probed
        self.turn = turn.no_turn
        self.held = []
        self.progress = _ignore
        self.check_stop = _ignore
        self.warn = warn
        self.deadline = deadline
        self.done = []
        self.failures = []

    def did(self, action):
        self.done.append(action)

    def guard(self, item, function):
        """Call function; a Kvm2Error is noted as the failure of that item."""
        try:
            function()
        except Kvm2Error as error:
            self.failed(item, error)

    def failed(self, item, error):
        """Note that one item of a set failed; the others go on and the module fails at the end."""
        self.failures.append((item, error))


class StartOver(Exception):
    """Raised by apply where all that it made is gone again and the run can begin anew, from observe on; apply bounds how often."""


class Service(ABC):
    """One module's work. observe and plan are the same in check mode and out of it; apply does what the plan says and nothing else."""

    def __init__(self, params, context):
        self.params = params
        self.context = context

    @abstractmethod
    def observe(self, hypervisor):
        """Read what the plan needs. Changes nothing but the daemon's view of its pools."""

    @abstractmethod
    def plan(self, seen):
        """The Plan that leads from what was seen to what was asked for. Wrong input and impossible wishes are raised here."""

    @abstractmethod
    def predict(self, seen, plan):
        """The result as it would be once the plan was done."""

    @abstractmethod
    def apply(self, hypervisor, seen, plan):
        """Do the plan and return the result, or raise StartOver."""
