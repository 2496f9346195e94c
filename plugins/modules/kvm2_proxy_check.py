#!/usr/bin/python
# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kvm2_proxy_check
short_description: Send a real request through each proxy
version_added: 0.1.0
author:
  - egress.kvm2 contributors (@egress-kvm2)
description:
  - Asks for a URL through each of O(proxies), from the machine that the module runs on, and returns what each one answered.
  - All proxies are asked at the same time, and each again until it answers as expected or O(wait) is over. The module fails at the end
    and names every proxy that did not.
  - Proves the other way round, too, that a proxy refuses whom it should (O(proxies[].expect)).
  - Changes nothing, needs no libvirt, and never goes through another proxy that the environment names.
extends_documentation_fragment:
  - egress.kvm2.attributes
attributes:
  diff_mode:
    support: none
    details:
      - There is nothing that changes.
options:
  proxies:
    description:
      - The proxies. An empty list does nothing.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description:
          - What the proxy is called in the answer.
        type: str
        required: true
      address:
        description:
          - Its IP address or host name.
        type: str
        required: true
      port:
        description:
          - Its TCP port.
        type: int
        required: true
      scheme:
        description:
          - How the proxy is spoken to.
        type: str
        choices: [http, socks5]
        default: http
      user:
        description:
          - The user to log in to the proxy with. Needs O(proxies[].password).
        type: str
      password:
        description:
          - The password of O(proxies[].user).
        type: str
      expect:
        description:
          - V(answer) wants O(url) answered with O(expect_status).
          - V(refused) wants the proxy to turn the request away, by the status 401, 403 or 407, or as SOCKS5 does it, by refusing login or
            connection, or by closing the connection that it accepted. Where nothing listens or nothing answers, that is not refused.
        type: str
        choices: [answer, refused]
        default: answer
      source_address:
        description:
          - The address of this machine to ask from, by default the one that the route to the proxy has.
        type: str
  url:
    description:
      - The C(http) URL that is asked for through each proxy.
    type: str
    required: true
  timeout:
    description:
      - How long one request may take from connecting to the last byte of its answer, as a duration.
    type: str
    default: 10s
  wait:
    description:
      - How long each proxy is asked again until it answers as expected, as a duration. V(0) asks once.
    type: str
    default: 60s
  expect_status:
    description:
      - The HTTP status that counts as an answer.
    type: int
    default: 200
seealso:
  - module: egress.kvm2.kvm2_domain
"""

EXAMPLES = r"""
- name: See that both proxies let a request out
  egress.kvm2.kvm2_proxy_check:
    url: http://egress.example.com/whoami
    proxies:
      - name: proxy-01
        address: 192.168.122.17
        port: 3128
      - name: proxy-02
        address: 192.168.122.18
        port: 3128
  register: check

- name: See that a SOCKS5 proxy takes its user and nobody else
  egress.kvm2.kvm2_proxy_check:
    url: http://egress.example.com/whoami
    proxies:
      - name: proxy-03
        address: 192.168.122.19
        port: 1080
        scheme: socks5
        user: operator
        password: "{{ vault_proxy_password }}"
      - name: proxy-03 without a password
        address: 192.168.122.19
        port: 1080
        scheme: socks5
        expect: refused

- name: Show the address that each one is seen by
  ansible.builtin.debug:
    msg: "{{ check.proxies | items2dict(key_name='name', value_name='egress_address') }}"
"""

RETURN = r"""
proxies:
  description: The outcome for each proxy, in the order of O(proxies).
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: What the proxy is called.
      returned: always
      type: str
      sample: proxy-01
    address:
      description: Its address.
      returned: always
      type: str
      sample: 192.168.122.17
    port:
      description: Its port.
      returned: always
      type: int
      sample: 3128
    scheme:
      description: How it was spoken to.
      returned: always
      type: str
      sample: http
    url:
      description: The proxy's own URL, without user and password.
      returned: always
      type: str
      sample: http://192.168.122.17:3128
    ok:
      description: Whether it answered as expected.
      returned: always
      type: bool
      sample: true
    status:
      description: The HTTP status of the last answer. V(null) where there was none.
      returned: always
      type: int
      sample: 200
    body:
      description: The first 2 KiB of the last answer's body. V(null) where there was no answer.
      returned: always
      type: str
      sample: '{"address": "192.0.2.7"}'
    refused:
      description: How the proxy refused, where O(proxies[].expect=refused) and it did. V(null) elsewhere.
      returned: always
      type: str
      sample: null
    egress_address:
      description: The field C(address) of an answer whose body is a JSON object, such as the address that the server saw, or V(null).
      returned: always
      type: str
      sample: 192.0.2.7
    attempts:
      description: How often the proxy was asked.
      returned: always
      type: int
      sample: 1
    duration:
      description: How long the last request took, in seconds.
      returned: always
      type: float
      sample: 0.012
    error:
      description:
        - Why it did not answer as expected, with a C(kind). V(null) where it did.
        - V(transient) says that trying again can help; V(permanent) says that the proxy refuses the request.
      returned: always
      type: dict
      sample: null
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
      sample: transient
    code:
      description: The error number of libvirt, or V(null).
      returned: always
      type: int
      sample: null
    act:
      description: What was tried.
      returned: always
      type: str
      sample: ask
    object:
      description: On what.
      returned: always
      type: str
      sample: proxy proxy-01 (http://192.168.122.17:3128)
    hint:
      description: What to do about it, may be empty.
      returned: always
      type: str
      sample: See that it runs and listens there.
    message:
      description: All of it as a sentence.
      returned: always
      type: str
      sample: "Failed to ask proxy proxy-01 (http://192.168.122.17:3128): connection refused. See that it runs and listens there."
"""

from ansible_collections.egress.kvm2.plugins.module_utils._entry.run import run_module
from ansible_collections.egress.kvm2.plugins.module_utils._services.proxy_check import ProxyCheckService

ARGUMENTS = {
    "proxies": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "name": {"type": "str", "required": True},
            "address": {"type": "str", "required": True},
            "port": {"type": "int", "required": True},
            "scheme": {"type": "str", "choices": ["http", "socks5"], "default": "http"},
            "user": {"type": "str"},
            "password": {"type": "str", "no_log": True},
            "expect": {"type": "str", "choices": ["answer", "refused"], "default": "answer"},
            "source_address": {"type": "str"},
        },
        "required_together": [("user", "password")],
    },
    "url": {"type": "str", "required": True},
    "timeout": {"type": "str", "default": "10s"},
    "wait": {"type": "str", "default": "60s"},
    "expect_status": {"type": "int", "default": 200},
}


def main():
    run_module(ProxyCheckService, ARGUMENTS, connect=False)


if __name__ == "__main__":
    main()
