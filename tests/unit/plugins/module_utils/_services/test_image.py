# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import hashlib

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import local
from ansible_collections.egress.kvm2.plugins.module_utils._policy import model, names, record
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import TRANSIENT, Kvm2Error
from ansible_collections.egress.kvm2.plugins.module_utils._services import image_import, service
from ansible_collections.egress.kvm2.tests.unit.fake import qcow2_bytes
from ansible_collections.egress.kvm2.tests.unit.fake.calls import Killed
from ansible_collections.egress.kvm2.tests.unit.fake.hypervisor import FakeHypervisor
from ansible_collections.egress.kvm2.tests.unit.fake.machine import GIB
from ansible_collections.egress.kvm2.tests.unit.running import run_module

POOL = "/var/lib/libvirt/images"


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "image.qcow2"
    path.write_bytes(bytes(qcow2_bytes.image(GIB)) + b"\0" * 70000)
    return str(path)


@pytest.fixture
def hypervisor():
    fake = FakeHypervisor()
    fake.machine.put_file(f"{POOL}/base-debian-13.qcow2", b"somebody else's")
    return fake


def digest(path):
    with open(path, "rb") as handle:
        return hashlib.sha256(handle.read()).hexdigest()


def files(hypervisor):
    return sorted(path.rpartition("/")[2] for path in hypervisor.machine.files)


def published(hypervisor):
    """Names of bases with a record that parses."""
    found = []
    for path, file in hypervisor.machine.files.items():
        name = names.parse_record(path.rpartition("/")[2])
        if name and isinstance(record.parse(bytes(file.data), name), record.Record):
            found.append(str(name))
    return found


def test_import_again_and_check_agree(hypervisor, image):
    before = files(hypervisor)
    predicted = run_module("image", hypervisor, check=True, key="micro", src=image)
    assert files(hypervisor) == before and hypervisor.writes == []
    done = run_module("image", hypervisor, key="micro", src=image)
    assert not done.failed and done.changed
    assert [action["act"] for action in predicted.actions] == [action["act"] for action in done.actions] == ["fetch", "create", "publish"]
    assert done.image["digest"] == f"sha256:{digest(image)}" and done.image["virtual_size"] == GIB
    assert names.parse_base(done.image["base"]).id16 == digest(image)[:16]
    assert names.is_predicted(predicted.image["base"]) and predicted.image["size"] == done.image["size"]
    again = run_module("image", hypervisor, key="micro", src=image)
    assert not again.changed and again.image == dict(done.image, fetched=False)
    assert set(again.image) == set(predicted.image)
    for check in (True, False):
        gone = run_module("image", hypervisor, check=check, key="micro", state="absent")
        assert [action["what"] for action in gone.actions] == ["record", "base"]
    assert files(hypervisor) == before
    assert not run_module("image", hypervisor, key="micro", state="absent").changed


def test_another_digest_makes_another_base_beside_the_old_one(hypervisor, image, tmp_path):
    first = run_module("image", hypervisor, key="micro", src=image)
    other = tmp_path / "other.qcow2"
    other.write_bytes(bytes(qcow2_bytes.image(2 * GIB)) + b"\0" * 70000)
    second = run_module("image", hypervisor, key="micro", src=str(other))
    assert first.image["base"] != second.image["base"]
    assert sorted(published(hypervisor)) == sorted([first.image["base"], second.image["base"]])


def test_wrong_checksum_leaves_the_pool_as_it_was(hypervisor, image):
    before = files(hypervisor)
    failed = run_module("image", hypervisor, key="micro", src=image, checksum="sha256:" + "0" * 64)
    assert failed.failed and failed.error["kind"] == "permanent" and digest(image) in failed.msg
    assert not failed.changed and files(hypervisor) == before


@pytest.mark.parametrize("content, word", [(b"", "empty"), (b"<!DOCTYPE html><html>", "HTML"), (b"QFI\xfb" + b"\0" * 200, "qcow2")])
def test_refused_content_leaves_nothing(hypervisor, tmp_path, content, word):
    before = files(hypervisor)
    path = tmp_path / "x.qcow2"
    path.write_bytes(content)
    failed = run_module("image", hypervisor, key="micro", src=str(path))
    assert failed.failed and failed.error["kind"] == "permanent" and word.lower() in failed.msg.lower()
    assert files(hypervisor) == before


