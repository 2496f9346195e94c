# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: transient
short_description: Could trying again help?
version_added: 0.1.0
author:
  - egress.kvm2 contributors (@egress-kvm2)
description:
  - Tells whether a module of this collection failed for a reason that may pass by itself. The result of a module that succeeded, or that
    failed for another reason, is not transient.
  - Of a loop it looks at every failure. Only where each one is transient, the whole is.
options:
  _input:
    description:
      - The registered result of a module of this collection, or of a loop over one.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Publish a base, again while its server does not answer
  egress.kvm2.kvm2_image:
    key: debian-12
    url: https://images.example.com/debian-12-genericcloud-amd64.qcow2
  register: base
  until: base is not egress.kvm2.transient
  retries: 3
  delay: 10
"""

RETURN = r"""
_value:
  description: Whether the failure is transient.
  type: bool
"""

from collections.abc import Mapping, Sequence

from ansible.errors import AnsibleFilterError


def transient(result):
    if not isinstance(result, Mapping):
        raise AnsibleFilterError(f"The test transient looks at a registered result, not at {type(result).__name__}.")
    if isinstance(result.get("results"), Sequence):
        failures = [one for one in result["results"] if isinstance(one, Mapping) and (one.get("failed") or "error" in one)]
        return bool(failures) and all(_is_transient(one) for one in failures)
    return _is_transient(result)


def _is_transient(result):
    error = result.get("error")
    return isinstance(error, Mapping) and error.get("kind") == "transient"


class TestModule:
    def tests(self):
        return {"transient": transient}
