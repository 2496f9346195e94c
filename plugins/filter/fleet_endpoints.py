# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_endpoints
short_description: Tell where the proxies of a hypervisor can be reached
version_added: 0.1.0
author:
  - egress.kvm2 contributors (@egress-kvm2)
description:
  - Makes the entries of the fact C(kvm2_fleet_endpoints) for one hypervisor. They hold no password.
positional: hypervisor, instances, checks, family
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
  instances:
    description:
      - The C(instances) that M(egress.kvm2.kvm2_domain) returned.
    type: list
    elements: dict
    required: true
  checks:
    description:
      - The C(proxies) that M(egress.kvm2.kvm2_proxy_check) returned.
    type: list
    elements: dict
    default: []
  family:
    description:
      - The kind of address that the proxies are reached by.
    type: str
    choices: [ipv4, ipv6]
    default: ipv4
seealso:
  - plugin: egress.kvm2.fleet_table
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Show where the proxies of hv1 are
  ansible.builtin.debug:
    msg: "{{ kvm2_fleet | egress.kvm2.fleet | egress.kvm2.fleet_endpoints('hv1', domains.instances, check.proxies) }}"
"""

RETURN = r"""
_value:
  description: The endpoints, one for each instance.
  type: list
  elements: dict
  contains:
    name:
      description: The name of the instance.
      type: str
      returned: always
    fleet:
      description: The name of the fleet.
      type: str
      returned: always
    hypervisor:
      description: The name of the hypervisor.
      type: str
      returned: always
    address:
      description: The address of the instance, as its definition or else its hypervisor tells, or V(null) while it has none.
      type: str
      returned: always
    port:
      description: The port of the proxy.
      type: int
      returned: always
    scheme:
      description: How the proxy is spoken to, V(http) or V(socks5).
      type: str
      returned: always
    engine:
      description: The program that the proxy is.
      type: str
      returned: always
    url:
      description: The URL of the proxy, without user and password, or V(null) while it has no address.
      type: str
      returned: always
    state:
      description: The state of the instance's domain.
      type: str
      returned: always
    egress_address:
      description: The address that the proxy was seen by, or V(null) where that is not known.
      type: str
      returned: always
"""

from ansible_collections.egress.kvm2.plugins.module_utils._policy import endpoints


class FilterModule:
    def filters(self):
        return {"fleet_endpoints": endpoints.endpoints}
