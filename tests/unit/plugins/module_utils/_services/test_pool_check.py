# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from dataclasses import replace

import pytest
from lxml import etree

from ansible_collections.egress.kvm2.plugins.module_utils._host import filesystem, host_files, python_libraries
from ansible_collections.egress.kvm2.plugins.module_utils._policy import mark, names, record
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error
from ansible_collections.egress.kvm2.plugins.module_utils._policy.host_state import GuestsService, HostState, Kvm, Library, Node, Runtime, User
from ansible_collections.egress.kvm2.plugins.module_utils._services import pools
from ansible_collections.egress.kvm2.tests.unit.fake.calls import WRITING
from ansible_collections.egress.kvm2.tests.unit.fake.hypervisor import FakeHypervisor
from ansible_collections.egress.kvm2.tests.unit.fake.machine import GIB
from ansible_collections.egress.kvm2.tests.unit.running import run_module

POOL = "/var/lib/libvirt/images"
QEMU = User(64055, 64055, frozenset((993,)), "libvirt-qemu")
LIBRARIES = (Library("libvirt", "11.3.0"), Library("lxml", "5.4.0"), Library("pycdlib", "1.12.0"))
RUNTIME = Runtime("/usr/bin/python3", "3.13.5", ("debian",), LIBRARIES)
GOOD = HostState(
    {"br0": True, "br1": False}, Kvm(Node("/dev/kvm", 0, 993, 0o660)), (Node("/", 0, 0, 0o755), Node(POOL, 0, 0, 0o711)), QEMU,
    GuestsService(True, "ignore", "shutdown", "/etc/default/libvirt-guests"), 8 * GIB)
OVERLAY = str(names.InstanceVolumeName("overlay", "edge", "one", names.derive_uid("edge", "one"), "00000a"))
DOMAIN = """<domain type='qemu'><name>{name}</name><uuid>{uuid}</uuid><memory unit='GiB'>{gib}</memory><vcpu>{vcpus}</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os><devices>{disks}</devices></domain>"""


@pytest.fixture
def hypervisor():
    return FakeHypervisor()


@pytest.fixture(autouse=True)
def runtime(monkeypatch):
    """What the Python that runs the module has is the same on every machine that runs these tests."""
    monkeypatch.setattr(python_libraries, "runtime", lambda: RUNTIME)


@pytest.fixture
def local(monkeypatch):
    """A hypervisor that the module runs on; local.state and local.room say what it sees there."""
    found = FakeHypervisor(uri="qemu:///system")
    found.state = GOOD
    found.room = filesystem.Filesystem(100 * GIB, 90 * GIB, 80 * GIB, 1000, 500)
    monkeypatch.setattr(host_files, "look", lambda path, ids: found.state)
    monkeypatch.setattr(host_files, "bridges", lambda: found.state.bridges)
    monkeypatch.setattr(filesystem, "statistics", lambda path: found.room)
    monkeypatch.setattr(filesystem, "same", lambda path, other: other.startswith("/same"))
    monkeypatch.setattr(pools.local, "exists", lambda path: True)
    monkeypatch.setattr(pools.local, "filesystem_type", lambda path: "ext4")
    return found


def check(hypervisor, mode=False, **given):
    return run_module("pool_check", hypervisor, check=mode, **given)


def by_name(result, start):
    return next(one for one in result.checks if one["name"].startswith(start))


def statuses(result, *wanted):
    return {one["name"] for one in result.checks if one["status"] in wanted}


def put_domain(hypervisor, name="edge.one", uuid=None, gib=1, vcpus=1, disks=(), start=False, mark_of=None):
    texts = "".join(f"<disk type='file' device='disk'><source file='{path}'/><target dev='vda'/></disk>" for path in disks)
    uuid = uuid or names.derive_uid(*name.split("."))
    xml = DOMAIN.format(name=name, uuid=uuid, gib=gib, vcpus=vcpus, disks=texts)
    if mark_of:
        element = etree.tostring(mark.to_element(mark.Mark(*mark_of, names.derive_uid(*mark_of), 1700000000)), encoding="unicode")
        xml = xml.replace("<memory", f"<metadata>{element}</metadata><memory", 1)
    hypervisor.define(xml)
    if start:
        hypervisor.start(uuid)
    hypervisor.forget_calls()