@pytest.mark.parametrize("check", [True, False])
def test_a_base_that_is_there_heeds_the_limit_too(hypervisor, image, check):
    base = run_module("image", hypervisor, key="micro", src=image).image["base"]
    before = files(hypervisor)
    failed = run_module("image", hypervisor, check=check, key="micro", src=image, max_virtual_size="512MiB")
    assert failed.error["kind"] == "permanent" and base in failed.msg and "above the limit of 536870912 bytes" in failed.msg
    assert files(hypervisor) == before
    assert not run_module("image", hypervisor, key="micro", src=image, max_virtual_size="1GiB").changed


def test_a_full_pool_fails_before_the_first_byte(image):
    hypervisor = FakeHypervisor()
    hypervisor.machine.pools["default"].size = 1000
    for check in (True, False):
        failed = run_module("image", hypervisor, check=check, key="micro", src=image)
        assert failed.error["kind"] == "quota" and failed.error["act"] == "create" and files(hypervisor) == []
    assert not any(call.operation == "upload" for call in hypervisor.calls)


@pytest.mark.parametrize("pool, state, word", [("nowhere", True, "no such pool"), ("default", False, "not active")])
def test_pools_that_cannot_be_used(image, pool, state, word):
    hypervisor = FakeHypervisor()
    hypervisor.machine.pools["default"].active = state
    failed = run_module("image", hypervisor, key="micro", src=image, pool=pool)
    assert failed.error["kind"] == "permanent" and word in failed.msg


def test_killed_anywhere_the_next_run_converges_and_no_bad_base_is_believed(image):
    count = FakeHypervisor()
    run_module("image", count, key="micro", src=image)
    total = len(count.calls)
    assert total > 8
    for when in ("before", "after"):
        for nth in range(1, total + 1):
            hypervisor = FakeHypervisor()

            def kill(*args):
                raise Killed("now")
            hypervisor.hook("*", kill, when=when, nth=nth)
            with pytest.raises(Killed):
                run_module("image", hypervisor, key="micro", src=image)
            survivor = FakeHypervisor(hypervisor.machine)
            for base in published(survivor):
                assert bytes(survivor.machine.file(f"{POOL}/{base}").read(0, 10 ** 9)) == open(image, "rb").read()
            done = run_module("image", survivor, key="micro", src=image)
            assert not done.failed and done.image["published"]
            assert done.image["base"] in published(survivor)


@pytest.mark.parametrize("operation, nth", [("create_volume", 1), ("create_volume", 2), ("upload", 1), ("upload", 2), ("download", 1), ("refresh_pool", 2)])
def test_failed_anywhere_it_removes_what_it_made_and_nothing_else(hypervisor, image, operation, nth):
    before = files(hypervisor)
    hypervisor.fail_at(operation, nth, Kvm2Error(TRANSIENT, "do", "it", "no"))
    failed = run_module("image", hypervisor, key="micro", src=image)
    assert failed.failed and failed.error["kind"] == "transient"
    assert files(hypervisor) == before


def test_a_base_deleted_under_the_upload_is_not_published(hypervisor, image):
    def steal(pool, name, *rest):
        if name.endswith(".qcow2"):
            hypervisor.machine.remove_file(f"{POOL}/{name}")
            hypervisor.machine.pools[pool].known.discard(name)
    hypervisor.hook("upload", steal, when="after", nth=1)
    failed = run_module("image", hypervisor, key="micro", src=image)
    assert failed.failed and published(hypervisor) == []


def test_what_the_pool_gives_back_is_compared(hypervisor, image):
    def spoil(pool, name, *rest):
        if name.endswith(".qcow2"):
            hypervisor.machine.file(f"{POOL}/{name}").data[-1] ^= 1
    hypervisor.hook("upload", spoil, when="after", nth=1)
    failed = run_module("image", hypervisor, key="micro", src=image)
    assert failed.failed and "gave back other bytes" in failed.msg and published(hypervisor) == []


@pytest.mark.parametrize("how", [{}, {"src": True}])
@pytest.mark.parametrize(("asked", "left"), [({}, set()), ({"format": "raw"}, {"qcow2"}), ({"format": "qcow2"}, {"raw"})])
def test_the_bases_of_a_key_are_retired_whatever_their_format(hypervisor, image, tmp_path, asked, left, how):
    raw = tmp_path / "disk.raw"
    raw.write_bytes(bytes(1024 ** 2))
    made = {"qcow2": run_module("image", hypervisor, key="micro", src=image), "raw": run_module("image", hypervisor, key="micro", src=str(raw), format="raw")}
    names = {kind: done.image["base"] for kind, done in made.items()}
    if how:
        # The one of that content alone.
        asked, left = {**asked, "src": image}, {"raw"} if asked.get("format") != "raw" else {"qcow2", "raw"}
    told = run_module("image", hypervisor, check=True, key="micro", state="absent", **asked)
    done = run_module("image", hypervisor, key="micro", state="absent", **asked)
    assert not done.failed and done.changed == (left != {"qcow2", "raw"}) and told.actions == done.actions
    assert set(published(hypervisor)) == {names[kind] for kind in left}


