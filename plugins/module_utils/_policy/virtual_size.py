# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The limit of what an image may look like to its guest."""

from __future__ import annotations

from .errors import InvalidInput


def check_virtual_size(size, limit, obj):
    """Raise InvalidInput where a virtual size is above the limit, both in bytes or None."""
    if limit is not None and size is not None and size > limit:
        raise InvalidInput(
            obj, f"its virtual size of {size} bytes is above the limit of {limit} bytes", "Raise max_virtual_size if the image is right.")
