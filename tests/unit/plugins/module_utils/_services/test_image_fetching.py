# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kvm2_image over HTTP, with compressed, sparse and changing images, and beside other runs."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import threading
import zlib
from dataclasses import replace

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import fetch, local, turn
from ansible_collections.egress.kvm2.plugins.module_utils._policy import names, qcow2, record
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import TRANSIENT, Kvm2Error
from ansible_collections.egress.kvm2.plugins.module_utils._services import service
from ansible_collections.egress.kvm2.tests.unit import odd_server
from ansible_collections.egress.kvm2.tests.unit.fake import qcow2_bytes
from ansible_collections.egress.kvm2.tests.unit.fake.hypervisor import FakeHypervisor
from ansible_collections.egress.kvm2.tests.unit.fake.machine import GIB
from ansible_collections.egress.kvm2.tests.unit.running import run_module

MIB = 1024 ** 2
POOL = "/var/lib/libvirt/images"
IMAGE = bytes(qcow2_bytes.image(GIB)) + bytes(range(256)) * 3000
RAW = b"\x33\xc0" + bytes(510) + bytes(range(256)) * 2000 + bytes(2 * 1024 ** 2)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(fetch, "PAUSES", (0, 0, 0))


@pytest.fixture
def server(tmp_path):
    (tmp_path / "image.qcow2").write_bytes(IMAGE)
    (tmp_path / "image.qcow2.xz").write_bytes(lzma.compress(IMAGE))
    (tmp_path / "image.raw.gz").write_bytes(gzip.compress(RAW))
    (tmp_path / "page").write_bytes(b"<html>Not here</html>")
    server = odd_server.Server(tmp_path)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def url(server):
    return f"http://127.0.0.1:{server.server_address[1]}"


@pytest.fixture
def hypervisor():
    fake = FakeHypervisor()
    fake.machine.put_file(f"{POOL}/base-debian-13.qcow2", b"somebody else's")
    return fake


def import_image(hypervisor, check=False, **given):
    return run_module("image", hypervisor, check=check, **{"key": "micro", "use_proxy": False, **given})


def files(hypervisor):
    return sorted(path.rpartition("/")[2] for path in hypervisor.machine.files)


def stored(hypervisor, done):
    return bytes(hypervisor.machine.file(done.image["path"]).read(0, 10 ** 9))


def record_of(hypervisor, done):
    name = names.parse_base(done.image["base"])
    return record.parse(bytes(hypervisor.machine.file(f"{POOL}/{name.record}").data), name)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("file, content, options", [
    ("plain/image.qcow2", IMAGE, {}), ("chunked/image.qcow2", IMAGE, {}), ("drop/image.qcow2", IMAGE, {}), ("plain/image.qcow2.xz", IMAGE, {}),
    ("chunked/image.qcow2.xz", IMAGE, {}), ("drop/image.qcow2.xz", IMAGE, {}), ("closed/image.raw.gz", RAW, {"format": "raw"}),
])
@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_what_is_stored_is_the_image_and_the_record_holds_both_digests(hypervisor, url, server, file, content, options, algorithm):
    fetched = hashlib.new(algorithm, (server.folder / file.partition("/")[2]).read_bytes()).hexdigest()
    done = import_image(hypervisor, url=f"{url}/{file}", checksum=f"{algorithm}:{fetched}", **options)
    assert not done.failed, done.msg
    assert stored(hypervisor, done) == content
    assert done.image["digest"] == f"sha256:{sha256(content)}" and done.image["checksum"] == f"{algorithm}:{fetched}"
    known = record_of(hypervisor, done)
    assert known.fetched == f"{algorithm}:{fetched}" and known.size == len(content)
    server.requests.clear()
    again = import_image(hypervisor, url="http://127.0.0.1:9/elsewhere", checksum=f"{algorithm}:{fetched}", **options)
    assert not again.changed and again.image == dict(done.image, fetched=False) and server.requests == []


def test_a_wrong_checksum_of_a_compressed_image_never_reaches_the_pool(hypervisor, url):
    failed = import_image(hypervisor, url=f"{url}/plain/image.qcow2.xz", checksum=f"sha256:{sha256(IMAGE)}")
    assert failed.failed and "was asked for" in failed.msg and hypervisor.writes == []


def packed_nothing():
    """Gzip members without content, without end."""
    while True:
        yield gzip.compress(b"") * 1000


def after(start, pack=False):
    """The start, and then zeros without end, packed with gzip or not."""
    engine = zlib.compressobj(1, zlib.DEFLATED, 31)
    yield engine.compress(start) if pack else start
    while True:
        yield engine.compress(bytes(1024 ** 2)) if pack else bytes(1024 ** 2)


