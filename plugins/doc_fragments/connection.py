# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every module that opens a connection has in common."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
requirements:
  - Python 3.9 or newer
  - libvirt-python (Debian package C(python3-libvirt))
  - lxml (Debian package C(python3-lxml))
options:
  uri:
    description:
      - The libvirt URI of the hypervisor, such as V(qemu:///system), V(qemu:///session), V(qemu+unix:///system?socket=/run/libvirt/libvirt-sock),
        V(qemu+ssh://root@hypervisor:22/system?keyfile=/root/.ssh/kvm2), V(qemu+tls://hypervisor/system) or V(qemu+tcp://127.0.0.1/system).
      - TCP is neither encrypted nor authenticated, so it goes to the loopback only, such as the end of a tunnel; any other host is refused.
      - Nothing ever asks a question. Where ssh would ask for a password or about a host key, the module fails and says so.
      - A URI that names no host, such as V(qemu:///system), is local. The module then sees the pool's files and its figures and guarantees
        are better for it. A role therefore runs the modules on the hypervisor. With C(socket) it is local only where the socket lies below
        C(/run/libvirt) or C(/run/user/UID/libvirt), since another one may be forwarded from elsewhere.
      - Falls back to the environment variable E(KVM2_URI) where it is not given.
    type: str
    default: qemu:///system
  connect_timeout:
    description:
      - How long opening the connection may take, as a duration such as V(10s). A bare number is seconds.
      - A daemon that is being restarted, or has too many clients for the moment, is tried again for up to five seconds of it.
    type: str
    default: 10s
  keepalive_interval:
    description:
      - How often a silent connection is probed, as a duration.
    type: str
    default: 5s
  keepalive_count:
    description:
      - After how many probes without an answer the connection is given up. The failure is then of the kind V(transient).
    type: int
    default: 3
  timeout:
    description:
      - The hard deadline for the whole module, as a duration such as V(90s), V(10m) or V(1h). When it is over the work ends at its next step; what
        is blocked then is cut off some seconds later. The failure is of the kind V(transient) and lists what was done.
    type: str
    default: 1h
  ssh_known_hosts:
    description:
      - The file with the known host keys for O(uri) over C(qemu+ssh) and for O(ssh_jump_host), an absolute path on the machine the module runs on.
        By default that of the user that runs the module.
    type: path
  ssh_jump_host:
    description:
      - The host that is gone through to reach O(uri) over C(qemu+ssh), as V([user@]host[:port]). The C(keyfile) of the URI is offered there too.
    type: str
  exclusive:
    description:
      - Says that no other libvirt daemon uses the storage pools of this hypervisor.
      - A pool that several daemons share could lose a base that another daemon's guests need, so C(netfs) pools, and C(dir) pools on a
        network filesystem or on any of FUSE, are refused unless this is V(true).
    type: bool
    default: false
"""
