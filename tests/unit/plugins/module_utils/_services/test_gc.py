# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._policy import names
from ansible_collections.egress.kvm2.tests.unit.fake import qcow2_bytes
from ansible_collections.egress.kvm2.tests.unit.fake.hypervisor import FakeHypervisor
from ansible_collections.egress.kvm2.tests.unit.fake.machine import GIB
from ansible_collections.egress.kvm2.tests.unit.running import run_module

POOL = "/var/lib/libvirt/images"
LOCAL = "qemu:///system"
DAY = 86400


@pytest.fixture
def hypervisor(tmp_path):
    """Two instances that are off, their base, a foreign file, and two days that have passed since."""
    path = tmp_path / "image.qcow2"
    path.write_bytes(bytes(qcow2_bytes.image(GIB)) + b"\0" * 70000)
    fake = FakeHypervisor(uri=LOCAL)
    fake.machine.put_file(f"{POOL}/base-debian-13.qcow2", b"somebody else's")
    fake.base = run_module("image", fake, key="micro", src=str(path)).image["base"]
    both = [{"name": "one"}, {"name": "two"}]
    run_module("overlay", fake, fleet="edge", base=fake.base, instances=both)
    made = run_module(
        "domain", fake, fleet="edge", host="hv1", memory="128MiB", networks=[{"network": "default"}], state="stopped", instances=both)
    assert not made.failed, made.msg
    fake.machine.advance(2 * DAY)
    fake.forget_calls()
    return fake


def gc(hypervisor, check=False, **given):
    return run_module("gc", hypervisor, check=check, **{"fleet": "edge", "host": "hv1", "live": ["one"], "max_delete": "50%", **given})


def files(hypervisor):
    return {path.rpartition("/")[2] for path in hypervisor.machine.files}


def gone(result, what):
    return [item["name"] for item in result.collected if item["what"] == what]


def test_an_orphan_goes_with_its_volumes_and_the_rest_stays(hypervisor):
    before = files(hypervisor)
    predicted = gc(hypervisor, check=True)
    assert hypervisor.writes == [] and files(hypervisor) == before
    done = gc(hypervisor)
    assert not done.failed, done.msg
    assert predicted.collected == done.collected and [one["name"] for one in predicted.actions] == [one["name"] for one in done.actions]
    assert gone(done, "domain") == ["edge.two"]
    assert set(before - files(hypervisor)) == {name for name in before if name.startswith("kvm2-edge.two-")}
    assert [domain.name for domain in hypervisor.domains()] == ["edge.one"]
    again = gc(hypervisor)
    assert not again.changed and again.collected == []


def test_an_uid_in_the_live_set_keeps_its_instance(hypervisor):
    assert not gc(hypervisor, live=["one", names.derive_uid("edge", "two").upper()]).changed


@pytest.mark.parametrize("given, word", [
    ({"live": []}, "allow_empty_live"), ({"max_delete": "0"}, "max_delete"), ({"live": ["Not A Name"]}, "neither the name nor the uid"),
    ({"incomplete_age": "1h"}, "incomplete_age"), ({"fleet": "Edge"}, "not a label"), ({"pools": ["nowhere"]}, "no such pool"),
])
def test_what_cannot_be_meant_deletes_nothing(hypervisor, given, word):
    failed = gc(hypervisor, **given)
    assert failed.failed and failed.error["kind"] == "permanent" and word in failed.msg and hypervisor.writes == []


def test_old_bases_and_leftovers_go_and_the_newest_stays(hypervisor, tmp_path):
    other = tmp_path / "other.qcow2"
    other.write_bytes(bytes(qcow2_bytes.image(2 * GIB)) + b"\0" * 70000)
    newer = run_module("image", hypervisor, key="micro", src=str(other)).image["base"]
    half = str(names.BaseName("micro", "0" * 16, "abcdef", "qcow2"))
    hypervisor.machine.put_file(f"{POOL}/{half}", b"half", age=2 * DAY)
    hypervisor.machine.advance(2 * DAY)
    done = gc(hypervisor, live=["one", "two"])
    assert gone(done, "base") == [half] and newer in files(hypervisor) and hypervisor.base in files(hypervisor)
    done = gc(hypervisor, live=[], allow_empty_live=True, max_delete="100%")
    assert sorted(gone(done, "domain")) == ["edge.one", "edge.two"]
    done = gc(hypervisor, live=[], allow_empty_live=True)
    assert gone(done, "base") == [hypervisor.base] and newer in files(hypervisor)
    done = gc(hypervisor, live=[], allow_empty_live=True, keep_latest=False)
    assert gone(done, "base") == [newer] and files(hypervisor) == {"base-debian-13.qcow2"}


def test_what_cannot_be_seen_protects_bases_and_orphans(hypervisor):
    run_module("domain", hypervisor, fleet="edge", state="absent", instances=[{"name": "one"}, {"name": "two"}])
    hypervisor.machine.add_pool("archive", "/srv/archive", active=False)
    kept = gc(hypervisor, live=["one"], keep_latest=False)
    assert not kept.changed and any("archive" in item["reason"] for item in kept.left_alone)
    assert gc(hypervisor, live=["one"], keep_latest=False, ignore_pools=["archive"]).changed


def test_somebody_who_starts_to_use_a_base_meanwhile_keeps_it(hypervisor):
    run_module("domain", hypervisor, fleet="edge", state="absent", instances=[{"name": "one"}, {"name": "two"}])
    hypervisor.hook(
        "delete_volume",
        lambda *args: hypervisor.machine.put_image(f"{POOL}/late.qcow2", GIB, f"{POOL}/{hypervisor.base}", "qcow2"), when="after", nth=1)
    done = gc(hypervisor, keep_latest=False)
    assert not done.failed and hypervisor.base in files(hypervisor) and f"{hypervisor.base}.json" not in files(hypervisor)
    assert any("late.qcow2" in text for text in done.warnings)
