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


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "image.qcow2"
    path.write_bytes(bytes(qcow2_bytes.image(GIB)) + b"\0" * 70000)
    return str(path)


@pytest.fixture
def hypervisor(image):
    return FakeHypervisor(uri=LOCAL)


@pytest.fixture
def base(hypervisor, image):
    done = run_module("image", FakeHypervisor(hypervisor.machine), key="micro", src=image)
    return done.image["base"]


def overlay(hypervisor, base, check=False, **given):
    return run_module("overlay", hypervisor, check=check, **{"fleet": "edge", "base": base, "instances": [{"name": "one"}], **given})


def overlays(hypervisor):
    return sorted(path for path in hypervisor.machine.files if names.parse_instance_volume(path.rpartition("/")[2]))


def test_made_then_taken(hypervisor, base):
    predicted = overlay(hypervisor, base, check=True, instances=[{"name": "one"}, {"name": "two", "capacity": "3GiB"}])
    assert overlays(hypervisor) == []
    made = overlay(hypervisor, base, instances=[{"name": "one"}, {"name": "two", "capacity": "3GiB"}])
    assert [one["status"] for one in predicted.overlays] == [one["status"] for one in made.overlays] == ["created", "created"]
    assert [one["capacity"] for one in made.overlays] == [GIB, 3 * GIB]
    assert [one["path"] for one in made.overlays] == overlays(hypervisor)
    taken = overlay(hypervisor, base, instances=[{"name": "one"}, {"name": "two", "capacity": "3GiB"}])
    assert not taken.changed and [one["status"] for one in taken.overlays] == ["taken", "taken"]
    assert [one["overlay"] for one in taken.overlays] == [one["overlay"] for one in made.overlays]


@pytest.mark.parametrize("spoil", ["old", "written", "small", "foreign base"])
def test_unfit_ones_are_left_alone(hypervisor, base, image, spoil):
    first = overlay(hypervisor, base).overlays[0]
    wanted = {"base": base, "capacity": None}
    if spoil == "old":
        hypervisor.machine.make_old(first["path"], 601)
    elif spoil == "written":
        qcow2_bytes.write(hypervisor.machine.file(first["path"]).data)
    elif spoil == "small":
        wanted["capacity"] = "2GiB"
    else:
        hypervisor.machine.put_image(first["path"], backing_path=f"{POOL}/other.qcow2", backing_format="qcow2")
    second = overlay(hypervisor, **wanted)
    assert second.overlays[0]["status"] == "created" and second.overlays[0]["overlay"] != first["overlay"]
    assert first["path"] in hypervisor.machine.files


def test_over_a_remote_connection_none_is_taken(hypervisor, base):
    overlay(hypervisor, base)
    assert overlay(FakeHypervisor(hypervisor.machine), base).overlays[0]["status"] == "created"


def test_stale_ones_can_be_refused(hypervisor, base):
    first = overlay(hypervisor, base).overlays[0]
    qcow2_bytes.write(hypervisor.machine.file(first["path"]).data)
    failed = overlay(hypervisor, base, on_stale="fail")
    assert failed.error["kind"] == "conflict" and first["overlay"] in failed.msg


def test_a_base_retired_before_the_second_look_costs_the_overlay_and_is_transient(hypervisor, base):
    hypervisor.hook("create_volume", lambda *args: hypervisor.delete_volume("default", f"{base}.json"), when="after", nth=1)
    failed = overlay(hypervisor, base)
    assert failed.error["kind"] == "transient" and not failed.changed and overlays(hypervisor) == []


def test_a_base_retired_while_an_overlay_is_taken_is_transient(hypervisor, base):
    overlay(hypervisor, base)
    seen = []

    def retire(pool, name, *rest):
        # The second reading of the record is the one in apply.
        if name == f"{base}.json":
            seen.append(name)
            if len(seen) == 2:
                FakeHypervisor(hypervisor.machine).delete_volume(pool, name)
    hypervisor.hook("volume", retire, when="before")
    failed = overlay(hypervisor, base)
    assert failed.failed and failed.error["kind"] == "transient"


@pytest.mark.parametrize("given, kind, word", [
    ({"capacity": "512MiB"}, "permanent", str(GIB)), ({"capacity": "12"}, "permanent", "unit"), ({"fleet": "Edge"}, "permanent", "not a label"),
    ({"base": "other.qcow2"}, "permanent", "not the name of a base"), ({"instances": [{"name": "a"}, {"name": "a"}]}, "permanent", "several"),
    ({"instances": [{"name": "a", "uid": "x"}]}, "permanent", "not a UUID"),
    ({"base": "kvm2-base-micro-0123456789abcdef-000001.qcow2"}, "transient", "not there"),
])
def test_wrong_input(hypervisor, base, given, kind, word):
    failed = overlay(hypervisor, **{"base": base, **given})
    assert failed.failed and failed.error["kind"] == kind and word in failed.msg and overlays(hypervisor) == []


def test_a_predicted_base_is_for_check_mode_only(hypervisor, base):
    predicted = names.parse_base(base)
    name = str(names.BaseName(predicted.key, predicted.id16, names.PREDICTED_NONCE, "qcow2"))
    assert overlay(hypervisor, name, check=True).overlays[0]["status"] == "created"
    failed = overlay(hypervisor, name)
    assert failed.failed and "predicted" in failed.msg and overlays(hypervisor) == []


def test_one_failure_does_not_stop_the_others(hypervisor, base):
    failed = overlay(hypervisor, base, instances=[{"name": "small", "capacity": "1MiB"}, {"name": "good"}])
    assert failed.failed and [error["item"] for error in failed.errors] == ["small"]
    assert [one["name"] for one in failed.overlays] == ["good"] and failed.changed and len(overlays(hypervisor)) == 1


def test_nothing_to_do_for_no_instances(hypervisor, base):
    done = overlay(hypervisor, base, instances=[])
    assert not done.failed and not done.changed and done.overlays == []
    assert not overlay(hypervisor, "kvm2-base-micro-0123456789abcdef-000001.qcow2", instances=[]).failed