def test_a_used_base_is_not_retired(hypervisor, image):
    base = run_module("image", hypervisor, key="micro", src=image).image["base"]
    hypervisor.machine.put_image(f"{POOL}/anybody.qcow2", backing_path=f"{POOL}/{base}", backing_format="qcow2")
    for check in (True, False):
        failed = run_module("image", hypervisor, check=check, key="micro", state="absent")
        assert failed.error["kind"] == "conflict" and "anybody.qcow2" in failed.msg and not failed.changed
    assert published(hypervisor) == [base]


def test_a_base_that_somebody_starts_to_use_while_it_is_retired_stays(hypervisor, image):
    base = run_module("image", hypervisor, key="micro", src=image).image["base"]
    hypervisor.hook(
        "delete_volume", lambda *args: hypervisor.machine.put_image(f"{POOL}/late.qcow2", backing_path=f"{POOL}/{base}", backing_format="qcow2"),
        when="after", nth=1)
    failed = run_module("image", hypervisor, key="micro", state="absent")
    assert failed.error["kind"] == "conflict" and "late.qcow2" in failed.msg
    assert base in files(hypervisor) and published(hypervisor) == []
    assert failed.changed and [action["what"] for action in failed.actions] == ["record"]


@pytest.mark.parametrize("given, word", [
    ({"key": "Micro"}, "not a label"), ({"key": "a" * 33}, "33 characters"), ({"checksum": "md5:00"}, "sha256: or sha512:"),
    ({"checksum": "sha256:12"}, "64 hexadecimal"), ({"src": "relative"}, "absolute"), ({"src": "/x\ny"}, "cannot be shown"),
    ({"fetch_timeout": "0"}, "longer than 0"), ({"owner": -1}, "owner -1"), ({"group": 2 ** 32 - 1}, "between 0 and 4294967294"),
    ({"headers": {"X-Token": "a\nb"}}, "value of X-Token"), ({"http_agent": "a\r\nb"}, "value of User-Agent"),
    ({"max_virtual_size": "5"}, "unit"), ({"fetch_timeout": "soon"}, "fetch_timeout"),
])
def test_wrong_options(hypervisor, image, given, word):
    failed = run_module("image", hypervisor, **{"key": "micro", "src": image, **given})
    assert failed.failed and failed.error["kind"] == "permanent" and word in failed.msg
    assert hypervisor.calls == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/x", "http://[::1/x", "http://h/a b", "ftp://h/x", "http:///x", "http://h:0/x", "file:///x"])
@pytest.mark.parametrize("option", ["url", "checksum"])
def test_malformed_urls(hypervisor, url, option):
    given = {"url": url} if option == "url" else {"url": "http://h/x", "checksum": f"sha256:{url}"}
    failed = run_module("image", hypervisor, key="micro", **given)
    assert failed.failed and failed.error["kind"] == "permanent" and hypervisor.calls == []


def test_a_foreign_image_outside_all_pools_is_followed_and_blocks_nothing(image):
    hypervisor = FakeHypervisor(uri="qemu:///system")
    base = run_module("image", hypervisor, key="micro", src=image).image["base"]
    hypervisor.machine.put_image("/elsewhere/d.qcow2", GIB, "/elsewhere/b.qcow2", "qcow2")
    hypervisor.machine.put_image("/elsewhere/b.qcow2")
    hypervisor.define(
        "<domain type='qemu'><name>foreign</name><memory>65536</memory><os><type>hvm</type></os><devices><disk type='file' device='disk'>"
        "<driver name='qemu' type='qcow2'/><source file='/elsewhere/d.qcow2'/><target dev='vda' bus='virtio'/></disk></devices></domain>")
    gone = run_module("image", hypervisor, key="micro", state="absent")
    assert not gone.failed and base not in files(hypervisor)
    assert "/elsewhere/d.qcow2" in hypervisor.machine.files


@pytest.mark.parametrize("stored", [b"as it was sent", b"as it was kept"])
def test_what_the_pool_holds_is_read_where_its_files_are(tmp_path, stored):
    path, told = tmp_path / "base.raw", []
    path.write_bytes(stored)
    context = service.Context(nonce=str, warn=str)
    context.progress = lambda *values: told.append(values)
    volume = model.Volume("default", "base.raw", str(path))
    arguments = FakeHypervisor(), volume, len(stored), hashlib.sha256(b"as it was sent").hexdigest(), context, True
    if stored == b"as it was sent":
        image_import.read_back(*arguments)
    else:
        with pytest.raises(Kvm2Error, match=r"Failed to verify base base\.raw in pool default: its sha256 is"):
            image_import.read_back(*arguments)
    assert told == [(len(stored), len(stored), "verify")]