# -- space

def test_figures_over_a_remote_connection(hypervisor):
    hypervisor.machine.put_image(f"{POOL}/o", 10 * GIB, f"{POOL}/b", "qcow2")
    hypervisor.machine.put_image(f"{POOL}/b", 2 * GIB)
    done = check(hypervisor, need={"instances": 2, "capacity": "4GiB", "image": "1GiB"}, reserve="10GiB")
    assert not done.failed and not done.changed and hypervisor.writes == []
    space = done.space
    assert (space["needed"], space["reserve"], space["available_source"]) == (9 * GIB, 10 * GIB, "libvirt")
    assert 89 * GIB < space["available"] <= 90 * GIB and 9 * GIB < space["growth"] <= 10 * GIB
    assert by_name(done, "inodes")["status"] == "skipped"


def test_figures_of_the_filesystem(local):
    done = check(local, need={"bytes": "76GiB"})
    space = done.space
    assert (space["available"], space["available_source"], space["used"], space["room"]) == (80 * GIB, "filesystem", 10 * GIB, 75 * GIB)
    assert done.failed and done.error["kind"] == "quota" and "1.0 GiB are missing" in done.msg
    assert not check(local, need={"bytes": "75GiB"}).failed
    assert (space["inodes_available"], space["inodes_needed"]) == (500, 0)


def test_inodes_are_needed_too(local):
    local.room = replace(local.room, inodes_available=5)
    failed = check(local, need={"instances": 3, "capacity": "1MiB"})
    assert failed.error["kind"] == "quota" and by_name(failed, "inodes")["status"] == "fail"
    assert not check(local, need={"instances": 2, "capacity": "1MiB"}).failed


def test_growth_of_other_pools_on_the_same_filesystem(local):
    for name, path, size in (("beside", "/same/a", 7), ("twin", "/same/a", 7), ("elsewhere", "/other", 50)):
        local.machine.add_pool(name, path)
        local.machine.put_image(f"{path}/o", size * GIB, f"{POOL}/b", "qcow2")
    local.machine.put_image(f"{POOL}/data", 5 * GIB)
    for pool in ("default", "beside", "twin", "elsewhere"):
        local.refresh_pool(pool)
    put_domain(local, "other", "11111111-2222-5333-8444-555555555555", disks=[f"{POOL}/data"])
    space = check(local).space
    assert space["growth"] == 0 and 11.9 * GIB < space["growth_beside"] <= 12 * GIB
    local.fail_at("volumes", 2, Kvm2Error("permanent", "list", "volumes", "they are broken"))
    assert "they are broken" in by_name(check(local), "pool beside on the same")["message"]


def test_what_is_there_already_needs_no_room(hypervisor):
    need = {"fleet": "edge", "overlays": [{"name": "one", "capacity": "60GiB"}, {"name": "two", "capacity": "60GiB"}]}
    failed = check(hypervisor, need=need)
    assert failed.failed and failed.error["kind"] == "quota" and failed.space["needed"] == 120 * GIB
    assert by_name(failed, "space")["status"] == "fail"
    assert not check(hypervisor, need=need, fail=False).failed
    hypervisor.machine.put_image(f"{POOL}/b", GIB)
    hypervisor.machine.put_image(f"{POOL}/{OVERLAY}", 60 * GIB, f"{POOL}/b", "qcow2", age=86400)
    assert check(hypervisor, need=need).space["needed"] == 120 * GIB
    put_domain(hypervisor, disks=[f"{POOL}/{OVERLAY}"])
    done = check(hypervisor, need=need)
    assert not done.failed and done.space["needed"] == 60 * GIB
    assert by_name(done, "growth")["status"] == "warn"


