# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs inside a module on the hypervisor, by way of PYTHONPATH: appends its time in seconds and its peak memory in KiB to KVM2_BENCH_LOG."""

from __future__ import annotations

import atexit
import os
import resource
import time

BEGAN = time.monotonic()


def note():
    with open(os.environ["KVM2_BENCH_LOG"], "a", encoding="utf-8") as log:
        log.write(f"{time.monotonic() - BEGAN:.3f} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}\n")


if os.environ.get("KVM2_BENCH_LOG"):
    atexit.register(note)
