# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of the steps that sitecustomize.py noted change something. Nothing but the standard library: programs on a hypervisor use it too."""

from __future__ import annotations

import re

# Calls that only look, or belong to a connection that dies with the process anyway.
READING = re.compile(
    r"(open|helper\.hash_on|helper\.is_same|vir\w+\.(\w*[lL]ookup\w*|list\w*|get\w*|is\w+|has\w+|XMLDesc|name|path|info|UUID\w*|ID|OSType|state|metadata"
    r"|snapshotNum|managedSaveGetXMLDesc|interfaceAddresses|autostart|refresh|download|newStream|connect|setKeepAlive|register\w*|unregister\w*|close)) ")


def changing(steps):
    """Each place to kill at that makes a difference: before and after every step that is not just a look."""
    found = [step for step in steps if not READING.match(step)]
    return [f"{when} {step}" for step in found for when in ("before", "after")]


def without_downloads(steps):
    """Whether the end of a stream is a change, the stream's begin tells."""
    found, uploads = [], False
    for step in steps:
        if step.startswith(("virStorageVol.upload", "virStorageVol.download")):
            uploads = ".upload" in step
        if uploads or not step.startswith("virStream."):
            found.append(step)
    return found