def test_thin_disks_and_a_limit_of_overcommitment(hypervisor):
    need = {"instances": 10, "capacity": "20GiB", "filled": "30%"}
    done = check(hypervisor, need=need)
    assert not done.failed and (done.space["needed"], done.space["later"]) == (60 * GIB, 140 * GIB)
    assert statuses(done, "warn") >= {"growth in pool default", "overcommit of pool default"}
    failed = check(hypervisor, need=need, overcommit_limit=2.0)
    assert failed.error["kind"] == "quota" and "overcommit_limit" in failed.msg
    assert not check(hypervisor, need=need, overcommit_limit=2.2).failed


def put_base(hypervisor, digest="ab" * 32, url=""):
    name = names.BaseName("deb", digest[:16], "00ff00", "qcow2")
    data = record.render(record.Record("deb", "qcow2", 100, digest, f"sha256:{digest}", "http://x/i", f"sha256:{digest}", url, GIB, 1.0, True))
    hypervisor.machine.put_file(f"{POOL}/{name}", b"x" * 100)
    hypervisor.machine.put_file(f"{POOL}/{name}.json", data)


def test_only_the_image_that_is_wanted_counts_as_there(hypervisor):
    sums, digest = "https://images.example.com/SHA256SUMS", "ab" * 32

    def needed(**given):
        return check(hypervisor, need=dict({"image": "1GiB", "key": "deb"}, **given)).space["needed"]
    assert needed() == needed(checksum=f"sha256:{digest}") == GIB
    put_base(hypervisor, digest, sums)
    assert needed() == needed(checksum=f"sha256:{digest.upper()}") == needed(checksum=f"sha256:{sums}") == 0
    assert needed(checksum=f"sha256:{'cd' * 32}") == needed(checksum=f"sha256:{sums}2") == needed(key="other") == GIB


# -- the host

def test_all_that_is_missing_is_said_at_once(hypervisor):
    failed = check(hypervisor, need={"bytes": "1TiB"}, require={
        "virt_type": "kvm", "machine": "pdp11", "networks": ["nowhere"], "memory": "1TiB", "bridges": ["br0"]})
    assert {"machine", "network", "virt_type", "memory", "space"} == {name.split()[0] for name in statuses(failed, "fail")}
    assert by_name(failed, "bridge")["status"] == by_name(failed, "kvm device")["status"] == "skipped"
    for word in ("pdp11", "nowhere", "kvm", "needed"):
        assert word in failed.msg
    assert len(failed.errors) == 1 and json.dumps(failed.checks)


def test_a_pool_whose_folder_has_gone_is_not_told_to_be_started(local, monkeypatch):
    local.machine.pools["default"].active = False
    monkeypatch.setattr(pools.local, "exists", lambda path: False)
    assert f"Its folder {POOL} is not there: restore or mount it" in check(local).msg
    monkeypatch.setattr(pools.local, "exists", lambda path: True)
    assert "Start it: virsh pool-start default." in check(local).msg


def test_instances_with_the_mark_of_the_fleet_are_told(hypervisor):
    put_domain(hypervisor, "edge.unmarked")
    for name, start in (("edge.two", True), ("edge.one", False), ("other.one", True)):
        put_domain(hypervisor, name, start=start, mark_of=tuple(name.split(".")))
    put_domain(hypervisor, "edge.copy", mark_of=("edge", "three"))
    done = check(hypervisor, need={"fleet": "edge"})
    assert done.instances == [
        {"name": name, "uid": names.derive_uid("edge", name), "state": state} for name, state in (("one", "shutoff"), ("two", "running"))]
    assert not hasattr(check(hypervisor), "instances")


def test_a_pool_that_cannot_be_used_hides_nothing_else(hypervisor):
    hypervisor.machine.pools["default"].active = False
    failed = check(hypervisor, require={"networks": ["nowhere"]})
    assert statuses(failed, "fail") == {"pool default", "network nowhere"}
    assert "virsh pool-start default" in failed.msg and "nowhere" in failed.msg and not hasattr(failed, "space")
    missing = check(hypervisor, pool="nowhere", fail=False)
    assert not missing.failed and by_name(missing, "pool nowhere")["status"] == "fail" and "there are: default" in by_name(missing, "pool")["message"]


