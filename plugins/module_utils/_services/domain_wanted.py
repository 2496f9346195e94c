# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an instance's definition is to be: a new one, and one that is there, of which stays what nobody asked for."""

from __future__ import annotations

import os
from typing import Dict

from .._policy import domain_interface, domain_read, domain_xml, mark, names
from .._policy.domain_fields import UNASKED
from .._policy.domain_spec import effective_cpu_mode
from .._policy.model import Volume
from .domain_request import DomainRequest
from .domain_view import former


class DomainWanted(DomainRequest):
    """_files: by path, what the pools showed."""

    def __init__(self, params, context):
        super().__init__(params, context)
        self._files: Dict[str, Volume] = {}

    def _new_name(self, kind, instance):
        return str(names.InstanceVolumeName(kind, self.fleet, instance.name, instance.uid, self.context.nonce()))

    def _spec(self, seen, instance, wanted, overlay, seed_path):
        host = seen.host
        virt_type = host.choose_virt_type(wanted.virt_type)
        return domain_xml.DomainSpec(
            name=instance.domain, uuid=instance.uid, memory=wanted.memory, vcpus=wanted.vcpus,
            cpu_mode=effective_cpu_mode(wanted.cpu_mode, virt_type), machine=wanted.machine or host.default_machine, arch=host.arch,
            firmware=wanted.firmware, virt_type=virt_type,
            overlay_path=overlay.path if overlay else f"{seen.pool.path}/{instance.options.get('overlay') or 'overlay-to-be-made'}",
            overlay_chain=self._chain(overlay), seed_path=seed_path, interfaces=wanted.interfaces, **wanted.devices)

    def _mark(self, instance, wanted, spec, created_at):
        base = os.path.basename(spec.overlay_chain[-1][0]) if spec.overlay_chain else ""
        macs = [mac for mac in wanted.macs if mac not in domain_read.derived_macs(instance.uid)]
        options = [field for field in UNASKED if getattr(spec, field)]
        options += domain_interface.words(spec.interfaces)
        return mark.Mark(
            fleet=self.fleet, name=instance.name, uid=instance.uid, created_at=created_at, host=self.host, generation=domain_xml.generation(spec),
            base=base, seed=wanted.seed_hash, macs=" ".join(macs), options=" ".join(options))

    def _chain(self, overlay, known=()):
        """((path, format), …) of all files below an overlay, down to the one that has none below it; () where that cannot be told. An operator's
        snapshots make it longer than our own overlay on its base, and one that is written too short cuts the guest's disk off.

        known: what the definition says, for files that no pool shows.
        """
        found = []
        while overlay is not None and overlay.backing_path:
            path = overlay.backing_path
            if path in [one for one, _format in found]:
                return ()
            found.append((path, overlay.backing_format or "qcow2"))
            overlay = self._files.get(path)
            if overlay is None and not ends_in_a_base(found):
                paths = [one for one, _format in known]
                return tuple(found) + tuple(known[paths.index(path) + 1:]) if path in paths else ()
        return tuple(found)

    def _present_spec(self, target):
        """The wanted specification of an instance that is there: what it does not ask for stays as the domain has it."""
        instance, wanted = target.instance, self.wanted[target.instance.uid]
        have = domain_read.read_spec(target.domain.xml or target.domain.live_xml)
        virt_type = have.virt_type if wanted.virt_type == "auto" else wanted.virt_type
        return domain_xml.DomainSpec(
            name=instance.domain, uuid=instance.uid, memory=wanted.memory, vcpus=wanted.vcpus,
            cpu_mode=effective_cpu_mode(wanted.cpu_mode, virt_type), machine=wanted.machine or have.machine, arch=have.arch,
            firmware=wanted.firmware, virt_type=virt_type, overlay_path=target.disk,
            overlay_chain=self._chain(target.overlay, have.overlay_chain) or have.overlay_chain, seed_path=have.seed_path or target.seed_detached,
            interfaces=wanted.interfaces, former_macs=former(target.domain, "macs"), former_options=former(target.domain, "options"), **wanted.devices)


def ends_in_a_base(chain):
    return bool(chain) and names.parse_base(os.path.basename(chain[-1][0])) is not None
