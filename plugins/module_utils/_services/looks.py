# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look around for the same step of several instances, which would otherwise read all that a hypervisor holds once for each of them.

Nothing in it is older than the step: it is taken by the first instance that has come to the step, when all of them have finished the one before.
"""

from __future__ import annotations

import functools

from .pools import look_around

# So many instances take a step together. It bounds how old a shared look gets, and what one run that is killed leaves half-made.
TOGETHER = 25


def groups(items):
    """The items, TOGETHER at a time."""
    items = list(items)
    return [items[begin:begin + TOGETHER] for begin in range(0, len(items), TOGETHER)]


def shared_look(hypervisor):
    """A function without arguments that gives pools.look_around(hypervisor), read when it is first called. A look that failed is tried again."""
    return once(lambda: look_around(hypervisor))


def once(function):
    """The function, called at the first call only; what it raised is not kept."""
    return functools.lru_cache(maxsize=1)(function)
