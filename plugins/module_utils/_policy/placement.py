# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which instance goes to which hypervisor: told by the definition alone, so that a run over some hosts places as a run over all."""

from __future__ import annotations

from fractions import Fraction


def place(instances, weights):
    """Spread instances over hypervisors.

    instances: (name, hypervisor or None) pairs in the order of the definition; a hypervisor given there is kept.
    weights: {hypervisor: positive integer}.  Returns {hypervisor: [names]}, every hypervisor included, names in the order given.

    Each instance goes to the hypervisor that is then the least loaded for its weight; the name decides between equals, so that the order in
    which hypervisors are written does not matter. What is placed depends only on what stands before it: an instance that is added at the
    end moves no other, and so does one that is taken away there.
    """
    placed = {name: [] for name in sorted(weights)}
    for instance, wanted in instances:
        target = wanted if wanted is not None else min(placed, key=lambda name: (Fraction(len(placed[name]) + 1, weights[name]), name))
        placed[target].append(instance)
    return placed