@pytest.mark.parametrize("kind, words", [("netfs", "shared storage"), ("logical", "type logical")])
def test_pools_that_are_not_ours_to_use(hypervisor, kind, words):
    hypervisor.machine.pools["default"].type = kind
    failed = check(hypervisor)
    assert failed.error["kind"] == "permanent" and words in failed.msg
    assert check(hypervisor, exclusive=True).failed is (kind != "netfs")


@pytest.mark.parametrize("kind, shared", [
    ("nfs4", True), ("9p", True), ("afs", True), ("fuse", True), ("fuse.sshfs", True), ("fuse.ceph-fuse", True), ("fuse.glusterfs", True),
    ("ext4", False), ("xfs", False), ("btrfs", False), ("overlay", False), ("tmpfs", False), ("fuseblk", False), (None, False),
])
def test_a_folder_on_a_network_filesystem_may_have_other_users(local, monkeypatch, kind, shared):
    monkeypatch.setattr(pools.local, "filesystem_type", lambda path: kind)
    found = check(local)
    assert found.failed is shared and not check(local, exclusive=True).failed
    if shared:
        assert f"shared storage ({kind})" in found.msg and "exclusive" in found.msg


def test_all_is_well(local):
    local.machine.virt_types = ["kvm", "qemu"]
    done = check(local, controller_time=str(local.machine.now), need={"instances": 1, "capacity": "1GiB"}, require={
        "virt_type": "kvm", "machine": "q35", "firmware": "efi", "cpu_mode": "maximum", "arch": "x86_64", "networks": ["default"],
        "bridges": ["br0"], "memory": "1GiB", "vcpus": 1, "vcpus_total": 1})
    assert not done.failed and done.warnings == [] and statuses(done, "warn", "fail", "skipped") == set()
    assert len(done.checks) == 25 and len({one["name"] for one in done.checks}) == 25
    assert done.report[0].startswith("OK  space in pool default") and len(done.report) == 25


@pytest.mark.parametrize("change, given, name, words", [
    ({"folders": (Node("/", 0, 0, 0o700),)}, {}, "access", "chmod o+x /"),
    ({"bridges": {"br1": False}}, {"bridges": ["br1"]}, "bridge br1", "ip link set br1 up"),
    ({"kvm": Kvm(None)}, {"virt_type": "kvm"}, "kvm device", "virtualisation"),
])
def test_what_leaves_new_instances_broken_fails(local, change, given, name, words):
    local.machine.virt_types = ["kvm", "qemu"]
    local.state = replace(GOOD, **change)
    failed = check(local, need={"instances": 1, "capacity": "1GiB"}, require=given)
    assert {found.split()[0] for found in statuses(failed, "fail")} == {name.split()[0]}
    assert failed.error["kind"] == "permanent" and words in failed.error["hint"]


def test_where_nothing_is_made_it_is_a_warning(local, monkeypatch):
    local.state = replace(GOOD, folders=(Node("/", 0, 0, 0o700),))
    monkeypatch.setattr(python_libraries, "runtime", lambda: replace(RUNTIME, libraries=(*LIBRARIES[:2], Library("pycdlib", None))))
    done = check(local)
    assert not done.failed and statuses(done, "warn") == {"access to pool default", "Python libraries"}
    assert any("apt-get install python3-pycdlib" in text for text in done.warnings)
    assert statuses(check(local, need={"instances": 1, "capacity": "1GiB"}), "fail") == {"access to pool default", "Python libraries"}


def test_warnings_of_the_host(local):
    local.machine.pools["default"].autostart = False
    local.state = replace(GOOD, guests=replace(GOOD.guests, on_boot="start"), memory_available=GIB)
    done = check(local, controller_time=str(local.machine.now - 61), require={"memory": "2GiB"})
    assert not done.failed
    assert statuses(done, "warn") == {"autostart of pool default", "libvirt-guests", "free memory", "clocks"}
    assert len(done.warnings) == 4 and any("not started together" in text for text in done.warnings)


