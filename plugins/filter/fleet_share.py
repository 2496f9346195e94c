# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_share
short_description: Take one hypervisor's share out of a fleet
version_added: 0.1.0
author:
  - egress.kvm2 contributors (@egress-kvm2)
description:
  - Returns what a hypervisor gets of a fleet, in the form that the modules take. A hypervisor that the definition does not name gets
    nothing.
positional: hypervisor, overlays
options:
  _input:
    description:
      - A fleet as the filter P(egress.kvm2.fleet#filter) returns it.
    type: dict
    required: true
  hypervisor:
    description:
      - The name of the hypervisor in the definition.
    type: str
    required: true
  overlays:
    description:
      - The C(overlays) that M(egress.kvm2.kvm2_overlay) returned. The domains then name theirs.
    type: list
    elements: dict
    default: []
seealso:
  - plugin: egress.kvm2.fleet
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Keep the overlays of this hypervisor
  egress.kvm2.kvm2_overlay:
    fleet: "{{ kvm2_fleet.name }}"
    base: "{{ kvm2_base }}"
    instances: "{{ (kvm2_fleet | egress.kvm2.fleet | egress.kvm2.fleet_share('hv1')).overlays }}"
"""

RETURN = r"""
_value:
  description: The share.
  type: dict
  contains:
    names:
      description: The names of the instances.
      type: list
      elements: str
      returned: always
    overlays:
      description: The instances for M(egress.kvm2.kvm2_overlay).
      type: list
      elements: dict
      returned: always
    domains:
      description: The instances for M(egress.kvm2.kvm2_domain).
      type: list
      elements: dict
      returned: always
    interfaces:
      description: The interfaces of each instance, as M(egress.kvm2.kvm2_domain) takes them as C(networks).
      type: list
      elements: dict
      returned: always
    declared:
      description: The families, V(ipv4) or V(ipv6), of which the definition gives each of the instances an address.
      type: list
      elements: str
      returned: always
    networks:
      description: The libvirt networks that they need.
      type: list
      elements: str
      returned: always
    bridges:
      description: The bridges that they need.
      type: list
      elements: str
      returned: always
    memory:
      description: The sum of the guests' memory in bytes.
      type: int
      returned: always
    vcpus:
      description: The largest number of processors of a guest.
      type: int
      returned: always
"""

from ansible_collections.egress.kvm2.plugins.module_utils._policy import fleet


class FilterModule:
    def filters(self):
        return {"fleet_share": fleet.share}
