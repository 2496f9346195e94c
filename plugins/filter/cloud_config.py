# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: cloud_config
short_description: Render a mapping as cloud-init user data
version_added: 0.1.0
author:
  - egress.kvm2 contributors (@egress-kvm2)
description:
  - Returns C(#cloud-config) and the mapping as YAML, with the keys in their order and each value on a line of its own however long it is.
options:
  _input:
    description:
      - The cloud-init configuration.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show user data that installs a package
  ansible.builtin.debug:
    msg: "{{ {'packages': ['tinyproxy']} | egress.kvm2.cloud_config }}"
"""

RETURN = r"""
_value:
  description: The user data.
  type: str
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.egress.kvm2.plugins.module_utils._policy import cloud_config
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error


def cloud_config_filter(value):
    try:
        return cloud_config.render(value)
    except Kvm2Error as error:
        raise AnsibleFilterError(error.message) from error


class FilterModule:
    def filters(self):
        return {"cloud_config": cloud_config_filter}
