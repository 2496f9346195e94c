# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fake behaves as libvirt was measured to: what the other tests lean on."""

from __future__ import annotations

import subprocess

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error
from ansible_collections.egress.kvm2.tests.unit.fake import qcow2_bytes
from ansible_collections.egress.kvm2.tests.unit.fake.calls import Killed
from ansible_collections.egress.kvm2.tests.unit.fake.hypervisor import FakeHypervisor
from ansible_collections.egress.kvm2.tests.unit.fake.machine import GIB, Guest

FOLDER = "/var/lib/libvirt/images"
UUID = "11111111-2222-5333-8444-555555555555"


def raw(name, length, allocation=None):
    return (
        f"<volume><name>{name}</name><capacity unit='bytes'>{length}</capacity>"
        f"<allocation unit='bytes'>{length if allocation is None else allocation}</allocation>"
        "<target><format type='raw'/></target></volume>")


def overlay(name, capacity, backing=f"{FOLDER}/base"):
    return (
        f"<volume><name>{name}</name><capacity>{capacity}</capacity><allocation>0</allocation><target><format type='qcow2'/></target>"
        f"<backingStore><path>{backing}</path><format type='qcow2'/></backingStore></volume>")


def domain(name="edge.proxy", uuid=UUID, disk=f"{FOLDER}/o", network="default", metadata="", machine="q35", kind="qemu"):
    return (
        f"<domain type='{kind}'><name>{name}</name><uuid>{uuid}</uuid>{metadata}<memory unit='MiB'>512</memory>"
        f"<os><type arch='x86_64' machine='{machine}'>hvm</type></os><devices>"
        f"<disk type='file' device='disk'><source file='{disk}'/><target dev='vda' bus='virtio'/></disk>"
        f"<interface type='network'><mac address='52:54:00:00:00:01'/><source network='{network}'/></interface></devices></domain>")


@pytest.fixture
def fake():
    return FakeHypervisor()


@pytest.fixture
def machine(fake):
    fake.machine.put_image(f"{FOLDER}/base", 3 * GIB)
    fake.refresh_pool("default")
    fake.forget_calls()
    return fake.machine


def with_domain(fake, **options):
    fake.create_volume("default", overlay("o", 4 * GIB))
    return fake.define(domain(**options))


def refused(code):
    class Refused:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, trace):
            assert isinstance(error, Kvm2Error), error
            assert error.code == code, error
            self.error = error
            return True
    return Refused()


# -- volumes


def test_an_overlay_may_be_smaller_than_its_base(fake, machine):
    assert fake.create_volume("default", overlay("o", GIB)).capacity == GIB


def test_image_bytes_are_sound(tmp_path):
    base, file = tmp_path / "base", tmp_path / "o"
    base.write_bytes(qcow2_bytes.image(3 * GIB))
    data = qcow2_bytes.image(4 * GIB, str(base), "qcow2")
    for change in (lambda data: None, qcow2_bytes.write, lambda data: qcow2_bytes.grow(data, 9 * 1024 * GIB)):
        change(data)
        file.write_bytes(data)
        subprocess.run(["qemu-img", "check", "-q", str(file)], check=True)
    info = subprocess.run(["qemu-img", "info", "-U", str(file)], check=True, capture_output=True, text=True).stdout
    assert f"backing file: {base}" in info
    assert "backing file format: qcow2" in info
    assert f"({9 * 1024 * GIB} bytes)" in info


def test_the_volume_tells_its_backing_file(fake, machine):
    volume = fake.create_volume("default", overlay("o", 4 * GIB))
    assert (volume.format, volume.backing_path, volume.backing_format) == ("qcow2", f"{FOLDER}/base", "qcow2")


def test_overlay_on_a_missing_base(fake, machine):
    with refused(38):
        fake.create_volume("default", overlay("o", GIB, f"{FOLDER}/other"))
    assert fake.volume("default", "o") is None


def test_names_that_exist(fake, machine):
    with refused(90) as known:
        fake.create_volume("default", raw("base", 10))
    machine.put_file(f"{FOLDER}/beside", b"x")
    with refused(55) as unknown:
        fake.create_volume("default", raw("beside", 10))
    assert known.error.kind == unknown.error.kind == "conflict"


def test_a_used_base_can_be_deleted(fake, machine):
    fake.create_volume("default", overlay("o", GIB))
    assert fake.delete_volume("default", "base") is True
    assert fake.delete_volume("default", "base") is False


def test_a_file_beside_libvirt_is_seen_after_a_refresh(fake, machine):
    machine.put_file(f"{FOLDER}/beside", b"x")
    assert fake.volume("default", "beside") is None
    fake.refresh_pool("default")
    assert fake.volume("default", "beside").capacity == 1


def test_a_full_pool_refuses_and_keeps_nothing(fake, machine):
    with refused(38) as full:
        fake.create_volume("default", raw("large", 101 * GIB))
    assert full.error.kind == "quota"
    assert fake.volume("default", "large") is None
    assert f"{FOLDER}/large" not in machine.files


