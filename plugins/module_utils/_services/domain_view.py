# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was seen of instances, how it differs from what is wanted, and the words for it."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Mapping, Optional, Tuple

from .._policy import domain_read, domain_xml, mark, names, overlays
from .._policy.errors import CONFLICT, Kvm2Error
from .._policy.model import Domain, Inventory, Pool, Volume
from .._policy.xml import parse
from . import converge
from .instances import Instance
from .requirements import HostSide

_START_POOL = "Start its pool, or move it to one."


@dataclass(frozen=True)
class Target:
    """What was seen of one instance. domain is also set where its deletion was declared (deleting).

    overlay: the one that the domain has, or that a new domain gets; None where its file is not there.  disk: the path of the former.
    replacement: another one that was given, None where it is not there.  seed_gone: the path of the domain's seed where the file has gone.
    seed_detached: the path of the seed that belongs into the definition, which has none.
    unseen: the paths of both where no active pool has their folder, so that they may be there.
    """

    instance: Instance
    domain: Optional[Domain] = None
    deleting: bool = False
    overlay: Optional[Volume] = None
    disk: Optional[str] = None
    replacement: Optional[Volume] = None
    seed_gone: Optional[str] = None
    seed_detached: Optional[str] = None
    unseen: Tuple[str, ...] = ()
    problem: Optional[Kvm2Error] = None

    @property
    def there(self):
        return self.domain is not None and not self.deleting

    @property
    def has_guest(self):
        """Does a guest run, or wait in a managed save?"""
        return self.there and (self.domain.active or self.domain.managed_save)

    @property
    def given(self):
        """The overlay that was asked for where it is another one than the domain has, else None."""
        name = self.instance.options.get("overlay")
        return name if name and self.there and name != os.path.basename(self.disk or "") else None


@dataclass(frozen=True)
class Seen:
    pool: Pool
    inventory: Inventory
    targets: Tuple[Target, ...]
    addresses: Mapping[str, Tuple]
    host: Optional[HostSide] = None
    # Can this process remove the files of consoles?
    removes_logs: bool = True


def drift_of(target, spec, wanted, host):
    """Differences of the persistent definition, and of the running guest's own (pending until its restart), as dicts."""
    domain = target.domain
    detached = is_detached(domain, "seed")
    found = [_drift(one, one.needs, False) for one in domain_xml.drift(domain.xml or domain.live_xml, spec) if one.field != "seed" or not detached]
    listed = {one["field"] for one in found}
    found += [_drift(one, "restart", True) for one in waiting(domain, spec) if one.field not in listed]
    if not domain.persistent:
        found.append(_drift(overlays.Drift("definition", "running only", "defined", "redefine")))
    parsed = mark.of_domain(domain)
    if isinstance(parsed, mark.Mark):
        if host and parsed.host != host:
            found.append(_drift(overlays.Drift("mark.host", parsed.host, host, "redefine")))
        if parsed.seed and detached:
            found.append(_drift(overlays.Drift("seed", *overlays.DETACHED, "redefine" if target.seed_detached else "restart")))
        if parsed.seed and parsed.seed != wanted.seed_hash and (target.seed_detached or not detached):
            found.append(_drift(overlays.Drift("seed", parsed.seed, wanted.seed_hash, "restart")))
    if target.seed_gone:
        found.append(_drift(overlays.Drift("seed", target.seed_gone, _file_wanted(target, target.seed_gone), "restart")))
    if target.overlay is None and target.disk:
        found.append(_drift(overlays.Drift("overlay", target.disk, _file_wanted(target, target.disk), "replace")))
    elif target.disk is None and not target.given and is_detached(domain, "overlay"):
        found.append(_drift(overlays.Drift("overlay", *overlays.DETACHED, "replace")))
    if target.given:
        found.append(_drift(overlays.Drift("overlay", os.path.basename(target.disk or "") or overlays.DETACHED[0], target.given, "replace")))
    return found


def is_detached(domain, kind):
    """Has the definition no such disk at all? One that is given as a volume of a pool is a disk without a path."""
    return domain_read.find_disk(parse(domain.xml or domain.live_xml), kind) is None


