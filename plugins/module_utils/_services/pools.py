# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pools as the services use them: one that may be written to, and everything that could hold a reference."""

from __future__ import annotations

import shlex

from .._host import local
from .._policy.errors import PERMANENT, Kvm2Error
from .._policy.model import FILE_POOLS, Inventory

# Besides fuse.*, such as fuse.sshfs and fuse.glusterfs: most of those are network filesystems, and which one is not can only be known by the operator.
_NETWORK_FILESYSTEMS = (
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "glusterfs", "gfs2", "ocfs2", "lustre", "gpfs", "beegfs", "orangefs", "pvfs2", "afs", "9p",
    "virtiofs", "fuse")


def usable_pool(hypervisor, name, exclusive):
    """The model.Pool of that name, or an error that says why it cannot be used."""
    obj = f"pool {name} on {hypervisor.uri}"
    pool = hypervisor.pool(name)
    if pool is None:
        known = ", ".join(sorted(other.name for other in hypervisor.pools())) or "none"
        raise Kvm2Error(PERMANENT, "use", obj, f"there is no such pool (there are: {known})", "Define it, or name another one.")
    if not pool.active:
        quoted = shlex.quote(name)
        hint = f"Start it: virsh pool-start {quoted}."
        if pool.path and hypervisor.is_local() and not local.exists(pool.path):
            hint = f"Its folder {pool.path} is not there: restore or mount it, then start the pool (virsh pool-start {quoted}), or undefine the pool."
        raise Kvm2Error(PERMANENT, "use", obj, "it is not active", hint)
    if pool.type not in FILE_POOLS:
        raise Kvm2Error(PERMANENT, "use", obj, f"it is of type {pool.type}", "Use a file-backed pool: dir, fs or netfs.")
    if not exclusive:
        shared = shared_storage(hypervisor, pool)
        if shared:
            raise Kvm2Error(
                PERMANENT, "use", obj, f"it lies on shared storage ({shared}), where another daemon's references cannot be seen",
                "Set exclusive to true when no other daemon uses this folder.")
    return pool


def shared_storage(hypervisor, pool):
    """Type of the storage of a pool that another daemon could use too, or None where there is no sign of that."""
    return pool.type if pool.type == "netfs" else _network_filesystem(hypervisor, pool.path)


def _network_filesystem(hypervisor, path):
    """Type of the network filesystem a path lies on, or None where it is none or cannot be seen."""
    if not hypervisor.is_local() or not path:
        return None
    kind = local.filesystem_type(path)
    return kind if kind is not None and (kind in _NETWORK_FILESYSTEMS or kind.startswith("fuse.")) else None


def sees_pool(hypervisor, pool):
    """Does this process see the pool's files? Only then may it read the filesystem below it."""
    return hypervisor.is_local() and bool(pool.path) and local.exists(pool.path)


def take_inventory(hypervisor, refresh=True):
    """Refresh every active pool, then read all volumes and all domains. What cannot be read is noted: it may hold references."""
    pools = hypervisor.pools()
    inactive, unrefreshed, unreadable, volumes = [], [], [], []
    for pool in pools:
        if not pool.active:
            inactive.append(pool.name)
            continue
        if refresh:
            try:
                hypervisor.refresh_pool(pool.name)
            except Kvm2Error as error:
                unrefreshed.append((pool.name, error.cause))
        try:
            volumes.extend(hypervisor.volumes(pool.name))
        except Kvm2Error as error:
            unreadable.append((f"pool {pool.name}", error.cause))
    domains = hypervisor.domains()
    unreadable.extend((f"domain {domain.name}", domain.unreadable) for domain in domains if domain.unreadable)
    unreadable.extend((f"volume {volume.name} in pool {volume.pool}", volume.unreadable) for volume in volumes if volume.unreadable)
    return Inventory(pools, tuple(volumes), domains, tuple(unreadable), tuple(inactive), tuple(unrefreshed))


def look_around(hypervisor, ignore_pools=()):
    """(model.Inventory, references.References) of everything this hypervisor holds, read afresh."""
    # Loaded here, since most calls that have nothing to do never look: Ansible sends source, and compiling it is the larger part of such a call.
    from .._policy import references
    inventory = take_inventory(hypervisor)
    if not hypervisor.is_local():
        return inventory, references.used_files(inventory, ignore_pools=ignore_pools)
    resolve = local.resolver([volume.path for volume in inventory.volumes])
    return inventory, references.used_files(inventory, ignore_pools=ignore_pools, resolve=resolve, follow=hypervisor.backing_chain)