def test_available_is_cached(fake, machine):
    before = fake.pool("default").available
    machine.put_file(f"{FOLDER}/beside", b"x" * 1000)
    assert fake.pool("default").available == before
    fake.create_volume("default", raw("mine", 500))
    assert fake.pool("default").available == before - 500
    fake.refresh_pool("default")
    assert fake.pool("default").available == before - 1500


def test_upload_stores_the_bytes(fake, machine):
    data = bytes(qcow2_bytes.image(2 * GIB))
    fake.create_volume("default", raw("new", len(data)))
    fake.upload("default", "new", [data[:1000], data[1000:]], len(data))
    assert b"".join(fake.download("default", "new", 0, len(data) + 5)) == data
    volume = fake.volume("default", "new")
    assert (volume.format, volume.capacity, volume.physical) == ("qcow2", 2 * GIB, len(data))


@pytest.mark.parametrize("length", [3, 7])
def test_upload_of_another_length(fake, machine, length):
    fake.create_volume("default", raw("new", 5))
    with pytest.raises(Kvm2Error) as error:
        fake.upload("default", "new", [b"x" * length], 5)
    assert error.value.kind == "transient"


def test_upload_into_a_volume_that_is_deleted_meanwhile(fake, machine):
    fake.create_volume("default", raw("new", 4))

    def blocks():
        yield b"ab"
        other = FakeHypervisor(machine)
        other.delete_volume("default", "new")
        other.create_volume("default", raw("new", 4))
        yield b"cd"

    fake.upload("default", "new", blocks(), 4)
    assert b"".join(fake.download("default", "new", 0, 4)) == b"\0\0\0\0"


def test_upload_without_allocation_into_a_full_pool_ends_the_daemon(fake, machine):
    fake.create_volume("default", raw("thin", 10, allocation=0))
    machine.pools["default"].size = machine.file(f"{FOLDER}/base").allocated + 4
    with pytest.raises(RuntimeError):
        fake.upload("default", "thin", [b"12345"], 5)


def test_resize(fake, machine):
    with_domain(fake)
    fake.resize_volume("default", "o", 5 * GIB)
    assert fake.volume("default", "o").capacity == 5 * GIB
    with refused(8):
        fake.resize_volume("default", "o", GIB)
    fake.start(UUID)
    with refused(1):
        fake.resize_volume("default", "o", 6 * GIB)
    fake.block_resize(UUID, f"{FOLDER}/o", 6 * GIB)
    assert fake.volume("default", "o").capacity == 6 * GIB


def test_an_inactive_pool(fake, machine):
    machine.add_pool("off", "/off", active=False)
    for use in (lambda: fake.refresh_pool("off"), lambda: fake.volumes("off"), lambda: fake.create_volume("off", raw("x", 1))):
        with refused(55):
            use()


def test_symlinks(fake, machine):
    machine.put_symlink(f"{FOLDER}/link", "base")
    fake.refresh_pool("default")
    assert fake.volume("default", "link").capacity == 3 * GIB
    assert machine.realpath(f"{FOLDER}/link") == f"{FOLDER}/base"
    fake.delete_volume("default", "link")
    assert fake.volume("default", "base") is not None


def test_times(fake, machine):
    machine.advance(100)
    assert fake.create_volume("default", raw("new", 1)).mtime == machine.now
    assert fake.volume("default", "base").mtime == machine.now - 100


# -- domains


def test_a_redefinition_without_metadata_drops_it(fake, machine):
    with_domain(fake, metadata="<metadata><x:a xmlns:x='urn:x'>1</x:a></metadata>")
    fake.set_autostart(UUID, True)
    assert "urn:x" in fake.domain(UUID).xml
    again = fake.define(domain())
    assert "urn:x" not in again.xml
    assert again.autostart


def test_metadata_is_set_in_both_definitions(fake, machine):
    with_domain(fake, metadata="<metadata><y:b xmlns:y='urn:y'>2</y:b><x:a xmlns:x='urn:x'>1</x:a></metadata>")
    fake.start(UUID)
    assert fake.set_metadata(UUID, "x", "urn:x", "<a><n>3</n></a>")
    seen = fake.domain(UUID)
    for xml in (seen.xml, seen.live_xml):
        assert "<x:n>3</x:n>" in xml
        assert "urn:y" in xml
        assert ">1<" not in xml
    with refused(1):
        fake.set_metadata(UUID, "x", "urn:x", "<x:a xmlns:x='urn:x'/>")
    assert fake.set_metadata("99999999-2222-5333-8444-555555555555", "x", "urn:x", "<a/>") is False


def test_names_and_uuids_are_taken_once(fake, machine):
    with_domain(fake)
    with refused(9):
        fake.define(domain(uuid="99999999-2222-5333-8444-555555555555"))
    with refused(9):
        fake.define(domain(name="edge.other"))


def test_what_the_host_cannot_run(fake, machine):
    for options, code in (({"kind": "kvm"}, 8), ({"machine": "pc-q35-99"}, 27)):
        with refused(code) as error:
            fake.define(domain(**options))
        assert error.error.kind == "permanent"


