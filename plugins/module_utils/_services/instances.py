# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances as the options name them, and their objects on a hypervisor."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Mapping

from .._policy import mark, names
from .._policy.errors import CONFLICT, InvalidInput, Kvm2Error

LIFT_HOLD = 'Lift the hold first: kvm2_domain for this instance with state: defined, on_change: report and hold: "".'


@dataclass(frozen=True)
class Instance:
    """One entry of the option `instances`."""

    fleet: str
    name: str
    uid: str
    options: Mapping[str, Any]

    @property
    def domain(self):
        return names.domain_name(self.fleet, self.name)

    def owns(self, parsed):
        """Does a parsed overlay or seed name belong to this instance? The uid decides: volumes of one uid are one instance's."""
        return parsed is not None and parsed.uid == self.uid


def parse_instances(fleet, entries):
    """Instances of the option, checked: labels, UUIDs, and no two alike. All problems of one kind are named at once."""
    names.check_label(fleet, "fleet")
    found = []
    for index, entry in enumerate(entries):
        name = names.check_label(entry["name"], f"instances[{index}].name")
        uid = names.derive_uid(fleet, name)
        if entry.get("uid") is not None:
            uid = names.parse_uid(entry["uid"])
            if uid is None:
                raise InvalidInput(f"instances[{index}].uid {entry['uid']!r}", "it is not a UUID", "Leave it out to have it derived from the name.")
        found.append(Instance(fleet, name, uid, entry))
    for what in ("name", "uid"):
        values = [getattr(instance, what) for instance in found]
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise InvalidInput(f"instances of fleet {fleet}", f"several have the {what} {', '.join(twice)}", f"Give each a {what} of its own.")
    return tuple(found)


def domain_of(instance, domains):
    """The instance's model.Domain among domains, or None; a conflict where its name or UUID belongs to something that is not ours."""
    by_uuid = next((domain for domain in domains if domain.uuid == instance.uid), None)
    by_name = next((domain for domain in domains if domain.name == instance.domain), None)
    for domain in (by_uuid, by_name):
        if domain is None:
            continue
        parsed = mark.of_domain(domain)
        why = mark.why_not_ours(domain, parsed)
        if why is None and (domain.uuid != instance.uid or domain.name != instance.domain):
            why = "it is another instance of ours"
        if why is not None:
            # An uid of its own helps against a UUID that is taken, another name against a name that is.
            hint = "Give the instance an uid of its own." if domain is by_uuid else "Rename the instance, or that domain."
            if isinstance(parsed, mark.Mark) and (parsed.fleet, parsed.name, parsed.uid) == (instance.fleet, instance.name, domain.uuid):
                hint = f"It is this instance, and was renamed. Give it its name back: virsh domrename {domain.name} {instance.domain}."
            if domain.name == instance.domain and domain.uuid == instance.uid:
                hint = f"If it is this instance, repair its mark: {mark.repair_command(domain, instance.fleet, instance.name, time.time())}"
            raise Kvm2Error(
                CONFLICT, "manage", f"instance {instance.domain} (uid {instance.uid})",
                f"there is a domain {domain.name} with the UUID {domain.uuid} that is not this instance: {why}", f"Nothing was changed. {hint}")
    return by_uuid


def is_being_deleted(domain):
    """Was the deletion of this domain (one of ours) declared?"""
    parsed = mark.of_domain(domain)
    return isinstance(parsed, mark.Mark) and parsed.deleting is not None
