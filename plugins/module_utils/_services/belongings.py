# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What belongs to an instance and goes with it: its volumes, what stands in the way of a deletion, and what a deletion would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

from .._policy import domain_read, names, references
from .._policy.domain_spec import console_log_path
from .._policy.xml import parse


@dataclass(frozen=True)
class Doomed:
    """An instance to be deleted. why: the reason for the system log, where it is another one than that it was asked for.

    finish: only a deletion that was declared already; one that somebody finished and created anew meanwhile is a conflict.
    keep: names of overlays that stay, since they were made for the one that comes after it.
    """

    fleet: str
    name: str
    uid: str
    why: str = ""
    finish: bool = False
    keep: Tuple[str, ...] = ()

    @property
    def domain(self):
        return names.domain_name(self.fleet, self.name)


def own_volumes(inventory, uid):
    """Overlays and seeds whose names carry this uid, in all pools."""
    found = []
    # Of all volumes only some are worth a closer look.
    for volume in references.each_file(volume for volume in inventory.volumes if uid in volume.name):
        parsed = names.parse_instance_volume(volume.name)
        if parsed is not None and parsed.uid == uid:
            found.append(volume)
    return tuple(found)


def obstacles(inventory, found, doomed):
    """Why the instance cannot be deleted: other users of the volumes that go with it. Empty where nothing stands in the way."""
    mine = {volume.path for volume in own_volumes(inventory, doomed.uid)}
    domains = [domain for domain in inventory.domains if domain.uuid == doomed.uid]
    named = {path for domain in domains for text in domain.xmls for path in references.paths_of_domain(parse(text), inventory)}
    merge = "merge it" if any(domain.active for domain in domains) else "start the domain, then merge it"
    listed = []
    for path in sorted(mine):
        for user in found.users_of(path):
            if not _is_own_user(user, doomed, mine):
                listed.append(f"{path} is used by {user}" + (
                    f", which is the instance's own disk, an external snapshot ({merge}: virsh blockcommit {doomed.domain} vda --active --shallow --pivot "
                    "--delete)" if user.path in named else ""))
    for domain in domains:
        listed += [f"{path} is in no active pool, so it could not be deleted (start its pool)" for path in references.unlisted_of_instance(domain, inventory)]
    return tuple(listed)


def _is_own_user(user, doomed, own_paths):
    if user.kind == "domain":
        return user.uuid == doomed.uid
    return user.path in own_paths


def dropped(domain, removes_logs):
    """What goes with a definition, in words for the action; and what cannot."""
    tree = parse(domain.any_xml)
    log = console_log_path(domain.name, domain.uuid)
    logged = domain_read.console_log(tree) == log
    words = [word for word, there in (
        ("managed save", domain.managed_save), (f"{domain.snapshots} snapshots", domain.snapshots),
        (f"{domain.checkpoints} checkpoints", domain.checkpoints), ("NVRAM", tree.find("os/nvram") is not None or domain_read.firmware(tree) == "efi"),
        ("console log", logged and removes_logs),
        ("TPM state", tree.find("devices/tpm/backend[@type='emulator']") is not None)) if there]
    parts = [f"dropped: {', '.join(words)}"] if words else []
    if logged and not removes_logs:
        parts.append(f"left on the hypervisor: {log}")
    return f" ({'; '.join(parts)})" if parts else ""


def kind(name):
    return "seed" if name.endswith(".iso") else "overlay"


def predicted(inventory, doomed, domain, removes_logs):
    """What a deletion would do, as (act, what, name) tuples, for the plan. removes_logs: Hypervisor.removes_console_logs()."""
    steps = []
    if domain is not None:
        steps.append(("declare", "domain", doomed.domain))
        if domain.active:
            steps.append(("stop", "domain", doomed.domain))
    volumes = [("delete", kind(volume.name), volume.name) for volume in own_volumes(inventory, doomed.uid) if volume.name not in doomed.keep]
    if domain is None:
        return tuple(steps + volumes)
    return tuple(steps + volumes + [("undefine", "domain", doomed.domain + dropped(domain, removes_logs))])
