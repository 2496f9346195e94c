# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_proxies
short_description: Take the proxies that can be asked out of endpoints
version_added: 0.1.0
author:
  - egress.kvm2 contributors (@egress-kvm2)
description:
  - Returns the endpoints that have an address, in the form that M(egress.kvm2.kvm2_proxy_check) takes.
  - With O(definition), proxies that serve nobody are left out. A proxy with a user is there twice, with the right password and with a
    wrong one that it has to refuse.
positional: definition
options:
  _input:
    description:
      - Endpoints as the filter P(egress.kvm2.fleet_endpoints#filter) returns them.
    type: list
    elements: dict
    required: true
  definition:
    description:
      - The definition of the fleet, as the variable C(kvm2_fleet) holds it. The result then holds passwords, so it does not belong into a
        fact or a message.
    type: dict
seealso:
  - plugin: egress.kvm2.fleet_endpoints
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Ask every proxy of the run
  egress.kvm2.kvm2_proxy_check:
    url: http://egress.example.com/whoami
    proxies: "{{ kvm2_fleet_endpoints | egress.kvm2.fleet_proxies(kvm2_fleet) }}"
"""

RETURN = r"""
_value:
  description: The proxies, each with C(name), C(address), C(port) and C(scheme), and with C(user), C(password) and C(expect) where they count.
  type: list
  elements: dict
"""

from ansible_collections.egress.kvm2.plugins.filter.fleet import valid
from ansible_collections.egress.kvm2.plugins.module_utils._policy import endpoints


def proxies_filter(entries, definition=None):
    return endpoints.proxies(entries, None if definition is None else valid(definition))


class FilterModule:
    def filters(self):
        return {"fleet_proxies": proxies_filter}