class Beside:
    """Stands for what works on the file beside the upload. read(path): what it has read by then."""

    def __init__(self, read):
        self._read, self._path, self.done, self.digest = read, None, 0, None

    def __enter__(self):
        return self

    def __exit__(self, *_problem):
        pass

    def begin(self, path):
        self._path = path

    def finish(self):
        self.digest = self._read(self._path)

    def wait(self, *_tell):
        pass


def sees_files(monkeypatch, hypervisor, behind):
    """The module runs where the pool's files are. behind(digest): what is found behind the upload of a file with that digest."""
    def digest_of(path):
        return hashlib.sha256(bytes(hypervisor.machine.file(path).read(0, 10 ** 9))).hexdigest()
    monkeypatch.setattr(local, "exists", lambda _path: True)
    monkeypatch.setattr(local, "readable", lambda _path: True)
    monkeypatch.setattr(image_import.beside, "Syncer", lambda _check_stop: Beside(lambda _path: None))
    monkeypatch.setattr(image_import.beside, "Hasher", lambda _check_stop: Beside(lambda path: behind(digest_of(path))))
    whole = []
    monkeypatch.setattr(image_import.streaming, "sha256", lambda path, _tell, _check_stop: whole.append(path) or digest_of(path))
    return whole


BEHIND = {"right": lambda found: found, "read too early": lambda _found: "0" * 64, "of another file": lambda _found: None}


@pytest.mark.parametrize("pinned", ["sha256", "sha512", None])
@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("spoilt", [False, True])
def test_what_is_read_behind_the_upload_counts_where_it_is_right(image, monkeypatch, pinned, behind, spoilt):
    hypervisor = FakeHypervisor(uri="qemu:///system")
    whole = sees_files(monkeypatch, hypervisor, BEHIND[behind])

    def spoil(pool, name, *rest):
        if spoilt and name.endswith(".qcow2"):
            hypervisor.machine.file(f"{POOL}/{name}").data[-1] ^= 1
    hypervisor.hook("upload", spoil, when="after", nth=1)
    with open(image, "rb") as handle:
        checksum = None if pinned is None else f"{pinned}:{hashlib.new(pinned, handle.read()).hexdigest()}"
    done = run_module("image", hypervisor, key="micro", src=image, checksum=checksum)
    # A file is read once more before it is refused, and before it is believed without the right digest.
    assert len(whole) == (1 if spoilt or behind != "right" else 0)
    assert done.failed == spoilt and bool(published(hypervisor)) != spoilt
    if spoilt:
        assert done.error["kind"] == "permanent" and not [one for one in files(hypervisor) if one.startswith("kvm2-")]
        # Where only what is stored is hashed, it is not known who changed it. A file is pinned by its own sha256.
        assert ("gave back other bytes" if pinned == "sha512" else "check the pool's storage") in done.msg
    else:
        assert done.image["digest"] == f"sha256:{digest(image)}" and done.image["durable"]


@pytest.mark.parametrize("behind", BEHIND)
def test_a_wrong_checksum_is_told_where_only_what_is_stored_is_hashed(image, monkeypatch, behind):
    hypervisor = FakeHypervisor(uri="qemu:///system")
    sees_files(monkeypatch, hypervisor, BEHIND[behind])
    failed = run_module("image", hypervisor, key="micro", src=image, checksum="sha256:" + "1" * 64)
    assert failed.failed and failed.error["kind"] == "permanent" and f"its sha256 is {digest(image)} but {'1' * 64} was asked for" in failed.msg
    assert not failed.changed and not [one for one in files(hypervisor) if one.startswith("kvm2-")]


def test_nothing_is_read_back_where_that_is_turned_off_and_the_source_is_hashed_then(image, monkeypatch):
    hypervisor = FakeHypervisor(uri="qemu:///system")
    whole = sees_files(monkeypatch, hypervisor, BEHIND["of another file"])
    failed = run_module("image", hypervisor, key="micro", src=image, checksum="sha256:" + "1" * 64, verify="never")
    assert failed.failed and "was asked for" in failed.msg and whole == []
    done = run_module("image", hypervisor, key="micro", src=image, checksum=f"sha256:{digest(image)}", verify="never")
    assert done.image["digest"] == f"sha256:{digest(image)}" and whole == []
