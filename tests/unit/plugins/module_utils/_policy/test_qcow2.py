# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image inspector: sound images pass with the right figures, everything else is refused with its reason, and no bytes break it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import struct
import tarfile
import zipfile

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy import image_kinds, qcow2, seed
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import PERMANENT, InvalidInput

CLUSTER = 65536
GIB = 2 ** 30
# name: (offset, struct format) in the header.
FIELDS = {
    "magic": (0, ">4s"), "version": (4, ">I"), "backing_offset": (8, ">Q"), "backing_size": (16, ">I"), "cluster_bits": (20, ">I"),
    "virtual_size": (24, ">Q"), "crypt_method": (32, ">I"), "l1_entries": (36, ">I"), "l1_offset": (40, ">Q"), "refcount_offset": (48, ">Q"),
    "refcount_clusters": (56, ">I"), "snapshots": (60, ">I"), "snapshots_offset": (64, ">Q"), "incompatible": (72, ">Q"),
    "compatible": (80, ">Q"), "autoclear": (88, ">Q"), "refcount_order": (96, ">I"), "header_length": (100, ">I"), "compression": (104, ">B")}
EMPTY = {
    "magic": b"QFI\xfb", "version": 3, "cluster_bits": 16, "virtual_size": GIB, "l1_entries": 2, "l1_offset": 3 * CLUSTER,
    "refcount_offset": CLUSTER, "refcount_clusters": 1, "refcount_order": 4, "header_length": 104}
IMAGE_LENGTH = 3 * CLUSTER + 16