def test_undefining_a_running_domain_leaves_it_transient(fake, machine):
    with_domain(fake)
    fake.start(UUID)
    assert fake.undefine(UUID)
    seen = fake.domain(UUID)
    assert (seen.persistent, seen.active, seen.xml) == (False, True, None)
    assert fake.undefine(UUID) is False
    assert fake.destroy(UUID)
    assert fake.domain(UUID) is None
    assert fake.destroy(UUID) is False


def test_start_with_missing_things(fake, machine):
    with_domain(fake)
    fake.define(domain(network="other"))
    with refused(43):
        fake.start(UUID)
    fake.define(domain())
    fake.delete_volume("default", "base")
    with refused(38):
        fake.start(UUID)
    fake.delete_volume("default", "o")
    with refused(38):
        fake.start(UUID)


def test_a_running_guest_keeps_its_deleted_disk(fake, machine):
    with_domain(fake)
    fake.start(UUID)
    assert fake.delete_volume("default", "o")
    assert fake.domain(UUID).active


def test_a_started_guest_writes_and_its_chain_shows(fake, machine):
    with_domain(fake)
    empty = bytes(machine.file(f"{FOLDER}/o").data)
    fake.start(UUID)
    assert bytes(machine.file(f"{FOLDER}/o").data) != empty
    assert f"{FOLDER}/base" in fake.domain(UUID).live_xml
    assert f"{FOLDER}/base" not in fake.domain(UUID).xml


def test_two_guests_cannot_share_a_disk(fake, machine):
    with_domain(fake)
    fake.start(UUID)
    other = fake.define(domain(name="edge.other", uuid="99999999-2222-5333-8444-555555555555"))
    with refused(1):
        fake.start(other.uuid)


def test_ways_to_stop(fake, machine):
    with_domain(fake)
    fake.start(UUID)
    assert fake.shutdown(UUID)
    assert fake.domain(UUID).state == "shutoff"
    assert fake.shutdown(UUID) is False
    machine.domain_state(UUID).guest = Guest(stops=2)
    fake.start(UUID)
    fake.shutdown(UUID)
    assert [fake.domain(UUID).active for _look in range(4)] == [True, True, False, False]
    machine.domain_state(UUID).guest = Guest(stops="never")
    fake.start(UUID)
    fake.shutdown(UUID)
    assert fake.domain(UUID).active
    machine.pause(UUID)
    with refused(55):
        fake.shutdown(UUID)
    fake.resume(UUID)
    assert fake.domain(UUID).state == "running"


def test_addresses_come_after_some_polls(fake, machine):
    machine.guest = Guest(addresses=("192.168.122.10",), polls=2)
    with_domain(fake)
    assert fake.addresses(UUID, "lease") == ()
    fake.start(UUID)
    assert [len(fake.addresses(UUID, "lease")) for _look in range(3)] == [0, 0, 1]
    assert fake.addresses(UUID, "lease")[0].mac == "52:54:00:00:00:01"


def test_a_save_never_resumes_over_another_disk(fake, machine):
    with_domain(fake)
    fake.start(UUID)
    machine.save(UUID)
    assert fake.domain(UUID).managed_save
    fake.create_volume("default", overlay("p", 4 * GIB))
    fake.define(domain(disk=f"{FOLDER}/p"))
    with pytest.raises(RuntimeError):
        fake.start(UUID)
    fake.define(domain())
    fake.start(UUID)
    assert fake.domain(UUID).reason == "restored"


def test_a_domain_without_a_mac_gets_another_at_each_define(fake, machine):
    text = domain().replace("<mac address='52:54:00:00:00:01'/>", "")
    assert fake.define(text).xml != fake.define(text).xml


# -- calls


def test_calls_are_recorded(fake, machine):
    fake.volumes("default")
    fake.create_volume("default", raw("new", 1))
    assert [call.operation for call in fake.calls] == ["volumes", "create_volume"]
    assert [call.operation for call in fake.writes] == ["create_volume"]


def test_a_call_can_be_made_to_fail(fake, machine):
    fake.fail_at("delete_volume", 2, Kvm2Error("transient", "delete", "volume", "the link was cut"))
    assert fake.delete_volume("default", "base") is True
    with pytest.raises(Kvm2Error):
        fake.delete_volume("default", "base")
    assert fake.delete_volume("default", "base") is False


def test_somebody_else_can_act_in_between(fake, machine):
    other = FakeHypervisor(machine)
    fake.hook("create_volume", lambda pool, xml: other.delete_volume("default", "base"), when="after", nth=1)
    fake.create_volume("default", overlay("o", GIB))
    assert fake.volume("default", "base") is None


def test_after_a_kill_nothing_reaches_the_hypervisor(fake, machine):
    def kill(*args):
        raise Killed
    fake.create_volume("default", raw("new", 4))
    fake.hook("upload_block", kill, nth=2)
    with pytest.raises(Killed):
        fake.upload("default", "new", [b"ab", b"cd"], 4)
    with pytest.raises(Killed):
        fake.delete_volume("default", "new")
    assert b"".join(FakeHypervisor(machine).download("default", "new", 0, 4)) == b"ab\0\0"
