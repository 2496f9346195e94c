# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: fleet
short_description: Check a fleet definition, fill in its defaults and place its instances
version_added: 0.1.0
author:
  - egress.kvm2 contributors (@egress-kvm2)
description:
  - Checks the definition against the published JSON Schema C(schemas/fleet.schema.json) of this collection, and what a schema cannot say.
    Every problem is reported, with its path in the definition and with what is allowed.
  - The result holds no password and may be kept as a fact.
  - Places the instances on the hypervisors that the definition names. The inventory is not looked at, so every run places alike.
requirements:
  - jsonschema 3.0 or newer for the Python that runs Ansible
options:
  _input:
    description:
      - The definition, as the variable C(kvm2_fleet) holds it.
    type: dict
    required: true
seealso:
  - plugin: egress.kvm2.fleet_share
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Show which proxies the hypervisor hv1 gets
  ansible.builtin.debug:
    msg: "{{ (kvm2_fleet | egress.kvm2.fleet).placement.hv1 }}"
  vars:
    kvm2_fleet:
      name: edge
      image: {key: debian-12, src: /srv/images/debian-12.qcow2}
      hypervisors: [hv1, hv2]
      instances: {count: 4}
"""

RETURN = r"""
_value:
  description: The definition with every default in its place.
  type: dict
  contains:
    name:
      description: The name of the fleet.
      type: str
      returned: always
    image:
      description: The image, with C(key), C(url) or C(src), C(checksum) where one is given, and C(format).
      type: dict
      returned: always
    pool:
      description: The storage pool.
      type: str
      returned: always
    networks:
      description: The interfaces of each instance, with C(subnet), C(gateway) and C(first) where the definition has them.
      type: list
      elements: dict
      returned: always
    proxy:
      description: The fleet's own proxy, with C(engine), C(port), C(allow), and C(user) where it has one.
      type: dict
      returned: always
    dns:
      description: The name servers, with C(servers) and C(search) where they are given.
      type: dict
      returned: always
    authorized_keys:
      description: The SSH keys that may log in to the guests.
      type: list
      elements: str
      returned: always
    hypervisors:
      description: The weight of each hypervisor by its name.
      type: dict
      returned: always
    instances:
      description:
        - The instances, each with C(name), C(uid), C(memory), C(vcpus), C(disk), C(hypervisor), C(proxy), and C(addresses), which has its own
          address on each network, or V(null) where a DHCP server gives one.
      type: list
      elements: dict
      returned: always
    placement:
      description: The names of the instances of each hypervisor.
      type: dict
      returned: always
    warnings:
      description: What is allowed and probably not meant. It is also shown as warnings of the run.
      type: list
      elements: str
      returned: always
"""

import json
import os

from ansible.errors import AnsibleFilterError
from ansible.utils.display import Display

from ansible_collections.egress.kvm2.plugins.module_utils._policy import fleet, schema_text
from ansible_collections.egress.kvm2.plugins.module_utils._policy.cloud_config import plain
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error

try:
    import jsonschema
except ImportError:
    jsonschema = None

SCHEMA = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "schemas", "fleet.schema.json")


def find_problems(value):
    """What is wrong with a definition, as a list of texts."""
    if jsonschema is None:
        raise AnsibleFilterError(
            "Failed to check the fleet definition: jsonschema cannot be imported. Install it for the Python that runs Ansible.")
    try:
        definition = plain(value, schema_text.VARIABLE)
    except Kvm2Error as error:
        return [error.message]
    with open(SCHEMA, encoding="utf-8") as handle:
        validator = jsonschema.Draft7Validator(json.load(handle))
    return schema_text.problems(validator.iter_errors({schema_text.VARIABLE: definition})) or fleet.problems(definition)


def valid(value):
    """The definition as plain values; fails with every problem where there are some. No message shows a password."""
    problems = find_problems(value)
    if problems:
        lines = "".join(f"\n- {text}" for text in problems)
        raise AnsibleFilterError(f"The fleet definition is not valid:{lines}")
    return plain(value, schema_text.VARIABLE)


def fleet_filter(value):
    complete = fleet.normalise(valid(value))
    for text in complete["warnings"]:
        Display().warning(text)
    return complete


class FilterModule:
    def filters(self):
        return {"fleet": fleet_filter}
