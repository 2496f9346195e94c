# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kvm2_domain tells of each instance: as it is after the run, or as check mode predicts it."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

from .._policy import addresses, domain_read, domain_xml, mark
from .._policy.errors import Kvm2Error
from . import change, waiting
from .domain_plan import DomainPlan
from .domain_view import address_of, domain_shown, drift_of, state_of


class DomainResult(DomainPlan):
    """The results of a plan and of its apply."""

    def predict(self, seen, plan):
        return {"instances": [self._shown(target, plan, seen, target.domain, predicted=True) for target in seen.targets if self._went_well(target)]}

    def _went_well(self, target):
        return target.instance.name not in {item for item, error in self.context.failures}

    def _shown(self, target, plan, seen, domain, predicted=False, found=None):
        instance = target.instance
        known = seen.addresses.get(instance.uid, ()) if found is None else found
        drift, overlay, seed_name, base, macs = [], None, None, None, []
        job = self._jobs.get(instance.uid)
        if job is not None:
            overlay, seed_name, macs = job.overlay or instance.options.get("overlay"), job.seed, list(job.wanted.macs)
            if domain is not None and not predicted:
                defined = domain_read.read_spec(domain.any_xml)
                overlay, seed_name = os.path.basename(defined.overlay_path or "") or None, os.path.basename(defined.seed_path or "") or None
            base = os.path.basename(job.spec.overlay_chain[-1][0]) if job.spec.overlay_chain else None
            if domain is not None and target.there:
                drift = self._drift_now(target, self._predicted_domain(target, plan, job) if predicted else domain, job)
        state = self._predicted_state(target, plan, known) if predicted else state_of(domain, known)
        actions = plan.of(instance.name).as_list() if predicted else [
            action.as_dict() for action in self.context.done if action.instance == instance.name]
        if domain is None and not predicted:
            seed_name = None
        return {
            "name": instance.name, "uid": instance.uid, "domain": instance.domain, "state": state,
            "reason": domain.reason if domain is not None else "", "addresses": [address_of(entry) for entry in known],
            "primary_address": self._primary(known, macs), "mac": macs[0] if macs else None, "macs": macs, "overlay": overlay,
            "seed": seed_name, "base": base, "hold": self._hold_shown(target, domain, predicted), "drift": drift, "actions": actions,
            **self._domain_shown(target, plan, domain, predicted)}

    def _domain_shown(self, target, plan, domain, predicted):
        if not predicted:
            return domain_shown(domain, None)
        acts = {action.act for action in plan.of(target.instance.name).actions}
        there = self.state != "absent" and target.there
        return domain_shown(domain if there else None, self._jobs.get(target.instance.uid) if acts & {"define", "redefine", "replace"} else None)

    def _primary(self, known, macs):
        """The first address of the wanted family."""
        found = addresses.usable(known, macs, self.params["wait"]["family"])
        return found[0].address if found else None

    def _hold_shown(self, target, domain, predicted):
        if domain is None:
            return self.holds.get(target.instance.uid) or "" if predicted and self.state != "absent" else ""
        parsed = mark.of_domain(domain)
        return self._hold_of(target) if predicted else getattr(parsed, "hold", "")

    def _predicted_domain(self, target, plan, job):
        """The model.Domain of an instance that is there, as it is once the plan is done."""
        domain, acts = target.domain, {action.act for action in plan.of(target.instance.name).actions}
        if acts & {"redefine", "replace"}:
            # One that is refused fails the run, not its prediction.
            with suppress(Kvm2Error):
                domain = replace(domain, persistent=True, xml=domain_xml.update(domain.xml or domain.live_xml, job.spec, mark.to_element(job.mark)))
        if "stop" in acts or ("start" in acts and domain.active):
            domain = replace(domain, live_xml=None)
        if "drop" in acts:
            domain = replace(domain, saved_xml=None)
        return domain

    def _drift_now(self, target, domain, job):
        """How the domain differs as it is now, which a restart or a replacement may have changed."""
        moved, instance = self._changes.get(target.instance.uid), target.instance
        disk, overlay, seed_gone = domain_read.overlay_path(domain.guest_xml or domain.xml), target.overlay, target.seed_gone
        if moved is not None and change.disks_of(domain) <= moved.disks and not {disk, moved.job.spec.seed_path} <= change.disks_of(domain):
            job = moved.present
        elif moved is not None:
            # What was given was used, or had to be made anew for the seed's sake.
            instance = replace(instance, options={**instance.options, "overlay": None})
            overlay, seed_gone = target.replacement or target.overlay, None if moved.new_seed else seed_gone
            if moved.new_overlay and overlay is None:
                # Only predicted, as its volume is.
                disk = None
        found = replace(target, instance=instance, domain=domain, overlay=overlay, disk=disk, seed_gone=seed_gone)
        return drift_of(found, job.spec, job.wanted, self.host)

    def _predicted_state(self, target, plan, known):
        if self.state == "absent":
            return "absent"
        if not target.there:
            return "provisioning" if self.state == "running" else "stopped"
        moved = self._changes.get(target.instance.uid)
        if moved is not None:
            return "provisioning" if moved.starts else "stopped"
        acts = {action.act for action in plan.of(target.instance.name).actions}
        if "stop" in acts:
            return "stopped"
        return "running" if acts & {"start", "resume"} else state_of(target.domain, known)

    def _result(self, hypervisor, seen, plan):
        shown = []
        for target in seen.targets:
            domain = hypervisor.domain(target.instance.uid) if target.problem is None else None
            found = ()
            if domain is not None and domain.active and target.instance.uid in self.wanted:
                # One that was waited for in vain may have an agent that hangs.
                failed = self.state == "running" and self.params["wait"]["for"] in ("address", "agent") and not self._went_well(target)
                with waiting.agents_bounded(hypervisor, (domain.uuid,) if failed else ()):
                    found = waiting.known_addresses(
                        hypervisor, domain.uuid, self.wanted[target.instance.uid].macs, self.sources[target.instance.uid], self.params["wait"]["family"],
                        self._former_leases.get(target.instance.uid))
            if target.problem is None:
                shown.append(self._shown(target, plan, seen, domain, found=found))
            if self.state == "running" and self.params["wait"]["for"] != "none" and self._went_well(target):
                # One that was there and is paused again, as on a disk that is still full.
                error = waiting.trouble(hypervisor, target.instance.domain, domain, self.params["wait"]["for"])
                if error is not None:
                    self.context.failed(target.instance.name, error)
        return {"instances": shown}
