#!/usr/bin/python
# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kvm2_image
short_description: Keep a verified base image in a libvirt storage pool
version_added: 0.1.0
author:
  - egress.kvm2 contributors (@egress-kvm2)
description:
  - Fetches a disk image once per hypervisor, verifies it, and publishes it in a storage pool as an immutable base that overlays are
    backed by. Where the wanted image is there already, nothing is fetched and no network is needed.
  - A base is never overwritten. Another digest makes another base beside the old one, and old overlays keep theirs.
  - A base exists once its record does, which is the last thing to be written. A run that was killed leaves nothing that a later run
    would use.
  - What the image is, is told from its content and not from its name. It may be compressed with gzip, xz, bzip2 or, where the Python of the
    machine has C(compression.zstd) or C(zstandard), zstd. It is unpacked on its way into the pool. The digest in O(checksum) is that of
    the file as it is fetched.
  - Images that name a backing file or an external data file, that are encrypted, marked as damaged or visibly cut short, or whose header
    disagrees with O(format) are refused, as are VMDK, VDI, VHD, VHDX, ISO and other files that are no qcow2 or raw disk. Nothing is left of
    them. Whether all of an image's data is there only O(checksum) tells.
  - Of several runs on one machine that want the same image at the same time one fetches it, and the others wait for it.
  - Files of other tools in the same pool are never read, adopted or deleted.
extends_documentation_fragment:
  - egress.kvm2.connection
  - egress.kvm2.attributes