@pytest.mark.parametrize("sent, given, says", [
    (lambda: after(bytes(qcow2_bytes.image(MIB))), {}, f"goes on after {MIB + MIB // 8 + MIB} bytes, and a qcow2 image with a disk of {MIB} bytes"),
    (lambda: after(bytes(qcow2_bytes.image(MIB)), pack=True), {}, f"goes on after {MIB + MIB // 8 + MIB} bytes, and a qcow2 image with a disk of"),
    (lambda: after(RAW), {"format": "raw", "max_virtual_size": "8MiB"}, f"goes on after {8 * MIB} bytes, and max_virtual_size allows no more"),
    (lambda: after(RAW, pack=True), {"format": "raw", "max_virtual_size": "8MiB"}, f"unpacks to more than {8 * MIB} bytes"),
    (packed_nothing, {"max_virtual_size": "1MiB"}, f"goes on after {3 * MIB} bytes, and no image that is allowed needs more"),
])
def test_a_stream_without_end_is_refused_where_no_image_can_be_so_long(hypervisor, url, monkeypatch, sent, given, says):
    def send(handler, _data, _chunked):
        for block in sent():
            if block:
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(block), block))

    monkeypatch.setattr(qcow2, "_TABLES_LEAST", MIB)
    monkeypatch.setattr(odd_server.Handler, "_send", send)
    failed = import_image(hypervisor, url=f"{url}/chunked/image.qcow2", **given)
    assert failed.error["kind"] == "permanent" and says in failed.msg and hypervisor.writes == []


def test_check_mode_refuses_what_the_run_would_refuse_and_writes_nothing(hypervisor, url):
    for check in (True, False):
        failed = import_image(hypervisor, check, url=f"{url}/plain/page")
        assert failed.failed and "HTML" in failed.msg and hypervisor.writes == []
    predicted = import_image(hypervisor, True, url=f"{url}/plain/image.qcow2")
    assert predicted.image["size"] == len(IMAGE) and predicted.image["virtual_size"] == GIB
    predicted = import_image(hypervisor, True, url=f"{url}/plain/image.qcow2.xz")
    assert predicted.image["size"] is None and predicted.changed and hypervisor.writes == []


def test_a_transfer_that_cannot_go_on_begins_anew_in_a_new_volume(hypervisor, url):
    done = import_image(hypervisor, url=f"{url}/dropnorange/image.qcow2")
    assert not done.failed and stored(hypervisor, done) == IMAGE
    made = [call.args[1] for call in hypervisor.calls if call.operation == "create_volume"]
    assert len(made) == 3 and len({str(xml) for xml in made}) == 3
    assert [action["name"] for action in done.actions][1] == done.image["base"]
    assert len(files(hypervisor)) == 3 and any("from the start" in text for text in done.warnings)


def test_beginning_anew_is_bounded(hypervisor, url, monkeypatch):
    before, serve = files(hypervisor), odd_server.Handler._file
    monkeypatch.setattr(odd_server.Handler, "_file", lambda handler, data, way, count: serve(handler, data, "dropweak", 1))
    failed = import_image(hypervisor, url=f"{url}/plain/image.qcow2")
    assert failed.error["kind"] == "transient" and "names no version" in failed.msg
    assert files(hypervisor) == before
    assert sum(call.operation == "create_volume" for call in hypervisor.calls) == 3


@pytest.mark.parametrize("way, asks_whole", [("plain", False), ("nohead", False), ("novalidators", True)])
def test_refresh_of_an_unpinned_image(hypervisor, url, server, way, asks_whole):
    given = {"url": f"{url}/{way}/image.qcow2", "refresh": "if_modified"}
    first = import_image(hypervisor, **given)
    same = import_image(hypervisor, **given)
    assert first.changed and not same.changed and same.image["base"] == first.image["base"]
    assert any("whole image" in text for text in same.warnings) is asks_whole
    other = IMAGE[:-1] + b"x"
    (server.folder / "image.qcow2").write_bytes(other)
    hypervisor.machine.advance(60)
    assert not import_image(hypervisor, url=given["url"], refresh="never").changed
    predicted = import_image(hypervisor, True, **given)
    changed = import_image(hypervisor, **given)
    assert predicted.changed and changed.changed and changed.image["base"] != first.image["base"]
    assert stored(hypervisor, changed) == other and stored(hypervisor, first) == IMAGE
    assert import_image(hypervisor, url=given["url"]).image["base"] == changed.image["base"]
    assert not import_image(hypervisor, **given).changed


