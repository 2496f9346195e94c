# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_guests
short_description: Make the guests of one hypervisor's share of a fleet
version_added: 0.1.0
author:
  - egress.kvm2 contributors (@egress-kvm2)
description:
  - Returns the instances that a hypervisor gets, in the form that M(egress.kvm2.kvm2_domain) takes, each with the cloud-init user data and
    network configuration of its proxy.
  - The result holds passwords, so it does not belong into a fact or a message.
positional: hypervisor, overlays
requirements:
  - jsonschema 3.0 or newer for the Python that runs Ansible
options:
  _input:
    description:
      - The definition, as the variable C(kvm2_fleet) holds it.
    type: dict
    required: true
  hypervisor:
    description:
      - The name of the hypervisor in the definition.
    type: str
    required: true
  overlays:
    description:
      - The C(overlays) that M(egress.kvm2.kvm2_overlay) returned. The instances then name theirs.
    type: list
    elements: dict
    default: []
  family:
    description:
      - The kind of address that the proxies are reached by. V(ipv6) asks DHCP servers for one of that kind too.
    type: str
    choices: [ipv4, ipv6]
    default: ipv4
  packages:
    description:
      - The packages that the guests install. By default the one of each instance's engine.
    type: list
    elements: str
  cloud_config:
    description:
      - More cloud-init configuration. Mappings are merged key by key and lists are appended.
    type: dict
    default: {}
  connect_ports:
    description:
      - The ports that C(CONNECT) reaches, of tinyproxy and squid.
    type: list
    elements: int
    default: [443, 563]
  max_clients:
    description:
      - How many connections tinyproxy serves at the same time.
    type: int
    default: 100
  client_timeout:
    description:
      - After how many seconds without traffic a connection is closed.
    type: int
    default: 600
seealso:
  - plugin: egress.kvm2.fleet_share
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Keep the instances of hv1
  egress.kvm2.kvm2_domain:
    fleet: "{{ kvm2_fleet.name }}"
    networks: "{{ (kvm2_fleet | egress.kvm2.fleet | egress.kvm2.fleet_share('hv1')).interfaces }}"
    instances: "{{ kvm2_fleet | egress.kvm2.fleet_guests('hv1', overlays.overlays) }}"
"""

RETURN = r"""
_value:
  description: The instances, each with C(name), C(uid), C(memory), C(vcpus), C(overlay), C(user_data) and C(network_config).
  type: list
  elements: dict
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.egress.kvm2.plugins.filter.fleet import valid
from ansible_collections.egress.kvm2.plugins.module_utils._policy import fleet_guests
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error


def guests_filter(value, hypervisor, overlays=(), family="ipv4", packages=None, cloud_config=None, connect_ports=(443, 563), max_clients=100,
                  client_timeout=600):
    definition = valid(value)
    try:
        return fleet_guests.guests(
            definition, str(hypervisor), overlays, family, packages, cloud_config, connect_ports=tuple(int(port) for port in connect_ports),
            max_clients=int(max_clients), client_timeout=int(client_timeout))
    except Kvm2Error as error:
        raise AnsibleFilterError(error.message) from error


class FilterModule:
    def filters(self):
        return {"fleet_guests": guests_filter}
