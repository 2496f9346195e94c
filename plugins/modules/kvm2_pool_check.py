#!/usr/bin/python
# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kvm2_pool_check
short_description: Check a hypervisor's space and abilities before anything is created
version_added: 0.1.0
author:
  - egress.kvm2 contributors (@egress-kvm2)
description:
  - Tells whether a storage pool has room for what is planned, and whether the hypervisor can run it. Reports every problem at once, each
    with what to do about it.
  - Fails for what O(need), O(reserve), O(overcommit_limit) and O(require) ask, with all of it at once, and where the pool cannot be used.
    Where O(need) says that instances are about to be made, it also fails for what would leave them broken, such as a folder that QEMU's user
    may not enter, or a missing Python library. Everything else that it finds is a warning.
  - Changes nothing. With O(refresh=false) not even libvirt's view of the pool.
extends_documentation_fragment:
  - egress.kvm2.connection
  - egress.kvm2.attributes
attributes:
  diff_mode:
    support: none
    details:
      - There is nothing that changes.
options:
  pool:
    description:
      - The storage pool. It has to be active and of the type C(dir), C(fs) or C(netfs), else a check fails.
    type: str
    default: default
  refresh:
    description:
      - Whether the pool is refreshed first, so that its figures are current. Where the module sees the pool's folder, the figures of its
        filesystem are current in any case.
    type: bool
    default: true
  reserve:
    description:
      - What has to stay free after all, as a size such as V(10GiB) or as a share of the pool such as V(5%).
    type: str
    default: 5%
  warn_reserve:
    description:
      - Warns where less than this would stay free, as a size or a share like O(reserve), which fails.
    type: str
    default: 10%
  overcommit_ratio:
    description:
      - Warns where the disks, all written full, would take more than this many times what the pool can hold. What the filesystem keeps for
        root is not counted as a part of that.
    type: float
    default: 1.0
  overcommit_limit:
    description:
      - Like O(overcommit_ratio), but fails. By default it never does.
    type: float
  memory_overcommit_ratio:
    description:
      - How many times the hypervisor's memory may be given to guests, all running ones together. Fails where O(require.memory) asks for more,
        warns where the guests that run have more already.
    type: float
    default: 1.0
  vcpu_overcommit_ratio:
    description:
      - How many virtual processors there may be for each processor of the hypervisor. Fails where O(require.vcpus_total) asks for more, warns
        where the guests that run have more already.
    type: float
    default: 16.0
  controller_time:
    description:
      - The time on the controller, in seconds since 1970 or like V(2030-01-31T12:00:00Z), to be compared with the hypervisor's clock. The
        template C(now\(fmt='%s'\)) gives it.
    type: str
  max_skew:
    description:
      - Warns where the clocks are further apart than this duration. Keep it longer than it takes to reach the hypervisor.
    type: str
    default: 60s
  need:
    description:
      - The room that is about to be needed. The parts are added up.
    type: dict
    suboptions:
      bytes:
        description:
          - A fixed amount, as a size with a unit such as V(20GiB).
        type: str
      instances:
        description:
          - A number of new instances, of O(need.capacity) each. Every one is counted with all of it, though its overlay is small at first, so
            that each can be written full; see O(need.filled).
        type: int
      capacity:
        description:
          - The size of the disk of each of O(need.instances), as a size with a unit.
        type: str
      image:
        description:
          - The size of the image that is about to be fetched, as a size with a unit.
        type: str
      key:
        description:
          - The name of that image. Where a base of this name is published in the pool, O(need.image) is not counted.
        type: str
      checksum:
        description:
          - What M(egress.kvm2.kvm2_image) gets as O(egress.kvm2.kvm2_image#module:checksum). Then only a base that was published with it counts
            as there.
        type: str
      filled:
        description:
          - The share of its capacity that each new disk is counted with. With less than V(100%) guests share room that each could fill alone;
            what is left out then counts as growth.
        type: str
        default: 100%
      fleet:
        description:
          - The name of the fleet that O(need.overlays) belong to.
        type: str
      overlays:
        description:
          - The instances of O(need.fleet) that are going to have an overlay in the pool. One that has an overlay already is counted with
            what that lacks in capacity, so that a converged hypervisor needs nothing. An old overlay that no domain uses does not count,
            since a new one is made beside it.
        type: list
        elements: dict
        suboptions:
          name:
            description:
              - The name of the instance.
            type: str
            required: true
          uid:
            description:
              - The UUID of the instance. By default it is derived from O(need.fleet) and the name.
            type: str
          capacity:
            description:
              - The size of its disk, as a size with a unit.
            type: str
            required: true
  require:
    description:
      - What the hypervisor has to offer.
    type: dict
    suboptions:
      virt_type:
        description:
          - V(kvm) demands acceleration, V(qemu) emulation; V(auto) is content with either.
        type: str
        choices: [auto, kvm, qemu]
      machine:
        description:
          - A machine type.
        type: str
      firmware:
        description:
          - A firmware.
        type: str
        choices: [bios, efi]
      cpu_mode:
        description:
          - A processor mode.
        type: str
        choices: [host-model, host-passthrough, maximum]
      arch:
        description:
          - An architecture such as V(x86_64).
        type: str
      networks:
        description:
          - Libvirt networks that have to be there and active. One that does not start together with the hypervisor is a warning.
        type: list
        elements: str
      bridges:
        description:
          - Bridges that have to be there and up. They are not seen over a connection to another machine.
        type: list
        elements: str
      memory:
        description:
          - How much memory the instances take together, as a size with a unit. The hypervisor must have it beside what other running domains
            take; see O(memory_overcommit_ratio). What O(need.overlays) have already, running, is not asked for again.
        type: str
      vcpus:
        description:
          - How many processors a guest must be able to have.
        type: int
      vcpus_total:
        description:
          - How many virtual processors the instances have together; see O(vcpu_overcommit_ratio).
        type: int
  fail:
    description:
      - Whether the module fails where a check does. With V(false) the outcome is only returned.
    type: bool
    default: true
seealso:
  - module: egress.kvm2.kvm2_image
  - module: egress.kvm2.kvm2_domain
"""

EXAMPLES = r"""
- name: Check that ten proxies fit
  egress.kvm2.kvm2_pool_check:
    need:
      instances: 10
      capacity: 4GiB
      image: 1GiB
    require:
      virt_type: kvm
      networks: [default]

- name: Check that a fleet fits, thinly provisioned
  egress.kvm2.kvm2_pool_check:
    reserve: 10GiB
    overcommit_limit: 3.0
    controller_time: "{{ now(fmt='%s') }}"
    need:
      fleet: edge
      filled: 40%
      image: 1GiB
      key: debian-12
      overlays:
        - {name: proxy-01, capacity: 20GiB}
        - {name: proxy-02, capacity: 20GiB}
    require:
      memory: 1GiB
      vcpus: 1
      vcpus_total: 2
  register: checked

- name: Show the table
  ansible.builtin.debug:
    var: checked.report

- name: Look at the figures only
  egress.kvm2.kvm2_pool_check:
    fail: false
  register: pool

- name: Show them
  ansible.builtin.debug:
    var: pool.space
"""

RETURN = r"""
space:
  description: The pool's figures.
  returned: when the pool could be read
  type: dict
  contains:
    pool:
      description: The pool's name.
      returned: always
      type: str
      sample: default
    path:
      description: The pool's folder.
      returned: always
      type: str
      sample: /var/lib/libvirt/images
    capacity:
      description: The size of the pool in bytes.
      returned: always
      type: int
      sample: 107374182400
    used:
      description: What is taken of it, in bytes.
      returned: always
      type: int
      sample: 16106127360
    available:
      description: What guests can really use, in bytes.
      returned: always
      type: int
      sample: 85899345920
    available_source:
      description:
        - How RV(space.available) was got. V(filesystem) where the module sees the pool's folder; it is then what the filesystem gives to a user
          who is not root. V(libvirt) where it does not; it is then libvirt's figure without the reserve.
      returned: always
      type: str
      sample: filesystem
    growth:
      description: What the overlays in the pool may still grow by, in bytes.
      returned: always
      type: int
      sample: 4294967296
    growth_beside:
      description: What else may grow on the same filesystem, in bytes; overlays in other pools, and other disks that domains write to.
      returned: always
      type: int
      sample: 0
    needed:
      description: What O(need) adds up to, in bytes.
      returned: always
      type: int
      sample: 44023414784
    later:
      description: What O(need.filled) leaves out of that, in bytes.
      returned: always
      type: int
      sample: 0
    reserve:
      description: What has to stay free, in bytes.
      returned: always
      type: int
      sample: 5368709120
    warn_reserve:
      description: What should stay free, in bytes.
      returned: always
      type: int
      sample: 10737418240
    room:
      description: What may still be taken with the reserve kept, in bytes. Negative where less than that is free.
      returned: always
      type: int
      sample: 80530636800
    overcommit:
      description: What the disks would take when written full, as a share of what the pool can hold.
      returned: always
      type: float
      sample: 0.62
    inodes_available:
      description: How many files more the filesystem can have. V(null) where that cannot be told.
      returned: always
      type: int
      sample: 6291456
    inodes_needed:
      description: How many files O(need) makes.
      returned: always
      type: int
      sample: 22
    sources:
      description: How each of these figures was got, by its name.
      returned: always
      type: dict
      sample:
        reserve: 5 % of the capacity
        needed: 40.0 GiB for 10 new disks; 1.0 GiB for the image
instances:
  description: The instances on this hypervisor that carry the mark of the fleet O(need.fleet), by their names, wherever they are declared to be.
  returned: with O(need.fleet)
  type: list
  elements: dict
  contains:
    name:
      description: The name of the instance.
      returned: always
      type: str
      sample: proxy-03
    uid:
      description: Its uid.
      returned: always
      type: str
      sample: bdcf2b7e-b780-5ade-85c5-cb0dd262285e
    state:
      description: The state of its domain as libvirt has it.
      returned: always
      type: str
      sample: running
checks:
  description: The outcome of each check.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: What was checked.
      returned: always
      type: str
      sample: network default
    status:
      description: The outcome, V(ok), V(warn), V(fail), or V(skipped) where it cannot be looked at.
      returned: always
      type: str
      sample: fail
    message:
      description: What was found.
      returned: always
      type: str
      sample: The network default is not active.
    hint:
      description: What to do about it, empty where there is nothing to do.
      returned: always
      type: str
      sample: "Start it: virsh net-start default."
report:
  description: The same as RV(checks), as the lines of a table for people.
  returned: always
  type: list
  elements: str
  sample:
    - "OK    space in pool default  41.0 GiB are needed, 80.0 GiB are free (as its filesystem says), of which 5.0 GiB have to stay free."
    - "FAIL  network default        The network default is not active."
    - "                             -> Start it: virsh net-start default."
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
      sample: quota
    code:
      description: The error number of libvirt, or V(null).
      returned: always
      type: int
      sample: null
    act:
      description: What was tried.
      returned: always
      type: str
      sample: check
    object:
      description: On what.
      returned: always
      type: str
      sample: pool default
    hint:
      description: What to do about it, may be empty.
      returned: always
      type: str
      sample: Free some space or ask for less.
    message:
      description: All of it as a sentence.
      returned: always
      type: str
      sample: "Failed to check pool default: 44023414784 bytes are needed and 1073741824 are free. Free some space or ask for less."
"""

from ansible_collections.egress.kvm2.plugins.module_utils._entry.run import run_module
from ansible_collections.egress.kvm2.plugins.module_utils._services.pool_check import PoolCheckService

ARGUMENTS = {
    "pool": {"type": "str", "default": "default"},
    "refresh": {"type": "bool", "default": True},
    "reserve": {"type": "str", "default": "5%"},
    "warn_reserve": {"type": "str", "default": "10%"},
    "overcommit_ratio": {"type": "float", "default": 1.0},
    "overcommit_limit": {"type": "float"},
    "memory_overcommit_ratio": {"type": "float", "default": 1.0},
    "vcpu_overcommit_ratio": {"type": "float", "default": 16.0},
    "controller_time": {"type": "str"},
    "max_skew": {"type": "str", "default": "60s"},
    "need": {
        "type": "dict",
        "options": {
            "bytes": {"type": "str"},
            "instances": {"type": "int"},
            "capacity": {"type": "str"},
            "image": {"type": "str"},
            "key": {"type": "str", "no_log": False},
            "checksum": {"type": "str"},
            "filled": {"type": "str", "default": "100%"},
            "fleet": {"type": "str"},
            "overlays": {
                "type": "list",
                "elements": "dict",
                "options": {
                    "name": {"type": "str", "required": True},
                    "uid": {"type": "str"},
                    "capacity": {"type": "str", "required": True},
                },
            },
        },
        "required_together": [("instances", "capacity")],
        "required_by": {"overlays": ("fleet",), "key": ("image",), "checksum": ("key",)},
    },
    "require": {
        "type": "dict",
        "options": {
            "virt_type": {"type": "str", "choices": ["auto", "kvm", "qemu"]},
            "machine": {"type": "str"},
            "firmware": {"type": "str", "choices": ["bios", "efi"]},
            "cpu_mode": {"type": "str", "choices": ["host-model", "host-passthrough", "maximum"]},
            "arch": {"type": "str"},
            "networks": {"type": "list", "elements": "str"},
            "bridges": {"type": "list", "elements": "str"},
            "memory": {"type": "str"},
            "vcpus": {"type": "int"},
            "vcpus_total": {"type": "int"},
        },
    },
    "fail": {"type": "bool", "default": True},
}


def main():
    run_module(PoolCheckService, ARGUMENTS)


if __name__ == "__main__":
    main()
