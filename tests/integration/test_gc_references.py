# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every way in which a file can be in use on a real libvirt keeps it, and what nothing uses goes."""

from __future__ import annotations

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._policy.names import BaseName, InstanceVolumeName, derive_uid

from .collecting import POOL, clean_up, collect, names

FLEET = "gcrefs"
ASIDE = "/srv/gcrefs"
WAYS = (
    "path", "pool-volume", "symlink", "json", "relative", "link-below", "snapshot", "snapshot-only", "blockcopy", "unlisted", "beside", "cdrom",
    "commandline")
# One base for each way, and one that nothing uses.
BASES = {way: str(BaseName("gcrefs", f"{number:016x}", f"{number:06x}", "qcow2")) for number, way in enumerate((*WAYS, "nobody"))}
ORPHANS = {
    way: str(InstanceVolumeName("overlay", FLEET, way, derive_uid(FLEET, way), "00000a")) for way in ("linked", "unlisted", "nobody")}

SETUP = f"""
set -e
mkdir -p {ASIDE} && cd {POOL}
for name in {' '.join((*BASES.values(), *ORPHANS.values()))}; do qemu-img create -q -f qcow2 $name 1M; touch -d '3 days ago' $name; done
below() {{ qemu-img create -q -f qcow2 -b "$2" -F qcow2 "$1"; }}
domain() {{
    printf "<domain type='qemu'><name>gcrefs-$1</name><memory>65536</memory><os><type>hvm</type></os><devices>$2</devices></domain>" > {ASIDE}/xml
    virsh -q define {ASIDE}/xml
}}
disk() {{ printf "<disk type='file'><driver name='qemu' type='qcow2'/><source file='$1'/><target dev='vda' bus='virtio'/></disk>"; }}
domain path "$(disk {POOL}/{BASES['path']})"
domain pool-volume "<disk type='volume'><driver name='qemu' type='qcow2'/><source pool='default' volume='{BASES['pool-volume']}'/><target dev='vda'/></disk>"
ln -s {POOL}/{BASES['symlink']} {ASIDE}/link && domain symlink "$(disk {ASIDE}/link)"
qemu-img create -q -f qcow2 -F qcow2 -b 'json:{{"driver":"qcow2","file":{{"driver":"file","filename":"{POOL}/{BASES['json']}"}}}}' gcrefs-json.qcow2
below gcrefs-relative.qcow2 {BASES['relative']}
ln -s {BASES['link-below']} gcrefs-link && below gcrefs-link-below.qcow2 gcrefs-link
domain snapshot "$(disk {POOL}/{BASES['snapshot']})" && virsh -q snapshot-create-as gcrefs-snapshot one --disk-only >&2
domain snapshot-only "$(disk {POOL}/{BASES['snapshot-only']})" && virsh -q snapshot-create-as gcrefs-snapshot-only one --disk-only >&2
rm {POOL}/{BASES['snapshot-only'].rpartition('.')[0]}.one
virsh -q dumpxml gcrefs-snapshot-only --inactive | sed '/<disk /,/<\\/disk>/d' > {ASIDE}/xml && virsh -q define {ASIDE}/xml
qemu-img create -q -f qcow2 {ASIDE}/copied.qcow2 1M && below {ASIDE}/copy.qcow2 {POOL}/{BASES['blockcopy']}
chmod -R a+rwX {ASIDE}
domain blockcopy "$(disk {ASIDE}/copied.qcow2)" && virsh -q start gcrefs-blockcopy --paused
virsh -q blockcopy gcrefs-blockcopy vda {ASIDE}/copy.qcow2 --reuse-external --transient-job
below {ASIDE}/top.qcow2 {POOL}/{BASES['unlisted']} && domain unlisted "$(disk {ASIDE}/top.qcow2)"
virsh -q pool-refresh default
below gcrefs-beside.qcow2 {BASES['beside']}
domain cdrom "<disk type='file' device='cdrom'><source file='{POOL}/{BASES['cdrom']}'/><target dev='sda' bus='sata'/></disk>"
printf "<domain type='qemu' xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0'><name>gcrefs-commandline</name><memory>65536</memory>
<os><type>hvm</type></os><q:commandline><q:arg value='-drive'/><q:arg value='file={POOL}/{BASES['commandline']},if=none,id=x'/></q:commandline>
</domain>" > {ASIDE}/xml && virsh -q define {ASIDE}/xml
ln -s {POOL}/{ORPHANS['linked']} {ASIDE}/overlay && domain linked "$(disk {ASIDE}/overlay)"
below {ASIDE}/above.qcow2 {POOL}/{ORPHANS['unlisted']} && domain orphan "$(disk {ASIDE}/above.qcow2)"
"""
USED = {name for table in (BASES, ORPHANS) for way, name in table.items() if way != "nobody"}
FREE = {BASES["nobody"], ORPHANS["nobody"]}
OPTIONS = {"fleet": FLEET, "live": ["somebody"], "incomplete_age": "12h", "keep_latest": False, "collect": ["volumes", "bases"]}


@pytest.fixture
def references(hv1):
    hv1.shell("hv1", SETUP)
    yield
    hv1.shell("hv1", "virsh -q pool-destroy gcrefs-off; virsh -q pool-undefine gcrefs-off; true")
    clean_up(hv1, "gcrefs", "kvm2-base-gcrefs|kvm2-gcrefs|gcrefs")
    hv1.shell("hv1", f"rm -rf {ASIDE}")


def of_ours(result, answer):
    return {item["name"] for item in result[answer] if "gcrefs" in item["name"] and item["what"] != "domain"}


def test_what_is_in_use_in_any_way_stays(hv1, references, tmp_path):
    listing = set(hv1.shell("hv1", f"ls {POOL}").split())
    assert listing >= USED | FREE

    # An inactive pool could hold a user of everything; it is named.
    hv1.shell("hv1", f"virsh -q pool-define-as gcrefs-off dir --target {ASIDE}/off")
    kept = collect(hv1, tmp_path, **OPTIONS)
    assert of_ours(kept, "collected") == set()
    assert any("gcrefs-off is not active" in reason for reason in kept["blocked"])
    assert all("gcrefs-off" in item["reason"] for item in kept["left_alone"] if item["name"] in FREE)

    done = collect(hv1, tmp_path, arguments=("--diff",), ignore_pools=["gcrefs-off"], **OPTIONS)
    assert of_ours(done, "collected") == FREE, done
    assert of_ours(done, "kept") >= USED, done["left_alone"]
    assert set(hv1.shell("hv1", f"ls {POOL}").split()) == listing - FREE
    users = {item["name"]: item["reason"] for item in done["kept"]}
    for way in ("path", "pool-volume", "symlink", "snapshot-only", "blockcopy", "unlisted", "cdrom", "commandline"):
        assert f"domain gcrefs-{way}" in users[BASES[way]]
    for way in ("json", "relative", "beside"):
        assert f"volume gcrefs-{way}.qcow2" in users[BASES[way]]
    assert names(done, "collected", "base") == [BASES["nobody"]]
