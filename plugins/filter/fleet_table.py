# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_table
short_description: Show endpoints as a table
version_added: 0.1.0
author:
  - egress.kvm2 contributors (@egress-kvm2)
description:
  - Returns lines of equal columns with instance, hypervisor, address, proxy URL and state.
options:
  _input:
    description:
      - Endpoints as the filter P(egress.kvm2.fleet_endpoints#filter) returns them.
    type: list
    elements: dict
    required: true
seealso:
  - plugin: egress.kvm2.fleet_endpoints
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Show the proxies of the run
  ansible.builtin.debug:
    msg: "{{ kvm2_fleet_endpoints | egress.kvm2.fleet_table }}"
"""

RETURN = r"""
_value:
  description: The lines of the table, its head first.
  type: list
  elements: str
"""

from ansible_collections.egress.kvm2.plugins.module_utils._policy import endpoints


class FilterModule:
    def filters(self):
        return {"fleet_table": endpoints.table}
