# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image inspector against QEMU's own tools: it reads the same figures from images that they make, and passes nothing they see more in."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings

from ansible_collections.egress.kvm2.plugins.module_utils._policy import qcow2
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import InvalidInput

_spec = importlib.util.spec_from_file_location("qcow2_headers", Path(__file__).with_name("test_qcow2.py"))
headers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(headers)

MIB = 2 ** 20


def qemu_img(*arguments, check=True):
    return subprocess.run(["qemu-img", *map(str, arguments)], capture_output=True, text=True, check=check)


def qemu_info(path, image_format):
    """What qemu-img info says, or None where it cannot open the image."""
    result = qemu_img("info", "--output=json", "-f", image_format, path, check=False)
    return json.loads(result.stdout) if result.returncode == 0 else None


def head_of(path):
    with path.open("rb") as file:
        return file.read(qcow2.HEAD)


def inspect(path, declared="qcow2"):
    return qcow2.inspect(head_of(path), path.stat().st_size, declared, str(path))


def table_of(path, header):
    with path.open("rb") as file:
        file.seek(header.l1_offset)
        return file.read(8 * header.l1_entries)


@pytest.mark.parametrize("size", [512, 64 * MIB, 3 * MIB + 512, 2 ** 40])
@pytest.mark.parametrize("options", [
    "compat=1.1", "compat=0.10", "cluster_size=512", "cluster_size=2M", "lazy_refcounts=on", "refcount_bits=1", "refcount_bits=64",
    "extended_l2=on", "compression_type=zstd"])
def test_images_made_by_qemu_img_pass_with_its_figures(tmp_path, size, options):
    if options == "cluster_size=512":
        # An L1 table for more takes qemu-img seconds, or is larger than QEMU allows.
        size = min(size, 2 ** 30)
    path = tmp_path / "a.qcow2"
    qemu_img("create", "-f", "qcow2", "-o", options, path, size)
    info, theirs = inspect(path), qemu_info(path, "qcow2")
    assert (info.virtual_size, info.cluster_size) == (theirs["virtual-size"], theirs["cluster-size"]) == (size, theirs["cluster-size"])
    assert info.version == (2 if options == "compat=0.10" else 3)


@pytest.mark.parametrize("arguments", [["-O", "qcow2"], ["-c", "-O", "qcow2"], ["-c", "-O", "qcow2", "-o", "compression_type=zstd"]])
def test_images_with_data_pass(tmp_path, arguments):
    source, path = tmp_path / "a.raw", tmp_path / "a.qcow2"
    source.write_bytes(b"\x01data" * 400000 + bytes(4 * MIB - 2000000))
    qemu_img("convert", "-f", "raw", *arguments, source, path)
    assert inspect(path).virtual_size == qemu_info(path, "qcow2")["virtual-size"]
    assert inspect(source, "raw").virtual_size == source.stat().st_size


def test_the_headers_that_the_tests_build_are_images_to_qemu_too(tmp_path):
    path = tmp_path / "a.qcow2"
    for version in (2, 3):
        path.write_bytes(headers.image(version=version))
        assert qemu_info(path, "qcow2")["virtual-size"] == inspect(path).virtual_size


@pytest.mark.parametrize(("arguments", "part"), [
    (["-f", "qcow2", "-b", "{base}", "-F", "qcow2", "{image}"], "backing file"),
    (["-f", "qcow2", "-o", "data_file={data}", "{image}", "1M"], "external file"),
    # LUKS is tested with headers of our own: QEMU measures the machine's speed to make one, which fails on a busy machine.
    (["-f", "qcow2", "--object", "secret,id=s,data=abcdef", "-o", "encrypt.format=aes,encrypt.key-secret=s", "{image}", "1M"], "encrypted"),
    (["-f", "vmdk", "{image}", "1M"], "VMDK"), (["-f", "vdi", "{image}", "1M"], "VDI"), (["-f", "vpc", "{image}", "1M"], "VHD"),
    (["-f", "vhdx", "{image}", "8M"], "VHDX"), (["-f", "qed", "{image}", "1M"], "QED"), (["-f", "parallels", "{image}", "1M"], "Parallels"),
    (["-f", "qcow", "{image}", "1M"], "version 1")])
def test_images_of_other_kinds_are_refused(tmp_path, arguments, part):
    base, path = tmp_path / "base.qcow2", tmp_path / "a"
    qemu_img("create", "-f", "qcow2", base, "1M")
    qemu_img("create", *(one.format(base=base, data=tmp_path / "data", image=path) for one in arguments))
    with pytest.raises(InvalidInput, match=part):
        inspect(path)
    with pytest.raises(InvalidInput):
        inspect(path, "raw")


def test_every_truncation_of_a_real_image_that_loses_a_table_is_refused(tmp_path):
    path = tmp_path / "a.qcow2"
    qemu_img("create", "-f", "qcow2", path, "1G")
    whole = path.read_bytes()
    for length in (1, 71, 104, 512, 65536, 131072, 196608, len(whole) - 1):
        with pytest.raises(InvalidInput):
            qcow2.inspect(whole[:length][:qcow2.HEAD], length, "qcow2", "a")


@pytest.mark.parametrize("options", ["compat=1.1", "compat=0.10", "cluster_size=2M", "extended_l2=on"])
def test_an_overlay_is_empty_until_something_is_written(tmp_path, options):
    base, path = tmp_path / "base.raw", tmp_path / "o.qcow2"
    base.write_bytes(bytes(MIB))
    qemu_img("create", "-f", "qcow2", "-o", options, "-b", base, "-F", "raw", path, "4M")
    header = qcow2.overlay_header(head_of(path), "overlay o", path.stat().st_size)
    assert (header.virtual_size, header.backing_file, header.backing_format) == (4 * MIB, str(base), "raw")
    assert header.complete and header.snapshots == 0
    assert qcow2.l1_is_empty(table_of(path, header), header.l1_entries)

    subprocess.run(["qemu-io", "-f", "qcow2", "-c", "write 0 4k", path], capture_output=True, check=True)
    header = qcow2.overlay_header(head_of(path), "overlay o", path.stat().st_size)
    assert header.complete and not qcow2.l1_is_empty(table_of(path, header), header.l1_entries)


def test_an_overlay_with_a_snapshot_says_so(tmp_path):
    path = tmp_path / "o.qcow2"
    qemu_img("create", "-f", "qcow2", path, "4M")
    qemu_img("snapshot", "-c", "one", path)
    assert qcow2.overlay_header(head_of(path), "overlay o").snapshots == 1


@settings(max_examples=60)
@given(headers.mutated)
def test_what_passes_needs_no_other_file_in_the_eyes_of_qemu(data):
    try:
        info = qcow2.inspect(data[:qcow2.HEAD], len(data), "qcow2", "a")
    except InvalidInput:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.qcow2")
        path.write_bytes(data)
        theirs = qemu_info(path, "qcow2")
    if theirs is not None:
        assert theirs["virtual-size"] == info.virtual_size and theirs["cluster-size"] == info.cluster_size
        assert "backing-filename" not in theirs and not theirs.get("encrypted")
        assert "data-file" not in theirs["format-specific"]["data"]
