# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_drift
short_description: Say how instances differ from what is declared
version_added: 0.1.0
author:
  - egress.kvm2 contributors (@egress-kvm2)
description:
  - Returns a line for each difference that M(egress.kvm2.kvm2_domain) found and left as it is.
options:
  _input:
    description:
      - The C(instances) that M(egress.kvm2.kvm2_domain) returned.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show what waits for a restart or a replacement
  ansible.builtin.debug:
    msg: "{{ domains.instances | egress.kvm2.fleet_drift }}"
"""

RETURN = r"""
_value:
  description: The lines, empty where everything is as declared.
  type: list
  elements: str
"""

from ansible_collections.egress.kvm2.plugins.module_utils._policy import endpoints


class FilterModule:
    def filters(self):
        return {"fleet_drift": endpoints.drift}