def test_memory_and_processors_beside_other_guests(hypervisor):
    put_domain(hypervisor, "other.one", gib=10, vcpus=100, start=True)
    put_domain(hypervisor, "edge.one", gib=4, vcpus=20, start=True)
    require = {"memory": "7GiB", "vcpus_total": 30}
    failed = check(hypervisor, require=require)
    assert statuses(failed, "fail") == {"memory budget", "vcpu budget"} and "others that run" in failed.msg
    own = {"fleet": "edge", "overlays": [{"name": "one", "capacity": "1GiB"}]}
    assert statuses(check(hypervisor, require={"memory": "4GiB", "vcpus_total": 20}, need=own), "fail") == set()
    assert not check(hypervisor, require=require, memory_overcommit_ratio=2, vcpu_overcommit_ratio=20).failed


# -- nothing changes

@pytest.mark.parametrize("mode", [False, True])
@pytest.mark.parametrize("given", [{}, {"need": {"instances": 1, "capacity": "1TiB", "image": "1GiB", "key": "deb", "checksum": f"sha256:{'ab' * 32}"}}])
def test_no_call_changes_anything(hypervisor, local, mode, given):
    for one in (hypervisor, local):
        put_domain(one, start=True)
        files = one.machine.copy()
        for refresh in (False, True):
            one.forget_calls()
            check(one, mode, refresh=refresh, **given)
            operations = [call.operation for call in one.calls]
            assert operations and not WRITING & set(operations)
            assert operations.count("refresh_pool") == (1 if refresh else 0)
        assert one.machine.files.keys() == files.files.keys() and one.machine.domains == files.domains


def test_figures_without_a_refresh_say_so(hypervisor):
    assert "last refresh" in check(hypervisor, refresh=False).space["sources"]["available"]
    assert "read afresh" in check(hypervisor).space["sources"]["available"]


def test_a_refresh_that_fails_is_a_warning(hypervisor):
    hypervisor.fail_at("refresh_pool", 1, Kvm2Error("transient", "refresh", "pool default", "pool has asynchronous jobs running"))
    done = check(hypervisor)
    assert not done.failed and statuses(done, "warn") >= {"refresh of pool default"}
    assert "last refresh" in done.space["sources"]["available"]


def test_a_lost_connection_is_no_check(hypervisor):
    hypervisor.fail_at("pool", 1, Kvm2Error("transient", "look up", "pool default", "the link was cut"))
    failed = check(hypervisor)
    assert failed.error["kind"] == "transient" and not hasattr(failed, "checks")


@pytest.mark.parametrize("given, word", [
    ({"reserve": "5"}, "reserve"), ({"need": {"bytes": "5"}}, "need.bytes"), ({"overcommit_ratio": 0}, "overcommit_ratio"),
    ({"warn_reserve": "x"}, "warn_reserve"), ({"overcommit_limit": -1}, "overcommit_limit"), ({"vcpu_overcommit_ratio": 0}, "vcpu_overcommit_ratio"),
    ({"memory_overcommit_ratio": "inf"}, "memory_overcommit_ratio"), ({"controller_time": "noon"}, "controller_time"), ({"max_skew": "x"}, "max_skew"),
    ({"need": {"instances": -1, "capacity": "1GiB"}}, "need.instances"), ({"need": {"image": "1GiB", "key": "A"}}, "not a label"),
    ({"need": {"image": "1GiB", "key": "a", "checksum": "md5:0"}}, "need.checksum"), ({"need": {"filled": "1GiB"}}, "need.filled"),
    ({"need": {"filled": "0%"}}, "need.filled"), ({"require": {"memory": "x"}}, "require.memory"), ({"require": {"vcpus": 0}}, "require.vcpus"),
    ({"require": {"vcpus_total": -1}}, "vcpus_total"),
    ({"need": {"fleet": "edge", "overlays": [{"name": "one", "capacity": "1GiB", "uid": "x"}]}}, "not a UUID"),
])
def test_wrong_options(hypervisor, given, word):
    failed = check(hypervisor, **given)
    assert failed.error["kind"] == "permanent" and word in failed.msg and hypervisor.calls == []