options:
  key:
    description:
      - The name of the image, such as V(debian-12). Lower-case letters, digits and dashes, at most 32 characters.
    type: str
    required: true
  url:
    description:
      - Where the image is fetched from, as an C(http) or C(https) URL.
      - A transfer that breaks off goes on where it was, where the server names the version of the file (C(ETag) or C(Last-Modified)) and
        can send a part of it. Otherwise it begins anew, into another volume. Both are tried a limited number of times.
      - A redirect to another server goes without O(headers), O(url_username), O(url_password) and O(client_cert). One from C(https) to
        C(http) is followed only with O(checksum).
      - Exactly one of O(url) and O(src) is needed with O(state=present). With O(state=absent) it narrows the retirement to the bases
        that came from there.
    type: str
  src:
    description:
      - An image file on the machine that the module runs on. Without O(checksum) it is pinned by its own digest.
    type: path
  checksum:
    description:
      - The digest of what is fetched, as V(sha256:<hex>) or V(sha512:<hex>), or as V(sha256:<URL of a SHA256SUMS file>) or
        V(sha512:<URL of a SHA512SUMS file>).
      - A sums file is in the format of coreutils or of BSD, signed in clear text or not (the signature is not checked), and the entry is
        found by the file name in O(url) or O(src). It is asked when the image is imported and its answer is recorded. Later runs reuse
        that answer unless O(refresh) says otherwise.
      - What is given for the server of O(url), such as O(headers), is not told to another server that has the sums file.
      - Without it an image from O(url) is told by its O(key) and URL alone, and the newest one counts.
    type: str
  format:
    description:
      - The format of the image, V(qcow2) where it is left out. With O(state=absent) bases of both formats are meant then.
    type: str
    choices: [qcow2, raw]
  pool:
    description:
      - The storage pool, which has to be active and of the type C(dir), C(fs) or C(netfs).
    type: str
    default: default
  state:
    description:
      - V(present) makes sure that the base is published.
      - V(absent) retires the bases of this O(key), each with its record first. Where overlays use one of them from the start none is retired,
        the records stay, and the module fails with a conflict that names the users; check mode says so too. One that comes into use
        meanwhile stays for its overlays without its record.
    type: str
    choices: [present, absent]
    default: present
  headers:
    description:
      - Additional HTTP request headers. They are visible in verbose output, so put C(no_log) on a task whose headers hold a secret.
      - A line break in a value is refused.
    type: dict
  client_cert:
    description:
      - A PEM file with the client certificate, and optionally its key, for TLS client authentication.
    type: path
  client_key:
    description:
      - A PEM file with the key that belongs to O(client_cert), where that file does not hold it.
    type: path
  ca_path:
    description:
      - A PEM file with the certificates of the authorities to trust, in place of the system's.
    type: path
  validate_certs:
    description:
      - Whether the server's certificate is verified.
    type: bool
    default: true
  use_proxy:
    description:
      - Whether the proxy that the environment names on the machine of the module is used.
    type: bool
    default: true
  url_username:
    description:
      - The user for HTTP basic authentication.
    type: str
  url_password:
    description:
      - The password that belongs to O(url_username).
    type: str
  force_basic_auth:
    description:
      - Whether user and password are sent with the first request, for servers that do not ask for them properly.
    type: bool
    default: false
  http_agent:
    description:
      - What the request calls itself in its C(User-Agent) header.
    type: str
    default: ansible-egress-kvm2
  fetch_timeout:
    description:
      - How long the server may stay silent, while connecting and in the middle of the transfer, as a duration.
    type: str
    default: 30s
  sparse:
    description:
      - Whether zeros of the image take no space in the pool. With V(true) too the space of the whole image has to be free at the start,
        so that a full pool fails at once and leaves nothing behind; what is not needed is given back at the end.
      - Over a remote O(uri) it needs libvirt 9.0, or 12.8 or newer. Releases in between are refused, since a full disk ends some of them.
      - On the hypervisor itself every release will do for root. For a user who may not read the pool's folder the same releases do as over a
        remote O(uri). Where it cannot be done there, the image keeps all of its space, and a warning says so.
    type: bool
    default: false
  refresh:
    description:
      - Whether an unpinned O(url), or the sums file of O(checksum), is asked again though a base is there.
      - V(never) does not touch the network once a base is published.
      - V(if_modified) asks an unpinned URL with a conditional request and makes a new base where the answer differs, and fetches the sums
        file again. Where the server gives neither C(ETag) nor C(Last-Modified), the whole image is fetched to compare its digest.
      - The old base stays for the overlays that it has.
    type: str
    choices: [never, if_modified]
    default: never
  max_virtual_size:
    description:
      - Refuses images whose virtual size is larger, as a size such as V(1TiB). V(none) sets no limit.
      - It also limits what is taken of an image whose length is not known beforehand, because it is compressed or its server does not say. Of
        a raw image that many bytes are taken; of a qcow2 image its own virtual size, an eighth more and 64 MiB (twice its virtual size and
        64 MiB where it holds internal snapshots), also with V(none). What goes on after that is refused.
    type: str
    default: 1TiB
  tmpdir:
    description:
      - A folder on the machine of the module for an image whose length is not known beforehand, because it is compressed or its server
        does not say. It is kept there in a file without a name, of which nothing is left even when the module is killed.
      - The default is the pool's own folder where that is on this machine, else the one for temporary files.
      - The space is looked at before and while the file is written. A twentieth of the filesystem, at most 256 MiB, is left free.
    type: path
  verify:
    description:
      - When what the pool stored is read back and hashed. V(import) does it before a base is published, V(always) also on every later
        run that finds it, V(never) leaves it out.
    type: str
    choices: [import, always, never]
    default: import
  mode:
    description:
      - The permissions of a new base. A base is never written to, so there is no more to choose from. One that is there keeps what it has.
    type: str
    choices: ["0400", "0440", "0444"]
    default: "0444"
  owner:
    description:
      - The number of the user that owns a new base. The default is what libvirt gives new volumes.
      - It concerns the base only. Overlays and seeds are made with the mode C(0600) and libvirt's default owner, so where libvirt does not
        give disks to QEMU's user by itself (C(dynamic_ownership = 0)) and QEMU does not run as that owner, instances do not start, whoever
        owns the base.
    type: int
  group:
    description:
      - The number of the group of a new base. What O(owner) says of overlays and seeds holds for it too.
    type: int
  timeout:
    description:
      - The hard deadline for the whole module, as a duration, at most V(12h).
    type: str
    default: 4h
seealso:
  - module: egress.kvm2.kvm2_overlay
  - module: egress.kvm2.kvm2_gc
"""

EXAMPLES = r"""
- name: Publish a pinned base from a distribution's server
  egress.kvm2.kvm2_image:
    key: debian-12
    url: https://images.example.com/debian-12-genericcloud-amd64.qcow2
    checksum: sha512:https://images.example.com/SHA512SUMS
  register: base

- name: Say where it is
  ansible.builtin.debug:
    msg: "{{ base.image.base }} in pool {{ base.image.pool }}"

- name: Follow an image that its server replaces from time to time
  egress.kvm2.kvm2_image:
    key: debian-daily
    url: https://images.example.com/daily/debian-sid.raw.xz
    checksum: sha256:https://images.example.com/daily/SHA256SUMS
    format: raw
    sparse: true
    refresh: if_modified

- name: Publish a base from a file on the hypervisor
  egress.kvm2.kvm2_image:
    key: proxy-appliance
    src: /srv/images/proxy-appliance.qcow2

- name: Retire every base of a key that nothing uses any more
  egress.kvm2.kvm2_image:
    key: debian-12
    state: absent
