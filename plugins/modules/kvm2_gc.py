#!/usr/bin/python
# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kvm2_gc
short_description: Collect instances, volumes and bases of a fleet that should not exist
version_added: 0.1.0
author:
  - egress.kvm2 contributors (@egress-kvm2)
description:
  - Removes what a fleet left behind on a hypervisor. These are instances that are not in the live set, volumes that belong to no domain,
    and bases that no overlay uses.
  - Only domains that carry exactly the mark of O(fleet) are considered, and only volumes whose names could have been made by this
    collection for it. Everything else is never touched.
  - An instance is live when its uid or its name is in O(live). One that carries a hold, or whose mark names another O(host), is kept.
  - Each object is reported with the reason why it was collected, kept or left alone. Whatever could not be looked into, such as an inactive
    pool or one with a running job, is named in RV(blocked), and everything that it could reference stays.
  - A time stamp in the future never makes anything old. A mark that is up to five minutes ahead counts as new; one that is further ahead
    is reported.
  - Every deletion gives one line in the system log of the machine the module runs on, with the user, the object and the reason. The same
    goes for the deletions of the other modules. Over a remote O(uri) that machine is not the hypervisor.
extends_documentation_fragment:
  - egress.kvm2.connection
  - egress.kvm2.attributes
options:
  fleet:
    description:
      - The name of the fleet. Lower-case letters, digits and dashes, at most 32 characters.
    type: str
    required: true
  host:
    description:
      - The hypervisor's name in the fleet definition. Marks that name another one are reported and kept. Without it every mark of the
        fleet is considered.
    type: str
  live:
    description:
      - The names or uids of every instance of the fleet, on whichever hypervisor it is.
    type: list
    elements: str
    required: true
  allow_empty_live:
    description:
      - An empty O(live) is refused unless this is V(true), since it asks for the whole fleet to be removed.
    type: bool
    default: false
  min_age:
    description:
      - Nothing younger is collected, as a duration. The age of an instance is that of its mark.
    type: str
    default: 1h
  max_delete:
    description:
      - Refuses to collect more instances than this, as a count such as V(3) or a share of the fleet's instances on this hypervisor such
        as V(25%). A share allows at least one. The module then fails before the first deletion and names all of them.
    type: str
    default: 25%
  keep_latest:
    description:
      - Whether the newest base of each key stays even when nothing uses it.
    type: bool
    default: true
  incomplete_age:
    description:
      - From which age on a base without a valid record, or another half-made volume, is collected, as a duration of at least V(12h).
    type: str
    default: 24h
  pools:
    description:
      - The pools to collect volumes and bases in. By default every active pool of the type C(dir), C(fs) or C(netfs).
      - In a pool on shared storage nothing is collected unless O(exclusive=true), and naming one is an error.
      - An instance takes its volumes along from whichever pool they are in. These are all whose names carry its uid, also an older overlay
        that by itself would stay because something that cannot be looked into might use it.
    type: list
    elements: str
  ignore_pools:
    description:
      - Inactive pools that the operator vouches for. Any other pool that cannot be read keeps everything that it could hold a reference
        to.
    type: list
    elements: str
    default: []
  collect:
    description:
      - What is collected.
    type: list
    elements: str
    choices: [domains, volumes, bases]
    default: [domains, volumes, bases]
seealso:
  - module: egress.kvm2.kvm2_domain
  - module: egress.kvm2.kvm2_image
"""

EXAMPLES = r"""
- name: Collect what is not in the definition any more
  egress.kvm2.kvm2_gc:
    fleet: edge
    live: [proxy-01, proxy-02]
    min_age: 1h
  register: collection

- name: Say what went and why, what needs a look, and what could not be looked into
  ansible.builtin.debug:
    msg: "{{ collection.report }}"

- name: Collect unused bases only, the newest ones too
  egress.kvm2.kvm2_gc:
    fleet: edge
    live: [proxy-01, proxy-02]
    collect: [bases]
    keep_latest: false
