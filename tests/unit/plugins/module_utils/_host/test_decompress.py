# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import bz2
import gzip
import lzma
import random
import tracemalloc

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._host import decompress
from ansible_collections.egress.kvm2.plugins.module_utils._policy import image_kinds
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import InvalidInput, Kvm2Error

COMPRESS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": zstandard.ZstdCompressor().compress}
KINDS = pytest.mark.parametrize("kind", sorted(COMPRESS))
DATA = random.Random(1).randbytes(300_000) + bytes(700_000)
MIB = 1024 ** 2


def cut(data, size):
    return (data[at:at + size] for at in range(0, len(data), size))


def unpack(data, kind, size=1000, limit=None):
    return b"".join(decompress.decompressed(cut(data, size), kind, "image", limit))


@KINDS
@pytest.mark.parametrize("size", [1, 1000, 10 ** 7])
def test_content_comes_out(kind, size):
    packed = COMPRESS[kind](DATA if size > 1 else DATA[:2000])
    assert image_kinds.compression(packed) == kind
    assert unpack(packed, kind, size) == DATA[:len(DATA) if size > 1 else 2000]


@KINDS
@given(parts=st.lists(st.binary(max_size=300), min_size=1, max_size=4), size=st.integers(1, 700), padding=st.sampled_from([0, 4, 512]))
def test_streams_that_follow_each_other(kind, parts, size, padding):
    packed = b"".join(COMPRESS[kind](part) for part in parts) + bytes(padding)
    assert unpack(packed, kind, size) == b"".join(parts)


@KINDS
@given(keep=st.floats(0, 0.999))
def test_cut_short(kind, keep):
    packed = COMPRESS[kind](DATA[:5000])
    with pytest.raises(InvalidInput, match="cut short"):
        unpack(packed[:int(len(packed) * keep)], kind)


@KINDS
def test_other_bytes_after_the_end(kind):
    with pytest.raises(InvalidInput, match="after the end"):
        unpack(COMPRESS[kind](DATA) + b"something else, long enough to be told", kind)


@KINDS
@given(st.data())
def test_damage_raises_nothing_of_its_own(kind, data):
    packed = bytearray(COMPRESS[kind](DATA[295_000:305_000]))
    for _count in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        unpack(bytes(packed), kind, limit=10 * MIB)
    except InvalidInput as error:
        assert error.kind == "permanent"


@KINDS
def test_a_bomb_ends_at_the_limit_and_takes_little_memory(kind):
    packed = COMPRESS[kind](bytes(64 * MIB))
    assert len(packed) < 2 * MIB
    got = 0
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match="max_virtual_size"):
            for block in decompress.decompressed([packed], kind, "image", 32 * MIB):
                got += len(block)
        assert tracemalloc.get_traced_memory()[1] < 24 * MIB
    finally:
        tracemalloc.stop()
    assert got <= 32 * MIB


def test_a_dictionary_that_needs_too_much_memory():
    packed = lzma.compress(DATA, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 256 * MIB}])
    with pytest.raises(InvalidInput, match="xz data cannot be unpacked"):
        unpack(packed, "xz")
    strongest = lzma.compress(DATA, preset=9 | lzma.PRESET_EXTREME)
    assert unpack(strongest, "xz") == DATA


def test_a_window_that_needs_too_much_memory():
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
    engine = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = engine.compress(DATA) + engine.flush()
    with pytest.raises(InvalidInput, match="zstd data cannot be unpacked"):
        unpack(packed, "zstd")


def test_what_this_python_cannot_unpack(monkeypatch):
    def missing(name):
        raise ImportError(name)
    monkeypatch.setattr(decompress.importlib, "import_module", missing)
    with pytest.raises(Kvm2Error, match="python3-zstandard") as caught:
        unpack(COMPRESS["zstd"](DATA), "zstd")
    assert caught.value.kind == "permanent"
    with pytest.raises(Kvm2Error, match="ansible_python_interpreter"):
        unpack(COMPRESS["xz"](DATA), "xz")
    with pytest.raises(Kvm2Error, match="lz4 is not supported"):
        unpack(b"", "lz4")
