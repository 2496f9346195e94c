# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: oddities.py [PART…]. Instances in states that nobody asked for, and things of the host that are missing: what must not be
written is not."""

from __future__ import annotations

import os

import libvirt
from looking import shell
from states import FLEET, FOLDER, acts, fields, require, run_parts

OVER = f"{FLEET}.one"
FOREIGN = "<domain type='qemu'><name>{name}</name>{uuid}{metadata}<memory>65536</memory><os><type>hvm</type></os></domain>"


def unchanged(host, what, **given):
    done = host.quietly(what, lambda: host.domain(**given))
    require(not done.failed and not done.changed, what, getattr(done, "msg", done.actions))
    return done


def refused(host, what, kind, *words, check=False, **given):
    """A run that fails with that kind of error and these words, and writes nothing; its check says the same."""
    for checked in ({False, True} if not check else {True}):
        done = host.quietly(what, lambda mode=checked: host.domain(check=mode, **given))
        require(done.failed and done.error["kind"] == kind, what, kind, vars(done))
        for word in words:
            require(word in done.msg, what, word, done.msg)
        require(not done.changed, what, done.actions)


def kept_as_they_are(host, base):
    """Snapshots, a managed save, autostart, foreign metadata, a device that somebody attached, a running guest that was undefined."""
    host.create(base)
    domain = host.state()
    shell("virsh", "-q", "attach-interface", OVER, "network", "default", "--mac", "52:54:00:11:22:33", "--config")
    shell("virsh", "metadata", OVER, "urn:other", "--key", "other", "--set", "<app><x>1</x></app>", "--config", "--live")
    domain.destroy()
    shell("virsh", "-q", "snapshot-create-as", OVER, "s0")
    domain.create()
    shell("virsh", "-q", "snapshot-create-as", OVER, "s1", "--disk-only")
    require(domain.snapshotNum() == 2, "snapshots", domain.snapshotNum())
    unchanged(host, "snapshots, metadata and an interface of an operator")
    changed = host.domain(memory="96MiB")
    require(acts(changed.actions) == ["redefine domain"], "with snapshots", changed.actions)
    require(domain.snapshotNum() == 2 and "52:54:00:11:22:33" in domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE), "something was lost")
    require("urn:other" in domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE), "foreign metadata was lost")
    # The overlay is below the file of the external snapshot, which carries no name of ours.
    refused(host, "removal under an external snapshot", "conflict", "is used by", ".s1", state="absent")
    snapshot, = [name for name in os.listdir(FOLDER) if name.endswith(".s1")]
    os.remove(f"{FOLDER}/{snapshot}")
    gone = host.remove()
    require(any("2 snapshots" in action["name"] for action in gone.actions), "what was dropped", gone.actions)

    host.create(base)
    domain = host.state()
    domain.managedSave()
    for given in ({"state": "stopped"}, {"state": "defined"}, {"state": "stopped", "on_change": "replace"}):
        found = unchanged(host, f"a managed save under {given}", **given).instances[0]
        require((found["state"], found["reason"]) == ("stopped", "saved"), found)
    resumed = host.domain()
    require(acts(resumed.actions) == ["start domain"] and resumed.instances[0]["reason"] == "restored", resumed.actions)
    domain.suspend()
    for given in ({"state": "defined"}, {"state": "defined", "on_change": "restart"}):
        found = unchanged(host, "a paused one", **given).instances[0]
        require((found["state"], found["reason"]) == ("paused", "user"), found)
    resumed = host.domain()
    require(acts(resumed.actions) == ["resume domain"] and resumed.instances[0]["reason"] == "unpaused", resumed.actions)
    domain.undefine()
    found = unchanged(host, "one that runs undefined", on_change="report", autostart=False)
    require(fields(found) == ["definition"] and found.instances[0]["state"] == "provisioning", found.instances)
    refused(host, "stopping it", "conflict", "would lose it", on_change="report", state="stopped", autostart=False)
    stopped = host.domain(state="stopped")
    require(acts(stopped.actions) == ["redefine domain", "enable autostart", "stop domain"] and not host.state().isActive(), stopped.actions)
    host.remove()


def somebody_elses(host, base):
    host.create(base)
    mark = host.state().metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, "urn:egress:kvm2:instance:1")
    for what, name, uuid, words in (
            ("a foreign domain of the same name", f"{FLEET}.two", "", ("carries no mark", f"{FLEET}.two")),
            ("the mark copied to another domain of another name", f"{FLEET}.three", "", ("there is a domain",)),
            ("a foreign domain with its UUID", "other", host.domain(check=True, names=["four"], state="absent").instances[0]["uid"], ("other",))):
        asked = {"other": "four"}.get(name, name.partition(".")[2])
        xml = FOREIGN.format(name=name, uuid=f"<uuid>{uuid}</uuid>" if uuid else "", metadata=f"<metadata>{mark}</metadata>" if "copied" in what else "")
        foreign = host.connection.defineXML(xml)
        for state in ("running", "stopped", "defined", "absent"):
            refused(host, f"{what}, {state}", "conflict", *words, "Nothing was changed", names=[asked], state=state)
        foreign.undefine()
    host.remove()


def missing(host, base):
    host.overlays(base)
    for what, words, given in (
            ("network", ["nowhere"], {"networks": [{"network": "nowhere"}]}),
            ("bridge", ["br-nowhere"], {"networks": [{"bridge": "br-nowhere"}]}),
            ("machine", ["pdp11"], {"machine": "pdp11"}),
            ("all at once", ["nowhere", "br-nowhere", "pdp11"], {
                "networks": [{"network": "nowhere"}, {"bridge": "br-nowhere"}], "machine": "pdp11"}),
            *([] if os.path.exists("/dev/kvm") else [("KVM", ["/dev/kvm"], {"virt_type": "kvm"})]),
            ("pool", ["there is no such pool"], {"pool": "nowhere"})):
        refused(host, f"missing {what}", "permanent", *words, **given)
    # One that is there is not touched either, though it differs.
    host.create(base)
    for what, words, given in (
            ("network", ["nowhere"], {"networks": [{"network": "nowhere"}]}), ("machine", ["pdp11"], {"machine": "pdp11", "on_change": "restart"})):
        refused(host, f"missing {what} for a change", "permanent", *words, **given)
    host.remove()
    # The daemon finds its firmware by these descriptions.
    folder = "/usr/share/qemu/firmware"
    shell("mount", "-t", "tmpfs", "tmpfs", folder)
    try:
        host.restart_daemon()
        host.overlays(base)
        refused(host, "missing firmware", "permanent", "efi", firmware="efi")
    finally:
        shell("umount", folder)
        host.restart_daemon()
    host.module("overlay", fleet=FLEET, pool="states", instances=[{"name": "one"}], state="absent")


def with_nvram(host, base):
    made = host.create(base, firmware="efi", machine="q35")
    domain = host.state()
    folder = "/var/lib/libvirt/qemu/nvram"
    stores = [name for name in os.listdir(folder) if name.startswith(OVER)]
    # libvirt 9 tells it of the running guest only.
    require(len(stores) == 1 and "<nvram" in domain.XMLDesc(0), "NVRAM", stores)
    unchanged(host, "UEFI", firmware="efi", machine="q35")
    restarted = host.domain(firmware="efi", machine="q35", memory="96MiB", on_change="restart")
    require(acts(restarted.actions) == ["stop domain", "redefine domain", "start domain"] and not fields(restarted), restarted.actions)
    require([name for name in os.listdir(folder) if name.startswith(OVER)] == stores, "the NVRAM is another one")
    gone = host.remove()
    require(any("NVRAM" in action["name"] for action in gone.actions), gone.actions)
    require(not [name for name in os.listdir(folder) if name.startswith(OVER)], "its NVRAM is left", made.instances)


def vanished(host, base):
    for running in (False, True):
        what = "a disk that has gone under " + ("a running guest" if running else "one that is off")
        made = host.create(base, state="running" if running else "defined")
        os.remove(f"{FOLDER}/{made.instances[0]['overlay']}")
        found = unchanged(host, what, state="defined", on_change="report")
        require(fields(found) == ["overlay"] and found.instances[0]["drift"][0]["needs"] == "replace", what, found.instances)
        require(found.instances[0]["drift"][0]["want"] == "a file that exists", what, found.instances)
        if not running:
            refused(host, what, "permanent", "its overlay", "has gone", "replace: true", state="running")
        refused(host, what, "permanent", "has gone", state="running", on_change="replace")
        volume = host.overlays(base, replace=True)["one"]
        mended = host.domain(names=[{"name": "one", "overlay": volume}], on_change="replace")
        require(not mended.failed and mended.instances[0]["overlay"] == volume and not fields(mended), what, vars(mended))
        host.remove()


def crashed(host, base):
    made = host.create(base)
    domain = host.state()
    with open(f"/run/libvirt/qemu/{OVER}.pid", encoding="ascii") as file:
        pid = int(file.read())
    os.kill(pid, 9)
    while domain.isActive():
        pass
    found = unchanged(host, "one whose QEMU crashed", state="defined").instances[0]
    require((found["state"], found["reason"]) == ("stopped", "crashed"), found)
    started = host.domain()
    require(acts(started.actions) == ["start domain"] and started.instances[0]["overlay"] == made.instances[0]["overlay"], started.actions)
    host.remove()


if __name__ == "__main__":
    run_parts(kept_as_they_are, somebody_elses, vanished, crashed, with_nvram, missing)
