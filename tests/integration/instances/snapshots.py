# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: snapshots.py [PART…]. What an operator does to an instance's disks: external snapshots over its overlay, and a disk that is
detached from its definition. Each step is predicted before, by which nothing is written."""

from __future__ import annotations

import os
import re

import libvirt
from drift import NEW_SEED, ROLL
from looking import shell
from oddities import OVER, refused, unchanged
from states import FLEET, FOLDER, POOL, acts, fields, require, run_parts

from ansible_collections.egress.kvm2.plugins.module_utils._policy import domain_read


def done(host, what, wanted, **given):
    """A run that does these acts, which its check has told."""
    predicted = host.quietly(f"check of {what}", lambda: host.domain(check=True, **given))
    made = host.domain(**given)
    require(not made.failed, what, getattr(made, "msg", ""))
    require(acts(predicted.actions) == acts(made.actions) == wanted, what, acts(predicted.actions), acts(made.actions))
    unchanged(host, f"{what}, again", **given)
    return made


def chain(host, live):
    """Names of the files of its disk, from the top: of its definition, or of the running guest."""
    text = host.state().XMLDesc(0 if live else libvirt.VIR_DOMAIN_XML_INACTIVE)
    below, ends = domain_read.read_chain(domain_read.find_disk(domain_read.parse(text), "overlay"))
    require(ends, "the chain is written down in part", text)
    return [os.path.basename(path) for path in (domain_read.overlay_path(text), *(path for path, _format in below))]


def snapshots(host, base, *flags, count):
    """So many of them are kept by a redefinition and by a restart, merged as a refused removal says, and gone with it."""
    what = f"{count} snapshots {' '.join(flags)}"
    overlay = host.create(base).instances[0]["overlay"]
    for number in range(count):
        shell("virsh", "-q", "snapshot-create-as", OVER, f"s{number}", "--disk-only", *flags)
    files = [overlay.replace(".qcow2", f".s{number}") for number in reversed(range(count))] + [overlay, base]
    unchanged(host, what)
    redefined = done(host, f"{what} redefined", ["redefine domain"], memory="96MiB")
    require(fields(redefined) == ["memory pending"] and chain(host, live=False) == files, what, redefined.instances, chain(host, live=False))
    restarted = done(host, f"{what} restarted", ROLL, memory="80MiB", on_change="restart")
    require(fields(restarted) == [] and chain(host, live=True) == chain(host, live=False) == files, what, restarted.instances, chain(host, live=True))
    host.state().destroy()
    refused(host, f"removal of one that is off, under {what}", "conflict", "is used by", "(start the domain, then merge it: virsh ", state="absent")
    started = done(host, f"{what} started", ["start domain"], memory="80MiB")
    require(chain(host, live=True) == files and started.instances[0]["overlay"] == files[0], what, chain(host, live=True))
    for left in range(count, 0, -1):
        refused(host, f"removal under {what}", "conflict", "is used by", f"{OVER}-", ".s0", "(merge it: virsh ", state="absent")
        failed = host.domain(check=True, state="absent")
        shell(*re.search(r"\(merge it: (virsh [^)]*)\)", failed.msg)[1].split())
        require(chain(host, live=True) == files[count - left + 1:], what, left, chain(host, live=True))
    merged = unchanged(host, f"{what}, merged", memory="80MiB")
    require(merged.instances[0]["overlay"] == overlay, what, merged.instances)
    predicted = host.quietly(f"check of the removal of {what}", lambda: host.domain(check=True, state="absent"))
    gone = host.remove()
    require(predicted.actions == gone.actions, what, predicted.actions, gone.actions)
    require(any(f"{count} snapshots" in action["name"] for action in gone.actions) == (not flags), what, gone.actions)
    require(not [name for name in os.listdir(FOLDER) if f"{OVER}-" in name], what, os.listdir(FOLDER))


def without_metadata(host, base):
    snapshots(host, base, "--no-metadata", count=2)


def with_metadata(host, base):
    snapshots(host, base, count=1)


def detach(disk):
    shell("virsh", "-q", "detach-disk", OVER, disk, "--config")


def detached(host, base):
    """A seed comes back with a redefinition, before the guest is started; the overlay of one that has it detached is not deleted."""
    made = host.create(base).instances[0]
    for before, wanted in (("running", ["redefine domain"]), ("off", ["redefine domain", "start domain"])):
        if before == "off":
            host.state().destroy()
        detach("vdb")
        found = unchanged(host, f"a detached seed of one that is {before}", on_change="report", state="defined")
        require(fields(found) == ["seed"] and found.instances[0]["drift"][0]["needs"] == "redefine", before, found.instances)
        if before == "off":
            refused(host, "a start without its seed", "conflict", "its seed was detached", "Set on_change to redefine", on_change="report")
        back = done(host, f"a detached seed of one that is {before}", wanted)
        require(back.instances[0]["seed"] == made["seed"] and fields(back) == [] and host.state().isActive(), before, back.instances)
    host.state().destroy()
    detach("vdb")
    shell("virsh", "-q", "vol-delete", made["seed"], POOL)
    refused(host, "a start without a seed that has gone", "conflict", "its seed was detached", "Set on_change to restart")
    anew = done(host, "a detached seed that has gone", [*NEW_SEED, "redefine domain", "start domain"], on_change="restart")
    require(anew.instances[0]["seed"] not in (None, made["seed"]) and fields(anew) == [], anew.instances)
    host.state().destroy()
    detach("vda")

    def overlays_absent(check):
        return host.module("overlay", check, fleet=FLEET, pool=POOL, instances=[{"name": "one"}], state="absent")
    for check in (True, False):
        kept = host.quietly("its overlay is detached", lambda mode=check: overlays_absent(mode))
        require(kept.failed and kept.error["kind"] == "conflict" and f"domain {OVER} is there" in kept.msg, vars(kept))
    shell("virsh", "-q", "attach-disk", OVER, f"{FOLDER}/{made['overlay']}", "vda", "--subdriver", "qcow2", "--targetbus", "virtio", "--config")
    host.remove()


if __name__ == "__main__":
    run_parts(without_metadata, with_metadata, detached)
