# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_problems
short_description: List what is wrong with a fleet definition
version_added: 0.1.0
author:
  - egress.kvm2 contributors (@egress-kvm2)
description:
  - Checks a definition as P(egress.kvm2.fleet#filter) does and returns the problems in place of failing, so that a playbook can show them
    in one message of its own.
requirements:
  - jsonschema 3.0 or newer for the Python that runs Ansible
options:
  _input:
    description:
      - The definition, as the variable C(kvm2_fleet) holds it.
    type: dict
    required: true
seealso:
  - plugin: egress.kvm2.fleet
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Stop where the definition is not valid
  ansible.builtin.assert:
    that: kvm2_fleet | egress.kvm2.fleet_problems | length == 0
    fail_msg: "{{ kvm2_fleet | egress.kvm2.fleet_problems }}"
"""

RETURN = r"""
_value:
  description: The problems, each with its path in the definition and with what is allowed. Empty where the definition is valid.
  type: list
  elements: str
"""

from ansible_collections.egress.kvm2.plugins.filter.fleet import find_problems


class FilterModule:
    def filters(self):
        return {"fleet_problems": find_problems}
