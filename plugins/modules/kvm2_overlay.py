#!/usr/bin/python
# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kvm2_overlay
short_description: Keep one qcow2 overlay per instance on a base image
version_added: 0.1.0
author:
  - egress.kvm2 contributors (@egress-kvm2)
description:
  - Makes sure that each of O(instances) has a qcow2 volume that is backed by a published base.
  - The overlay of an instance is the one that its domain uses. It is never touched except to grow. Where there is no domain, a young
    overlay that nothing uses and no guest has written to is taken; otherwise a new one is made.
  - Under a managed save an overlay does not grow, since the saved guest knows it as large as it is. That is reported as drift.
  - Works on a whole set in one call. The failure of one instance does not stop the others; the module then fails at the end with the
    outcome of each.
extends_documentation_fragment:
  - egress.kvm2.connection
  - egress.kvm2.attributes
options:
  fleet:
    description:
      - The name of the fleet that the instances belong to. Lower-case letters, digits and dashes, at most 32 characters.
    type: str
    required: true
  pool:
    description:
      - The storage pool, which has to be active and of the type C(dir), C(fs) or C(netfs).
    type: str
    default: default
  base:
    description:
      - The volume name of a published base in O(pool), as RV(egress.kvm2.kvm2_image#module:image.base) returns it.
      - Required with O(state=present).
    type: str
  capacity:
    description:
      - The size of the disk that the guests see, as a size with a unit such as V(4GiB). Without it the base's virtual size.
      - Never smaller than the base's virtual size. An overlay that is there grows where it is smaller, and never shrinks.
    type: str
  instances:
    description:
      - The instances. An empty list does nothing.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description:
          - The name of the instance. Lower-case letters, digits and dashes, at most 32 characters.
        type: str
        required: true
      uid:
        description:
          - The UUID of the instance. By default it is derived from O(fleet) and the name.
        type: str
      capacity:
        description:
          - O(capacity) for this instance alone.
        type: str
  state:
    description:
      - V(present) makes sure that the overlays are there.
      - V(absent) deletes the overlays of these instances in O(pool), whatever their age. One that something else uses stays and is a failure that
        names its user.
      - Those of an instance that has a domain all stay, and it fails with a conflict, since a disk may be detached from its domain for a moment only.
        M(egress.kvm2.kvm2_domain) with O(egress.kvm2.kvm2_domain#module:state=absent) deletes an instance with its overlays, and
        M(egress.kvm2.kvm2_gc) those that an instance has no use for any more. Only a domain whose deletion was declared does not count.
    type: str
    choices: [present, absent]
    default: present
  on_stale:
    description:
      - What happens where an instance has no domain, and an overlay that a guest has written to is there.
      - V(new) leaves it to the operator or the collector and makes a new one. V(fail) refuses.
    type: str
    choices: [new, fail]
    default: new
  replace:
    description:
      - Where the overlay in use is backed by another base than O(base), or its file has vanished, V(true) prepares a new overlay beside
        it, for M(egress.kvm2.kvm2_domain) with O(egress.kvm2.kvm2_domain#module:on_change=replace) to switch to. One that was prepared
        within the last ten minutes is taken. Without O(capacity) it is as large as the one in use, but never smaller than the base.
      - With V(false) the difference is reported as drift.
    type: bool
    default: false
seealso:
  - module: egress.kvm2.kvm2_image
  - module: egress.kvm2.kvm2_domain
"""

EXAMPLES = r"""
- name: Publish the base
  egress.kvm2.kvm2_image:
    key: debian-12
    src: /srv/images/debian-12.qcow2
  register: base

- name: Keep an overlay for each of two instances
  egress.kvm2.kvm2_overlay:
    fleet: edge
    base: "{{ base.image.base }}"
    capacity: 4GiB
    instances:
      - name: proxy-01
      - name: proxy-02
        capacity: 8GiB

- name: Prepare what instances on an older base are switched to
  egress.kvm2.kvm2_overlay:
    fleet: edge
    base: "{{ base.image.base }}"
    replace: true
    instances:
      - name: proxy-01
      - name: proxy-02

- name: Delete what is left of an instance that has no domain any more
  egress.kvm2.kvm2_overlay:
    fleet: edge
    state: absent
    instances:
      - name: proxy-02
"""

RETURN = r"""
overlays:
  description: The overlays of the instances that did not fail, in the order of O(instances).
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: The name of the instance.
      returned: always
      type: str
      sample: proxy-01
    uid:
      description: The UUID of the instance.
      returned: always
      type: str
      sample: 0b0d2f1c-2a4d-5f2e-9c56-2f0c6f2f7f11
    overlay:
      description: The volume's name. In check mode the part before the extension is V(xxxxxx) where the overlay is not there yet.
      returned: always
      type: str
      sample: kvm2-edge.proxy-01-0b0d2f1c-2a4d-5f2e-9c56-2f0c6f2f7f11-a1b2c3.qcow2
    path:
      description: The volume's path on the hypervisor.
      returned: always
      type: str
      sample: /var/lib/libvirt/images/kvm2-edge.proxy-01-0b0d2f1c-2a4d-5f2e-9c56-2f0c6f2f7f11-a1b2c3.qcow2
    base:
      description: The volume name of the base that the overlay is backed by.
      returned: always
      type: str
      sample: kvm2-base-debian-12-0f3a9b1c2d4e5f60-a1b2c3.qcow2
    capacity:
      description: The size in bytes of the disk that the guest sees.
      returned: always
      type: int
      sample: 4294967296
    status:
      description:
        - V(present) says that it is the one that the domain uses, V(missing) that its file has gone, V(taken) that an unused young one was
          there, V(created) that it was made, V(absent) that nothing of it is left.
      returned: always
      type: str
      sample: created
    drift:
      description: How the overlay differs from what is asked for and was left as it is.
      returned: always
      type: list
      elements: dict
      contains:
        field:
          description: What differs.
          returned: always
          type: str
          sample: base
        have:
          description: What it is.
          returned: always
          type: raw
          sample: kvm2-base-debian-12-0f3a9b1c2d4e5f60-a1b2c3.qcow2
        want:
          description: What is declared.
          returned: always
          type: raw
          sample: kvm2-base-debian-12-9b1c2d4e5f600f3a-d4e5f6.qcow2
        needs:
          description: What would let it follow, such as V(replace).
          returned: always
          type: str
          sample: replace
    actions:
      description: What was done for this instance, or would be done in check mode, in order.
      returned: always
      type: list
      elements: dict
      sample: []
actions:
  description: What was done, or would be done in check mode, in order.
  returned: always
  type: list
  elements: dict
  sample: []
errors:
  description: Every failure, each like RV(error) and with the C(item) that it belongs to.
  returned: failure
  type: list
  elements: dict
  sample: []
error:
  description: Why the module failed, the first failure where there are several.
  returned: failure
  type: dict
  contains:
    kind:
      description:
        - V(transient) says that trying again can help, V(permanent) that the input or the host has to change, V(quota) that there is no
          space, V(conflict) that the object is somebody else's. Of several failures it is V(transient) only where each one is.
      returned: always
      type: str
      sample: permanent
    code:
      description: The error number of libvirt, or V(null).
      returned: always
      type: int
      sample: null
    act:
      description: What was tried.
      returned: always
      type: str
      sample: create
    object:
      description: On what.
      returned: always
      type: str
      sample: overlay of edge.proxy-01
    hint:
      description: What to do about it, may be empty.
      returned: always
      type: str
      sample: Ask for at least 3 GiB.
    message:
      description: All of it as a sentence.
      returned: always
      type: str
      sample: "Failed to create overlay of edge.proxy-01: 2 GiB are less than the base's 3 GiB. Ask for at least 3 GiB."
"""

from ansible_collections.egress.kvm2.plugins.module_utils._entry.run import run_module
from ansible_collections.egress.kvm2.plugins.module_utils._services.overlay import OverlayService

ARGUMENTS = {
    "fleet": {"type": "str", "required": True},
    "pool": {"type": "str", "default": "default"},
    "base": {"type": "str"},
    "capacity": {"type": "str"},
    "instances": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "name": {"type": "str", "required": True},
            "uid": {"type": "str"},
            "capacity": {"type": "str"},
        },
    },
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "on_stale": {"type": "str", "choices": ["new", "fail"], "default": "new"},
    "replace": {"type": "bool", "default": False},
}


def main():
    run_module(OverlayService, ARGUMENTS, required_if=[("state", "present", ("base",))])


if __name__ == "__main__":
    main()
