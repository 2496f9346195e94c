# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starting one instance's guest, and the look back at what it was started from."""

from __future__ import annotations

import os

from .._host import classify
from .._policy import domain_read, mark
from .._policy.errors import CONFLICT, PERMANENT, TRANSIENT, Kvm2Error
from .converge import REPLACE, check_chain, check_seed_there, fresh, vanished


def start_checked(hypervisor, job):
    """See that the chain and the seed can be read, then start the guest."""
    check_chain(hypervisor, job, job.spec)
    check_seed_there(hypervisor, job)
    start(hypervisor, job)


def start(hypervisor, job):
    """Start the guest, whose chain and seed the caller has just seen. An error that would stay is believed only where everything is as it was: somebody
    else may have removed the disk or defined it anew. One who only switched the guest off while it was starting leaves no trace, so it is tried again."""
    for again in (True, False):
        try:
            hypervisor.start(job.instance.uid)
            return
        except Kvm2Error as error:
            if error.kind != PERMANENT:
                raise
            _as_it_was(hypervisor, job)
            if error.code != classify.INTERNAL_ERROR or not again:
                raise


def _as_it_was(hypervisor, job):
    domain = fresh(hypervisor, job)
    if domain is None or not domain.persistent or mark.of_domain(domain).deleting is not None:
        raise vanished(job)
    if job.spec.overlay_path not in [domain_read.overlay_path(text) for text in domain.xmls]:
        raise Kvm2Error(CONFLICT, "start", f"domain {job.instance.domain}", "something gave it another disk meanwhile", "Run again.")
    check_chain(hypervisor, job, job.spec)
    check_seed_there(hypervisor, job)


def look_back(hypervisor, job, running):
    """After the start: domain, overlay and seed are there, and the guest has the overlay that is configured."""
    domain = fresh(hypervisor, job)
    if domain is None or not domain.persistent or mark.of_domain(domain).deleting is not None:
        raise vanished(job)
    for text in domain.xmls:
        path = domain_read.overlay_path(text)
        if hypervisor.volume(job.pool, os.path.basename(path or "")) is None:
            raise Kvm2Error(
                CONFLICT, "create", f"domain {job.instance.domain}", f"its overlay {path} has gone", REPLACE)
        seed = os.path.basename(domain_read.read_spec(text).seed_path or "")
        # A definition without one is drift that the plan has told.
        if seed and seed != job.seed:
            raise Kvm2Error(
                CONFLICT, "create", f"domain {job.instance.domain}", "another run defined it at the same time, with another seed", "Run again.")
    check_seed_there(hypervisor, job)
    if running and not domain.active:
        raise Kvm2Error(TRANSIENT, "start", f"domain {job.instance.domain}", f"it is {domain.state} ({domain.reason}) right after the start", "Run again.")