"""

RETURN = r"""
image:
  description: The base. What is not known is V(null), as most of it is with O(state=absent).
  returned: success
  type: dict
  contains:
    key:
      description: The name of the image.
      returned: success
      type: str
      sample: debian-12
    base:
      description: The volume's name. In check mode the part before the extension is V(xxxxxx) where the base is not there yet.
      returned: success
      type: str
      sample: kvm2-base-debian-12-0f3a9b1c2d4e5f60-a1b2c3.qcow2
    path:
      description: The volume's path on the hypervisor.
      returned: success
      type: str
      sample: /var/lib/libvirt/images/kvm2-base-debian-12-0f3a9b1c2d4e5f60-a1b2c3.qcow2
    pool:
      description: The storage pool.
      returned: success
      type: str
      sample: default
    format:
      description: The format, V(qcow2) or V(raw).
      returned: success
      type: str
      sample: qcow2
    size:
      description: The stored size in bytes. V(null) where it is not known in check mode, as that of a compressed image is not.
      returned: success
      type: int
      sample: 345374720
    virtual_size:
      description: The size in bytes of the disk that a guest sees. V(null) where it is not known in check mode.
      returned: success
      type: int
      sample: 3221225472
    digest:
      description: The digest of what is stored, with its algorithm. V(null) where it is not known in check mode.
      returned: success
      type: str
      sample: sha256:0f3a9b1c2d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8
    checksum:
      description: The digest that pins what was fetched, with its algorithm. V(null) where nothing does.
      returned: success
      type: str
      sample: sha256:0f3a9b1c2d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8
    durable:
      description:
        - Whether the data was synced to the disk before the base was published. Only a local module can do that, and only as a user who
          may read the pool's folder, such as root.
      returned: success
      type: bool
      sample: true
    source:
      description: Where the image came from, without user and password.
      returned: success
      type: str
      sample: https://images.example.com/debian-12-genericcloud-amd64.qcow2
    published:
      description: Whether the base is published. V(false) in check mode where it would be.
      returned: success
      type: bool
      sample: true
    published_at:
      description: When it was published, RFC 3339 in UTC.
      returned: success
      type: str
      sample: "2026-01-31T12:00:00Z"
    fetched:
      description: Whether this run fetched it.
      returned: success
      type: bool
      sample: false
actions:
  description: What was done, or would be done in check mode, in order.
  returned: always
  type: list
  elements: dict
  sample:
    - act: fetch
      what: base
      name: kvm2-base-debian-12-0f3a9b1c2d4e5f60-a1b2c3.qcow2
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
      sample: fetch
    object:
      description: On what.
      returned: always
      type: str
      sample: image https://images.example.com/debian-12-genericcloud-amd64.qcow2
    hint:
      description: What to do about it, may be empty.
      returned: always
      type: str
      sample: Check the URL.
    message:
      description: All of it as a sentence.
      returned: always
      type: str
      sample: "Failed to fetch image https://images.example.com/debian-12-genericcloud-amd64.qcow2: the server answered 404. Check the URL."
"""

from ansible_collections.egress.kvm2.plugins.module_utils._entry.run import run_module
from ansible_collections.egress.kvm2.plugins.module_utils._services.image import ImageService

ARGUMENTS = {
    "key": {"type": "str", "required": True, "no_log": False},
    "url": {"type": "str"},
    "src": {"type": "path"},
    "checksum": {"type": "str"},
    "format": {"type": "str", "choices": ["qcow2", "raw"]},
    "pool": {"type": "str", "default": "default"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "headers": {"type": "dict"},
    "client_cert": {"type": "path"},
    "client_key": {"type": "path", "no_log": False},
    "ca_path": {"type": "path"},
    "validate_certs": {"type": "bool", "default": True},
    "use_proxy": {"type": "bool", "default": True},
    "url_username": {"type": "str"},
    "url_password": {"type": "str", "no_log": True},
    "force_basic_auth": {"type": "bool", "default": False},
    "http_agent": {"type": "str", "default": "ansible-egress-kvm2"},
    "fetch_timeout": {"type": "str", "default": "30s"},
    "sparse": {"type": "bool", "default": False},
    "refresh": {"type": "str", "choices": ["never", "if_modified"], "default": "never"},
    "max_virtual_size": {"type": "str", "default": "1TiB"},
    "tmpdir": {"type": "path"},
    "mode": {"type": "str", "choices": ["0400", "0440", "0444"], "default": "0444"},
    "owner": {"type": "int"},
    "group": {"type": "int"},
    "verify": {"type": "str", "choices": ["import", "always", "never"], "default": "import"},
}


def main():
    run_module(
        ImageService,
        ARGUMENTS,
        timeout="4h",
        longest_timeout=12 * 3600,
        mutually_exclusive=[("url", "src")],
        required_if=[("state", "present", ("url", "src"), True)],
        required_together=[("url_username", "url_password")],
    )


if __name__ == "__main__":
    main()