def test_a_sums_file_is_asked_once_and_again_with_refresh(hypervisor, url, server):
    (server.folder / "SUMS").write_text(f"{sha256(IMAGE)}  image.qcow2\n")
    given = {"url": f"{url}/plain/image.qcow2", "checksum": f"sha256:{url}/plain/SUMS"}
    first = import_image(hypervisor, **given)
    other = IMAGE[:-1] + b"x"
    (server.folder / "image.qcow2").write_bytes(other)
    (server.folder / "SUMS").write_text(f"{sha256(other)}  image.qcow2\n")
    server.requests.clear()
    assert not import_image(hypervisor, **given).changed and server.requests == []
    hypervisor.machine.advance(60)
    changed = import_image(hypervisor, refresh="if_modified", **given)
    assert changed.changed and changed.image["base"] != first.image["base"] and stored(hypervisor, changed) == other
    # What was answered last is what later runs reuse.
    assert import_image(hypervisor, **given).image["base"] == changed.image["base"]


def test_what_is_for_the_images_server_is_not_told_to_that_of_the_sums(hypervisor, url, server, tmp_path):
    other = odd_server.Server(tmp_path)
    thread = threading.Thread(target=other.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    (tmp_path / "SUMS").write_text(f"{sha256(IMAGE)}  image.qcow2\n")
    secrets = {"headers": {"X-Token": "secret"}, "url_username": "someone", "url_password": "secret", "force_basic_auth": True}
    try:
        done = import_image(
            hypervisor, url=f"{url}/token/image.qcow2", checksum=f"sha256:http://127.0.0.1:{other.server_address[1]}/plain/SUMS", **secrets)
    finally:
        other.shutdown()
        thread.join()
        other.server_close()
    assert not done.failed
    assert [("X-Token" in seen or "Authorization" in seen) for _method, _path, seen in other.requests] == [False]


@pytest.mark.parametrize("footer, word", [(b"conectix" + bytes(504), "VHD"), (b"koly" + bytes(508), "DMG")])
def test_a_raw_image_that_is_something_else_by_its_end(hypervisor, tmp_path, footer, word):
    before = files(hypervisor)
    (tmp_path / "x").write_bytes(RAW + footer)
    failed = import_image(hypervisor, src=str(tmp_path / "x"), format="raw")
    assert failed.failed and word in failed.msg and files(hypervisor) == before


@pytest.mark.parametrize("version, good", [
    (9000000, True), (9000999, True), (9001000, False), (11003000, False), (12007999, False), (12008000, True), (13000000, True)])
def test_sparse_over_a_stream_only_where_a_full_disk_is_survived(hypervisor, tmp_path, monkeypatch, version, good):
    (tmp_path / "x").write_bytes(RAW)
    host = replace(hypervisor.host(), libvirt_version=version)
    monkeypatch.setattr(hypervisor, "host", lambda: host)
    for check in (True, False):
        done = import_image(hypervisor, check, src=str(tmp_path / "x"), format="raw", sparse=True)
        if not good:
            assert done.error["kind"] == "permanent" and "could end its libvirt" in done.msg and hypervisor.writes == []
    if good:
        assert not done.failed and stored(hypervisor, done) == RAW
        assert hypervisor.machine.file(done.image["path"]).allocated < len(RAW) // 2


@pytest.mark.parametrize("version, streamed", [(9000000, True), (11003000, False), (12008000, True)])
def test_a_local_user_who_may_not_read_the_pool_is_told_what_that_costs(tmp_path, monkeypatch, version, streamed):
    hypervisor = FakeHypervisor(uri="qemu:///system")
    (tmp_path / "x").write_bytes(RAW)
    host = replace(hypervisor.host(), libvirt_version=version)
    monkeypatch.setattr(hypervisor, "host", lambda: host)
    monkeypatch.setattr(local, "exists", lambda _path: True)
    monkeypatch.setattr(local, "readable", lambda _path: False)
    done = import_image(hypervisor, src=str(tmp_path / "x"), format="raw", sparse=True)
    assert not done.failed and stored(hypervisor, done) == RAW and not done.image["durable"]
    allocated = hypervisor.machine.file(done.image["path"]).allocated
    assert (allocated < len(RAW) // 2) if streamed else (allocated == len(RAW))
    told = [warning for warning in done.warnings if "with become" in warning]
    assert ["could not be made durable" in warning for warning in told] == ([True] if streamed else [False, True])
    assert streamed or "stays fully allocated: this user may not read" in told[0]


def test_over_a_remote_uri_nobody_is_sent_to_become(hypervisor, tmp_path):
    (tmp_path / "x").write_bytes(RAW)
    done = import_image(hypervisor, src=str(tmp_path / "x"), format="raw")
    assert ["become" in warning for warning in done.warnings if "could not be made durable" in warning] == [False]


def test_progress_is_told_and_a_stop_is_obeyed(hypervisor, url, monkeypatch):
    told, calls = [], []
    real = service.Context.__init__

    def listening(context, *args, **options):
        real(context, *args, **options)
        context.progress = lambda done, total, phase: told.append((phase, done, total))

    monkeypatch.setattr(service.Context, "__init__", listening)
    assert not import_image(hypervisor, url=f"{url}/plain/image.qcow2").failed
    assert ("fetch", len(IMAGE), len(IMAGE)) in told and ("verify", len(IMAGE), len(IMAGE)) in told
    assert not import_image(hypervisor, key="packed", url=f"{url}/plain/image.qcow2.xz").failed
    assert ("store", len(IMAGE), len(IMAGE)) in told

    def stop():
        calls.append(1)
        if len(calls) > 2:
            raise Kvm2Error(TRANSIENT, "go on with", "the import", "the controller has gone")

    def stopping(context, *args, **options):
        real(context, *args, **options)
        context.check_stop = stop

    before = files(hypervisor)
    monkeypatch.setattr(service.Context, "__init__", stopping)
    failed = import_image(hypervisor, key="stopped", url=f"{url}/plain/image.qcow2")
    assert failed.failed and "controller has gone" in failed.msg and files(hypervisor) == before


def with_turns(monkeypatch, folder):
    monkeypatch.setattr(turn, "_folder", lambda: str(folder))
    monkeypatch.setattr(turn, "_LOOK_EACH", 0.01)
    real = service.Context.__init__

    def taking(context, *args, **options):
        real(context, *args, **options)
        context.turn = turn.take

    monkeypatch.setattr(service.Context, "__init__", taking)


def together(count, work):
    results = [None] * count

    def run(number):
        results[number] = work(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("count", [2, 5])
def test_several_runs_at_once_fetch_once(hypervisor, url, server, count, monkeypatch, tmp_path_factory):
    with_turns(monkeypatch, tmp_path_factory.mktemp("turns"))
    machine = hypervisor.machine
    results = together(count, lambda number: import_image(
        FakeHypervisor(machine), url=f"{url}/plain/image.qcow2", checksum=f"sha256:{sha256(IMAGE)}"))
    assert not any(done.failed for done in results), results
    assert sorted(done.changed for done in results) == [False] * (count - 1) + [True]
    assert len({done.image["base"] for done in results}) == 1
    assert sum("Range" not in seen for _method, _path, seen in server.requests) == 1


def test_a_turn_is_given_back_whatever_comes_of_the_run(hypervisor, url, monkeypatch, tmp_path_factory):
    folder = tmp_path_factory.mktemp("turns")
    with_turns(monkeypatch, folder)
    assert import_image(hypervisor, url=f"{url}/plain/page").failed
    assert import_image(hypervisor, url=f"{url}/plain/image.qcow2", checksum="sha256:" + "0" * 64).failed
    assert not import_image(hypervisor, url=f"{url}/plain/image.qcow2").failed
    assert list(folder.iterdir()) == []


def test_validators_too_long_or_strange_are_done_without(hypervisor, url, monkeypatch):
    monkeypatch.setattr(odd_server, "DATE", "x" * 5000)
    done = import_image(hypervisor, url=f"{url}/plain/image.qcow2")
    assert (record_of(hypervisor, done).etag, record_of(hypervisor, done).last_modified) == ("", "")
    assert not import_image(hypervisor, url=f"{url}/plain/image.qcow2").changed


def test_two_digests_under_one_key_do_not_wait_for_each_other(hypervisor, url, server, monkeypatch, tmp_path_factory):
    with_turns(monkeypatch, tmp_path_factory.mktemp("turns"))
    (server.folder / "other.qcow2").write_bytes(IMAGE + b"x" * 70000)
    machine, both = hypervisor.machine, threading.Barrier(2, timeout=30)
    found = [("image.qcow2", IMAGE), ("other.qcow2", IMAGE + b"x" * 70000)]

    def work(number):
        file, content = found[number]
        mine = FakeHypervisor(machine)
        # Both are in the middle of their upload at the same time.
        mine.hook("upload", lambda *args: both.wait(), nth=1)
        return import_image(mine, url=f"{url}/plain/{file}", checksum=f"sha256:{sha256(content)}")

    results = together(2, work)
    assert all(not done.failed and done.changed for done in results)
    assert len({done.image["base"] for done in results}) == 2
    for done, (_file, content) in zip(results, found, strict=True):
        assert stored(hypervisor, done) == content
