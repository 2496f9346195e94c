# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NoCloud seed of an instance: a small ISO image, the same bits for the same inputs."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import traceback
import zlib

from .errors import InvalidInput, MissingLibrary
from .iso_dates import fix_dates

try:
    import pycdlib
    PYCDLIB_IMPORT_ERROR = None
except ImportError:
    pycdlib = None
    PYCDLIB_IMPORT_ERROR = traceback.format_exc()

LABEL = "cidata"
_FILES = (("user-data", "USERDATA.;1"), ("meta-data", "METADATA.;1"), ("network-config", "NETWORK.;1"))
# What cloud-init looks for at the start of user data; everything else it passes over with a warning in the guest's log.
_BEGINNINGS = (
    b"#cloud-config", b"#!", b"#include", b"#cloud-boothook", b"#part-handler", b"## template: jinja")
_GZIP = b"\x1f\x8b"
# How text begins that is gzip in base64: bytes as such go through no variable of Ansible's.
_GZIP_AS_TEXT = b"H4sI"
_LOOKED_AT = 4096


def render(user_data, meta_data, network_config=None):
    """The ISO image (bytes, whole sectors of 2048) with the files user-data, meta-data and, where given, network-config.

    user_data is str or bytes, empty or None for none; the others are str. Text that is gzip in base64 becomes gzip, which cloud-init reads.
    Raises InvalidInput for inputs that cloud-init would ignore, and MissingLibrary where pycdlib is not installed.
    """
    inputs = _inputs(user_data, meta_data, network_config)
    if pycdlib is None:
        raise MissingLibrary("pycdlib", "make", "the cloud-init seed")
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=LABEL)
    for (name, iso_name), content in zip(_FILES, inputs):
        if content is not None:
            iso.add_fp(io.BytesIO(content), len(content), f"/{iso_name}", rr_name=name, joliet_path=f"/{name}")
    written = io.BytesIO()
    iso.write_fp(written)
    iso.close()
    image = bytearray(written.getvalue())
    fix_dates(image)
    return bytes(image)


def inputs_hash(user_data, meta_data, network_config=None):
    """Hex sha256 over the three inputs of render(), which an absent and an empty one tell apart. Raises InvalidInput like render()."""
    digest = hashlib.sha256()
    for (name, _iso_name), content in zip(_FILES, _inputs(user_data, meta_data, network_config)):
        # Each length goes before its content, so that no two sets of inputs run together into the same bytes.
        digest.update(f"{name} {'absent' if content is None else len(content)}\n".encode())
        digest.update(content or b"")
    return digest.hexdigest()


def of_generation(meta_data, nonce):
    """The meta-data of one seed of an instance: the nonce in the seed's name goes with the instance-id, so that cloud-init runs again where a
    new seed takes the place of an old one, and does nothing at an ordinary boot."""
    first, newline, rest = meta_data.partition("\n")
    return f"{first}-{nonce}{newline}{rest}"


def _inputs(user_data, meta_data, network_config):
    """The contents of the three files as bytes, the last None where it is not wanted."""
    user, meta = _user_bytes(user_data or "#cloud-config\n"), _bytes(meta_data or "", "meta_data")
    check_user_data(user)
    if b"instance-id" not in meta:
        raise InvalidInput(
            "meta_data", "it has no instance-id, without which cloud-init takes every guest for the same instance",
            "Leave meta_data out, or add a line such as instance-id: proxy-01.")
    return user, meta, None if network_config is None else _bytes(network_config, "network_config")


def _user_bytes(user_data):
    found = _bytes(user_data, "user_data")
    if not found.startswith(_GZIP_AS_TEXT):
        return found
    try:
        return base64.b64decode(b"".join(found.split()), validate=True)
    except binascii.Error as error:
        raise InvalidInput("user_data", f"it begins as gzip in base64 and is damaged: {error}", "Encode it again: gzip -c FILE | base64.") from error


def _bytes(value, what):
    if isinstance(value, bytes):
        return value
    try:
        # Ansible hands on bytes that are no UTF-8 as surrogates: they go back to what they were.
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidInput(what, f"it holds a character that no text has, at position {error.start}", "Remove that character.") from error


def check_user_data(user_data, what="user_data"):
    """Raise InvalidInput, which names `what`, when cloud-init would ignore user_data (str or bytes); gzip is looked into."""
    user_data = _bytes(user_data, what)
    start = user_data[:_LOOKED_AT]
    if start.startswith(_GZIP):
        try:
            start = zlib.decompressobj(wbits=31).decompress(user_data, _LOOKED_AT)
        except zlib.error as error:
            raise InvalidInput(what, f"it is compressed and damaged: {error}", "Compress it again with gzip.") from error
    start = start.lower()
    if start.lstrip().startswith(_BEGINNINGS) or b"mime-version:" in start:
        return
    # What it holds is not shown: it may be a secret.
    raise InvalidInput(
        what, "cloud-init would ignore it: its first line names no format that cloud-init knows",
        "Begin it with the line #cloud-config, with #! for a script, or give a MIME message.")