def detached_seed(domain, overlay, wanted, volumes, found):
    """Path of the seed that was detached from the definition and can come back: the one that its guest has, else the only one that is left beside the
    overlay where it was made from what is wanted. None where no seed is missing, or none can be told for the right one.

    volumes: the instance's own of model.Volume; found: references.References.
    """
    if not is_detached(domain, "seed") or overlay is None:
        return None
    beside = {volume.path: volume for volume in volumes if volume.pool == overlay.pool and volume.name.endswith(".iso")}
    if domain.guest_xml is not None:
        path = domain_read.read_spec(domain.guest_xml).seed_path
        return path if path in beside else None
    if mark.of_domain(domain).seed != wanted.seed_hash:
        return None
    left = [path for path in beside if not found.users_of(path)]
    return left[0] if len(left) == 1 else None


def _file_wanted(target, path):
    return "a file in an active pool" if path in target.unseen else "a file that exists"


def no_overlay(target, kind, act):
    """The error of what needs the overlay of a domain that has none, or one whose file cannot be used."""
    cause, hint = f"its overlay {target.disk} has gone", converge.REPLACE
    if target.disk is None:
        cause, hint = "it names no disk of ours as its overlay", f"Where it was detached by hand, attach it again with virsh attach-disk. Else: {hint}"
    elif target.disk in target.unseen:
        cause, hint = f"its overlay {target.disk} is in no active pool, so it cannot be seen", _START_POOL
    return Kvm2Error(kind, act, f"domain {target.instance.domain}", cause, hint)


def no_seed(target):
    """The error of what needs the seed of a domain whose seed's file cannot be used."""
    cause, hint = f"its seed {target.seed_gone} has gone", converge.NEW_SEED
    if target.seed_gone in target.unseen:
        cause, hint = f"its seed {target.seed_gone} is in no active pool, so it cannot be seen", _START_POOL
    return Kvm2Error(CONFLICT, "start", f"domain {target.instance.domain}", cause, hint)


def waiting(domain, spec):
    """What the guest, running or saved, has only after its restart: a list of domain_xml.Drift."""
    if domain.guest_xml is None:
        return []
    return [one for one in domain_xml.drift(domain.guest_xml, spec) if one.needs == "redefine" and one.restart]


def former(domain, what):
    """The words in that child of the mark, sorted: of the definition, and of the guest that goes by an older one."""
    marks = [mark.of_tree(parse(text)) for text in domain.xmls]
    return tuple(sorted({word for one in marks if isinstance(one, mark.Mark) for word in getattr(one, what).split()}))


def _drift(one, needs=None, pending=False):
    return {"field": one.field, "have": one.have, "want": one.want, "needs": needs or one.needs, "pending": pending}


def predicted_overlay(target):
    """Is the overlay that was given only one that check mode predicted?"""
    return names.is_predicted(target.instance.options.get("overlay") or "")


def domain_shown(domain, job):
    """What was chosen for a domain: of the definition that is there or, where one is only planned, of that; None for each where there is neither.

    job: the converge.Job of a definition that is only planned, else None.
    """
    chosen = ("virt_type", "machine", "cpu_mode", "console_log")
    text = None if domain is None else domain.any_xml
    found = {} if text is None else domain_read.read_fields(text)
    if job is not None:
        found = domain_xml.shown(job.spec)
        if text is not None:
            # An update keeps some of what it finds. One that is refused fails the run, not its prediction.
            with suppress(Kvm2Error):
                found = domain_read.read_fields(domain_xml.update(text, job.spec, mark.to_element(job.mark)))
    return {field: found.get(field) for field in chosen}


def address_of(entry):
    return {"address": entry.address, "prefix": entry.prefix, "mac": entry.mac, "source": entry.source}


def state_of(domain, known):
    """The state as operators name it."""
    if domain is None:
        return "absent"
    if domain.state == "running" or domain.state == "blocked":
        return "running" if known else "provisioning"
    return {"shutoff": "stopped", "shutdown": "stopping"}.get(domain.state, domain.state)