def image(extensions=(), backing=None, **changes):
    """The bytes of an empty qcow2 image of 1 GiB with some header fields changed; extensions: (type, content)."""
    data = bytearray(IMAGE_LENGTH)
    values = {**EMPTY, **changes}
    position = 72 if values["version"] == 2 else values["header_length"]
    for kind, content in extensions:
        data[position:position + 8 + len(content)] = struct.pack(">II", kind, len(content)) + content
        position += 8 + -(-len(content) // 8) * 8
    if backing is not None:
        values = {"backing_offset": position + 8, "backing_size": len(backing), **values}
        data[position + 8:position + 8 + len(backing)] = backing
    for field, value in values.items():
        if values["version"] == 3 or FIELDS[field][0] < 72:
            offset, form = FIELDS[field]
            struct.pack_into(form, data, offset, value)
    return bytes(data)


def inspect(data, declared="qcow2", **options):
    return qcow2.inspect(data[:qcow2.HEAD], len(data), declared, "image a", **options)


def refused(data, declared="qcow2", **options):
    """The error with which an image is refused."""
    with pytest.raises(InvalidInput) as caught:
        inspect(data, declared, **options)
    error = caught.value
    assert (error.kind, error.object) == (PERMANENT, "image a")
    assert error.hint and str(error).startswith("Failed to read image a: ")
    return error.cause


@pytest.mark.parametrize("version", [2, 3])
def test_an_empty_image_passes(version):
    assert inspect(image(version=version, snapshots=2, snapshots_offset=CLUSTER)).snapshots == 2
    info = inspect(image(version=version))
    assert info == qcow2.ImageInfo("qcow2", GIB, CLUSTER, version, 3 * CLUSTER, 2)


def test_a_raw_disk_passes():
    assert inspect(b"\0" * 1024, "raw") == qcow2.ImageInfo("raw", 1024)
    boot_sector = b"\xeb\x63\x90" + b"\0" * 507 + b"\x55\xaa"
    assert inspect(boot_sector * 400, "raw").virtual_size == 204800


def test_of_a_file_whose_length_is_not_known_the_head_is_enough():
    head = image()[:qcow2.HEAD]
    assert qcow2.inspect(head, None, "qcow2", "image a").virtual_size == GIB
    assert qcow2.inspect(bytes(qcow2.HEAD), None, "raw", "image a").virtual_size is None
    with pytest.raises(InvalidInput, match="cut short"):
        qcow2.inspect(head[:60000], None, "qcow2", "image a")


@pytest.mark.parametrize(("data", "declared", "part"), [
    (image(), "raw", "declared as raw but its content is qcow2"), (b"\0" * 4096, "qcow2", "declared as qcow2 but its content is raw"),
    (image(version=2), "raw", "content is qcow2")])
def test_content_counts_and_not_what_was_declared(data, declared, part):
    assert part in refused(data, declared)


@pytest.mark.parametrize(("changes", "part"), [
    ({"version": 1}, "version 1"), ({"version": 4, "header_length": 104}, "version 4"),
    ({"backing_offset": 112, "backing_size": 4}, "backing file"), ({"backing_offset": CLUSTER, "backing_size": 4}, "outside its header"),
    ({"backing_offset": 8, "backing_size": 4}, "outside its header"), ({"backing_offset": 200, "backing_size": 0}, "outside its header"),
    ({"backing_offset": 200, "backing_size": 1024}, "outside its header"), ({"backing_offset": 2 ** 64 - 1, "backing_size": 2}, "outside"),
    ({"crypt_method": 1}, "encrypted"), ({"crypt_method": 2}, "encrypted"), ({"crypt_method": 77}, "encrypted"),
    ({"incompatible": 1}, "dirty"), ({"incompatible": 2}, "corrupt"), ({"incompatible": 3}, "corrupt"), ({"incompatible": 4}, "external file"),
    ({"incompatible": 32}, "bits 0x20"), ({"incompatible": 1 << 63}, "not known here"), ({"incompatible": 8}, "compression type 0"),
    ({"header_length": 112, "compression": 1}, "compression type 1"), ({"header_length": 112, "compression": 2, "incompatible": 8}, "type 2"),
    ({"header_length": 103}, "header length of 103"), ({"header_length": 0}, "header length"), ({"header_length": 2 ** 31}, "header length"),
    ({"cluster_bits": 8}, "2^8"), ({"cluster_bits": 22}, "2^22"), ({"cluster_bits": 2 ** 32 - 1}, "impossible"), ({"refcount_order": 7}, "2^7"),
    ({"virtual_size": 0}, "virtual size is 0"), ({"virtual_size": 2 ** 63, "l1_entries": 2 ** 20}, "impossible"),
    ({"virtual_size": GIB - 1}, "impossible"),
    ({"l1_entries": 1}, "L1 table of 1 entries is too small"), ({"l1_entries": 0}, "too small"), ({"l1_entries": 2 ** 32 - 1}, "QEMU allows"),
    ({"l1_offset": 0}, "L1 table at byte 0"), ({"l1_offset": 3 * CLUSTER + 8}, "L1 table at byte"), ({"l1_offset": 1 << 60}, "L1 table at byte"),
    ({"refcount_offset": 0}, "refcount table at byte 0"), ({"refcount_clusters": 0}, "no refcount table"),
    ({"refcount_clusters": 2 ** 32 - 1}, "QEMU allows"), ({"snapshots": 1, "snapshots_offset": 5}, "snapshot table"),
    ({"snapshots": 65537, "snapshots_offset": CLUSTER}, "65537 snapshots are more than QEMU allows"),
    ({"snapshots": 1, "snapshots_offset": 1 << 40}, "its tables alone reach to byte"),
    ({"snapshots": 65536, "snapshots_offset": 2 * CLUSTER}, "its tables alone reach to byte"),
    ({"l1_offset": 4 * CLUSTER}, "cut short"), ({"refcount_clusters": 5}, "cut short")])
def test_a_header_that_is_unsound_or_needs_another_file_is_refused(changes, part):
    assert part in refused(image(**changes))


@pytest.mark.parametrize(("extensions", "part"), [
    ([(0x44415441, b"/etc/shadow")], "external file"), ([(0x0537BE77, b"\0" * 16)], "encrypted"),
    ([(0x6803F857, b"\0" * 48), (0x44415441, b"x")], "external file")])
def test_extensions_that_need_another_file_are_refused(extensions, part):
    assert part in refused(image(extensions))


def test_extensions_that_are_harmless_pass():
    assert inspect(image([(0x6803F857, b"\0" * 48), (0x12345678, b"unknown")])).format == "qcow2"


def test_an_extension_that_reaches_beyond_the_header_is_refused():
    data = bytearray(image([(0x12345678, b"x")]))
    struct.pack_into(">I", data, 108, CLUSTER)
    assert "beyond the header" in refused(bytes(data))
    struct.pack_into(">I", data, 108, 2 ** 32 - 1)
    assert "beyond the header" in refused(bytes(data))


@pytest.mark.parametrize("length", [1, 4, 71, 72, 103, 104, 512, CLUSTER, 3 * CLUSTER, IMAGE_LENGTH - 1])
def test_every_truncation_is_told(length):
    cause = refused(image()[:length])
    assert any(word in cause for word in ("truncated", "cut short", "whole number", "declared", "text")), cause


def test_what_ends_before_its_announced_length_is_refused():
    with pytest.raises(InvalidInput, match="ends after 100 of 5000 bytes"):
        qcow2.inspect(image()[:100], 5000, "qcow2", "image a")


def test_nothing_is_empty():
    assert "empty" in refused(b"")
    with pytest.raises(InvalidInput, match="empty"):
        qcow2.inspect(b"", None, "raw", "image a")


@pytest.mark.parametrize("length", [511, 513, 100000])
def test_a_raw_image_of_half_a_sector_is_refused(length):
    assert "512-byte sectors" in refused(b"\0" * length, "raw")


def test_the_limit_of_the_virtual_size():
    assert inspect(image(), max_virtual_size=GIB).virtual_size == GIB
    assert f"{GIB} bytes is above the limit of {GIB - 1} bytes" in refused(image(), max_virtual_size=GIB - 1)
    assert "above the limit" in refused(b"\0" * 1024, "raw", max_virtual_size=512)


def tar(name):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return out.getvalue()


def zipped():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("disk.raw", bytes(1000))
    return out.getvalue()


@pytest.mark.parametrize("declared", ["qcow2", "raw"])
@pytest.mark.parametrize(("data", "part"), [
    (gzip.compress(image(), mtime=0), "compressed twice: there is gzip"), (lzma.compress(image()), "xz data inside"),
    (bz2.compress(image()), "bzip2 data inside"), (b"(\xb5/\xfd" + bytes(600), "zstd data inside"), (zipped(), "zip archive"),
    (tar("disk.raw"), "tar archive"), (b"<!DOCTYPE html>\n<html><body>404</body></html>\n", "HTML or XML page"),
    (b"\n\n  <HTML><head>", "HTML or XML page"), (b"<?xml version='1.0'?><Error/>", "HTML or XML page"), (b"Not Found\n", "text"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "text"), (b"\xef\xbb\xbfhello", "text"), ("Größe\n".encode("latin-1"), "text"),
    (b"# Disk DescriptorFile\nversion=1\n", "VMDK"), (b"LUKS\xba\xbe" + bytes(600), "LUKS"), (b"KDMV" + bytes(600), "VMDK"),
    (b"conectix" + bytes(600), "VHD"), (b"vhdxfile" + bytes(600), "VHDX"), (bytes(64) + b"\x7f\x10\xda\xbe" + bytes(600), "VDI"),
    (b"QED\0" + bytes(600), "QED"), (b"WithoutFreeSpace" + bytes(600), "Parallels"),
    (seed.render("#cloud-config\n", "instance-id: a\n"), "ISO 9660"), (bytes(32769) + b"BEA01" + bytes(30000), "ISO 9660")])
def test_what_is_no_disk_image_is_told_by_name(data, part, declared):
    assert part in refused(data, declared)


@pytest.mark.parametrize(("head", "kind"), [
    (gzip.compress(b"x", mtime=0), "gzip"), (lzma.compress(b"x"), "xz"), (bz2.compress(b"x"), "bzip2"), (bz2.compress(b""), "bzip2"),
    (b"(\xb5/\xfd" + bytes(600), "zstd"), (b"\x50\x2a\x4d\x18" + bytes(4), "zstd"), (b"\x5f\x2a\x4d\x18" + bytes(4), "zstd"),
    (b"\x04\x22\x4d\x18" + bytes(9), "lz4"), (b"LZIP\1", "lzip"), (bytes(image()), None), (bytes(1024), None), (b"", None), (b"BZh9", None)])
def test_compression_is_told_by_content(head, kind):
    assert image_kinds.compression(head) == kind


@pytest.mark.parametrize(("sector", "part"), [
    (b"conectix" + bytes(504), "VHD"), (b"koly" + bytes(508), "DMG"), (bytes(512), None), (b"", None), (bytes(504) + b"conectix", None)])
def test_what_only_the_last_sector_tells(sector, part):
    refusal = image_kinds.last_sector_refusal(sector)
    assert refusal is None if part is None else part in refusal[0]


# -- overlays

def test_the_header_of_an_overlay_is_read():
    data = image([(0xE2792ACA, b"raw")], backing=b"/pool/base.raw")
    assert qcow2.overlay_header(data[:qcow2.HEAD], "overlay o", len(data)) == qcow2.OverlayHeader(
        GIB, "/pool/base.raw", "raw", CLUSTER, 3, 3 * CLUSTER, 2, snapshots=0, complete=True)
    assert "backing file" in refused(data)


def test_an_overlay_without_a_backing_format_or_backing_file():
    assert qcow2.overlay_header(image(backing=b"json:{}"), "overlay o").backing_format is None
    header = qcow2.overlay_header(image(), "overlay o")
    assert (header.backing_file, header.backing_format) == (None, None)


@pytest.mark.parametrize(("changes", "length", "complete"), [
    ({}, IMAGE_LENGTH, True), ({}, None, True), ({}, IMAGE_LENGTH - 1, False), ({}, CLUSTER, False), ({"incompatible": 1}, IMAGE_LENGTH, False),
    ({"incompatible": 2}, IMAGE_LENGTH, False)])
def test_whether_an_overlay_is_complete(changes, length, complete):
    assert qcow2.overlay_header(image(**changes), "overlay o", length).complete == complete


def test_snapshots_of_an_overlay_are_counted():
    assert qcow2.overlay_header(image(snapshots=3, snapshots_offset=5 * CLUSTER), "overlay o").snapshots == 3


@pytest.mark.parametrize("data", [
    b"", bytes(qcow2.HEAD), image()[:50], image(crypt_method=1), image(incompatible=4), image([(0x44415441, b"x")]), image(l1_entries=0)])
def test_what_is_no_overlay_of_ours_is_refused(data):
    with pytest.raises(InvalidInput) as caught:
        qcow2.overlay_header(data, "overlay o")
    assert caught.value.object == "overlay o"


def test_an_l1_table_is_empty_only_when_all_of_it_is_known_to_be():
    assert qcow2.l1_is_empty(bytes(16)) and qcow2.l1_is_empty(bytes(16), entries=2)
    assert not qcow2.l1_is_empty(bytes(15), entries=2)
    assert not qcow2.l1_is_empty(b"")
    for position in range(16):
        assert not qcow2.l1_is_empty(bytes(position) + b"\x01" + bytes(15 - position), entries=2)


# -- any bytes at all

STARTS = [b"", b"QFI\xfb", b"QFI\xfb\0\0\0\x02", b"QFI\xfb\0\0\0\x03", image()[:104], image(version=2)[:72], b"KDMV", b"\x1f\x8b", b"BZh91AY&SY"]


@given(st.sampled_from(STARTS), st.binary(max_size=300), st.integers(0, 2 ** 64) | st.none(), st.sampled_from(("qcow2", "raw", "vmdk", "")))
@example(b"", b"", 0, "qcow2")
def test_any_bytes_are_an_image_or_refused(start, rest, length, declared):
    data = start + rest
    try:
        info = qcow2.inspect(data, length, declared, "image a")
    except InvalidInput as error:
        assert len(str(error)) < 1000
    else:
        assert info.format == declared
    try:
        qcow2.overlay_header(data, "overlay o", length)
    except InvalidInput as error:
        assert len(str(error)) < 1000


def integers_of(form):
    bits = struct.calcsize(form) * 8
    return st.one_of(
        st.integers(0, 2 ** bits - 1), st.integers(0, min(2 ** bits - 1, 9)), st.integers(0, bits - 1).map(lambda bit: 1 << bit),
        st.sampled_from((0, CLUSTER, 2 * CLUSTER, 104, 112)).filter(lambda number: number < 2 ** bits))


mutations = st.fixed_dictionaries({}, optional={
    field: integers_of(form) for field, (_offset, form) in FIELDS.items() if field not in ("magic", "version")})
mutated = st.builds(
    lambda changes, version, at, junk: _overwrite(image(version=version, **changes), at, junk),
    mutations.map(lambda changes: {**changes, "header_length": changes.get("header_length", 104) % 4096}),
    st.sampled_from((2, 3)), st.integers(72, 400), st.binary(max_size=40))


def _overwrite(data, position, junk):
    return data[:position] + junk + data[position + len(junk):]


@given(mutated)
def test_a_mutated_header_is_sound_or_refused(data):
    try:
        info = inspect(data)
    except InvalidInput:
        return
    backing_offset, = struct.unpack_from(">Q", data, 8)
    crypt_method, = struct.unpack_from(">I", data, 32)
    assert (backing_offset, crypt_method) == (0, 0)
    if info.version == 3:
        assert not struct.unpack_from(">Q", data, 72)[0] & 0b111
    assert info.l1_offset + 8 * info.l1_entries <= len(data)
    assert info.virtual_size <= info.l1_entries * info.cluster_size * (info.cluster_size // 8)


def test_random_noise_is_never_a_qcow2_image():
    noise = random.Random(1)
    for _attempt in range(200):
        assert "declared as qcow2" in refused(b"\0" + noise.randbytes(5000))


def test_the_most_that_a_file_can_hold():
    assert qcow2.longest(GIB) == GIB + GIB // 8 + 64 * 2 ** 20
    assert qcow2.longest(GIB, snapshots=3) == 2 * GIB + 64 * 2 ** 20
