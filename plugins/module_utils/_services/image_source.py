# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the source of an image says of it without its being imported: its digest, and whether it changed."""

from __future__ import annotations

from .._host import fetch, source
from .._policy import record
from . import transfer


def digest_of_file(options, context):
    """Hex sha256 of the file `src`. options: image_options.ImageOptions; context: service.Context."""
    return _digest(source.open_file(options.src, context.check_stop), "sha256", context)


def digest_of_list(options):
    """The hex digest of the image in the list of checksums whose URL was given."""
    text = fetch.read_text(options.checksum.url, options.fetch_sums)
    return record.find_checksum(text, options.file_name, options.checksum.algorithm)


def has_changed(options, known, context):
    """Does the URL give something else than what the record.Record `known` says that was fetched from it?"""
    unchanged = fetch.is_unchanged(options.url, options.fetch, known.etag, known.last_modified)
    if unchanged is None:
        context.warn(f"The server of {options.source_name} gives neither ETag nor Last-Modified: the whole image is fetched to see whether it changed.")
        algorithm, _colon, digest = known.fetched.partition(":")
        unchanged = digest == _digest(fetch.open_source(options.url, options.fetch), algorithm, context)
    return not unchanged


def _digest(opened, algorithm, context):
    try:
        return transfer.digest_of(transfer.watched(opened.blocks(), opened.length, "fetch", context.progress, context.check_stop), algorithm)
    finally:
        opened.close()
