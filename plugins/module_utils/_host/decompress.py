# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compressed images unpacked as they stream by, with bounded memory whatever they claim to hold."""

from __future__ import annotations

import importlib

from .._policy.errors import PERMANENT, InvalidInput, Kvm2Error

BLOCK = 262120
# What xz -9 and zstd --ultra -22 --long=26 need for unpacking, with a little to spare; more is refused.
_MEMORY_LIMIT = 80 * 1024 ** 2
_ZSTD_WINDOW_LOG = 26
_GZIP_WINDOW = 31
_MODULES = {"gzip": "zlib", "bzip2": "bz2", "xz": "lzma"}
_HINT = "Fetch or copy the image again; where that does not help it is damaged at its origin."


class _Gzip:
    """One gzip member, with the interface of the other decompressors."""

    def __init__(self, zlib):
        self._engine = zlib.decompressobj(_GZIP_WINDOW)
        self._rest, self._more = b"", False

    def decompress(self, data, max_length):
        done = self._engine.decompress(self._rest + data, max_length)
        self._rest = self._engine.unconsumed_tail
        # A full output may not be all that the input makes, even where that is used up.
        self._more = bool(self._rest) or len(done) >= max_length
        return done

    @property
    def eof(self):
        return self._engine.eof

    @property
    def unused_data(self):
        return self._engine.unused_data

    @property
    def needs_input(self):
        return not self._more and not self._engine.eof


def _zstd():
    """Class of one zstd frame's decompressor, and its error: from Python 3.14 on in the standard library, before that in packages of their own."""
    found = _first_module("compression.zstd", "backports.zstd", "zstandard")
    if found is None:
        return None
    if hasattr(found, "DecompressionParameter"):
        options = {found.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
        return lambda: found.ZstdDecompressor(options=options), found.ZstdError
    return lambda: _Zstandard(found), found.ZstdError


def _first_module(*names):
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


class _Zstandard:
    """One zstd frame by the package zstandard. Its objects take no limit for a call's output, so they are fed little by little."""

    # A zstd block holds at most 128 KiB, and the smallest (a repeated byte) takes 4 bytes: so many bytes hold 32 of those at the most.
    _STEP = 128

    def __init__(self, zstandard):
        self._engine = zstandard.ZstdDecompressor(max_window_size=1 << _ZSTD_WINDOW_LOG).decompressobj()
        self._input, self._at = b"", 0

    def decompress(self, data, max_length):
        self._input, self._at = self._input[self._at:] + data, 0
        done, size = [], 0
        while self._at < len(self._input) and not self._engine.eof and size < max_length:
            done.append(self._engine.decompress(self._input[self._at:self._at + self._STEP]))
            self._at += self._STEP
            size += len(done[-1])
        return b"".join(done)

    @property
    def eof(self):
        return self._engine.eof

    @property
    def unused_data(self):
        return self._engine.unused_data + self._input[self._at:]

    @property
    def needs_input(self):
        return self._at >= len(self._input) and not self._engine.eof


def _engine(kind, name):
    """(makes the decompressor of one stream, errors it raises)"""
    # A Python can be built without any of them, and most runs need none.
    if kind == "zstd":
        found = _zstd()
        hint = "Install python3-zstandard (Debian's name; zstandard on PyPI) where the module runs, or use the image in xz, gzip or bzip2."
    elif kind in _MODULES:
        found = _first_module(_MODULES[kind])
        hint = f"Use a Python with the module {_MODULES[kind]} (ansible_python_interpreter), or the image unpacked."
    else:
        raise Kvm2Error(PERMANENT, "unpack", name, f"{kind} is not supported", "Use the image in xz, gzip, bzip2 or zstd, or unpacked.")
    if found is None:
        raise Kvm2Error(PERMANENT, "unpack", name, f"this Python cannot unpack {kind}", hint)
    if kind == "gzip":
        return lambda: _Gzip(found), found.error
    if kind == "bzip2":
        return found.BZ2Decompressor, (OSError, ValueError)
    if kind == "xz":
        return lambda: found.LZMADecompressor(found.FORMAT_XZ, memlimit=_MEMORY_LIMIT), found.LZMAError
    return found


def decompressed(blocks, kind, name, limit=None):
    """Blocks of what is compressed in `blocks`; kind as image_kinds.compression gives it. Raises Kvm2Error where it is damaged, cut short,
    goes on after its end, asks for too much memory, or unpacks to more than `limit` bytes."""
    make, errors = _engine(kind, name)
    engine, fresh, total = make(), False, 0
    for block in blocks:
        data = block
        while data or not (engine.needs_input or engine.eof):
            if engine.eof:
                # Streams may follow each other, with zeros for padding in between and at the end.
                data = data.lstrip(b"\0")
                if not data:
                    break
                engine, fresh = make(), True
            try:
                done = engine.decompress(data, BLOCK)
            except errors as error:
                cause = f"there are other bytes after the end of its {kind} data ({error})" if fresh else f"its {kind} data cannot be unpacked ({error})"
                raise InvalidInput(name, cause, _HINT) from error
            if engine.eof:
                data = engine.unused_data
            else:
                data = b""
            if done:
                fresh = False
                total += len(done)
                if limit is not None and total > limit:
                    raise InvalidInput(
                        name, f"it unpacks to more than {limit} bytes", "Raise max_virtual_size if the image is right; it may be a decompression bomb.")
                yield done
    if not engine.eof:
        raise InvalidInput(name, f"its {kind} data is cut short", _HINT)