"""

RETURN = r"""
collected:
  description: What was deleted, or would be in check mode. What turned out to be needed after all right before its deletion is not in it.
  returned: always
  type: list
  elements: dict
  contains: &object
    what:
      description: What it is, V(domain), V(overlay), V(seed), V(base) or V(record).
      returned: always
      type: str
      sample: domain
    name:
      description: Its name.
      returned: always
      type: str
      sample: edge.proxy-03
    pool:
      description: The pool of a volume.
      returned: for volumes
      type: str
      sample: default
    instance:
      description: The name of the instance.
      returned: for domains of the fleet
      type: str
      sample: proxy-03
    uid:
      description: Its uid.
      returned: for domains of the fleet
      type: str
      sample: bdcf2b7e-b780-5ade-85c5-cb0dd262285e
    host:
      description: The hypervisor that its mark names, may be empty.
      returned: for domains of the fleet
      type: str
      sample: hv1
    state:
      description: The state of the domain as libvirt has it.
      returned: for domains of the fleet
      type: str
      sample: running
    state_reason:
      description: The reason of that state, may be empty.
      returned: for domains of the fleet
      type: str
      sample: booted
    base:
      description: The base that its overlay was made on, by its mark; may be empty.
      returned: for domains of the fleet
      type: str
      sample: kvm2-base-debian-12-0123456789abcdef-00ff00.qcow2
    created:
      description: When it was created, by its mark, in UTC.
      returned: for domains of the fleet
      type: str
      sample: "2026-01-31T10:00:00Z"
    reason:
      description: Why.
      returned: always
      type: str
      sample: it is not live and its mark is 3 days old
kept:
  description: What belongs to the fleet and stays.
  returned: always
  type: list
  elements: dict
  contains: *object
left_alone:
  description: What could not be decided or belongs to somebody else, and stays.
  returned: always
  type: list
  elements: dict
  contains: *object
unreadable:
  description: What could not be read, such as a damaged mark, and stays.
  returned: always
  type: list
  elements: dict
  contains: *object
blocked:
  description: What could not be looked into, each a sentence that names it. Everything that it could reference was kept.
  returned: always
  type: list
  elements: str
  sample: ["pool archive is not active: its volumes cannot be seen (start it, or name it in ignore_pools)"]
report:
  description: All of it in lines for people, to be shown or mailed. What belongs to somebody else is only counted.
  returned: always
  type: list
  elements: str
  sample: ["Fleet edge on hv1: 1 domain, 1 seed collected, 2 domains kept, nothing to look at."]
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
      sample: collect
    object:
      description: On what.
      returned: always
      type: str
      sample: fleet edge
    hint:
      description: What to do about it, may be empty.
      returned: always
      type: str
      sample: Raise max_delete if this is meant.
    message:
      description: All of it as a sentence.
      returned: always
      type: str
      sample: "Failed to collect fleet edge: 4 of 4 instances would go and 25% are allowed. Raise max_delete if this is meant."
"""

from ansible_collections.egress.kvm2.plugins.module_utils._entry.run import run_module
from ansible_collections.egress.kvm2.plugins.module_utils._services.gc import GcService

ARGUMENTS = {
    "fleet": {"type": "str", "required": True},
    "host": {"type": "str"},
    "live": {"type": "list", "elements": "str", "required": True},
    "allow_empty_live": {"type": "bool", "default": False},
    "min_age": {"type": "str", "default": "1h"},
    "max_delete": {"type": "str", "default": "25%"},
    "keep_latest": {"type": "bool", "default": True},
    "incomplete_age": {"type": "str", "default": "24h"},
    "pools": {"type": "list", "elements": "str"},
    "ignore_pools": {"type": "list", "elements": "str", "default": []},
    "collect": {"type": "list", "elements": "str", "choices": ["domains", "volumes", "bases"], "default": ["domains", "volumes", "bases"]},
}


def main():
    run_module(GcService, ARGUMENTS)


if __name__ == "__main__":
    main()
