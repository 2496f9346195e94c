# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_report
short_description: Show a fleet on one hypervisor in lines for people
version_added: 0.1.0
author:
  - egress.kvm2 contributors (@egress-kvm2)
description:
  - Returns a table of the instances that carry the fleet's mark or are declared for the hypervisor, what differs from the definition, and what
    collection would do.
positional: hypervisor, collection, domains, problem
options:
  _input:
    description:
      - The definition, as P(egress.kvm2.fleet#filter) returns it.
    type: dict
    required: true
  hypervisor:
    description:
      - The hypervisor's name in the definition.
    type: str
    required: true
  collection:
    description:
      - What M(egress.kvm2.kvm2_gc) returned in check mode.
    type: dict
    required: true
  domains:
    description:
      - The C(instances) that M(egress.kvm2.kvm2_domain) returned in check mode.
    type: list
    elements: dict
    default: []
  problem:
    description:
      - Why there are no O(domains), shown in their place.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Show the fleet
  ansible.builtin.debug:
    msg: "{{ kvm2_fleet | egress.kvm2.fleet | egress.kvm2.fleet_report('hv1', collection, domains.instances) }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
"""

from ansible_collections.egress.kvm2.plugins.module_utils._policy import fleet_report


class FilterModule:
    def filters(self):
        return {"fleet_report": fleet_report.lines}
