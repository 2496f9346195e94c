# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lies below an image file, as qemu-img tells it on the hypervisor itself."""

from __future__ import annotations

import json
import os

from .._policy.errors import Kvm2Error
from . import storage

TIMEOUT = 20


def backing_chain(path, run=storage.run):
    """Paths of all files below the image at `path`; empty for one that stands alone or has gone, None where that cannot be told,
    as where its storage does not answer.

    run: as storage.run.
    """
    try:
        if not storage.touch("lexists", path):
            # A folder that is not here either may be another machine's, or on a disk that is not mounted.
            return () if storage.touch("exists", os.path.dirname(path)) else None
        code, output = run(["qemu-img", "info", "-U", "--backing-chain", "--output=json", path], path, TIMEOUT)
    except (OSError, Kvm2Error):
        return None
    if code != 0:
        return None
    try:
        files = [os.path.abspath(entry["filename"]) for entry in json.loads(output)]
    except (ValueError, KeyError, TypeError):
        return None
    return tuple(files[1:])
