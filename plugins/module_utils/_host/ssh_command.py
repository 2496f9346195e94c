# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program for libvirt to run in the place of ssh. libvirt takes the path of one, without arguments."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager

from . import ending


@contextmanager
def program(script):
    """The path of a program with that text, in a folder of this user alone, while the context lasts. A file in memory would not do: libvirt takes
    away the rights with which root could run it."""
    folder = tempfile.mkdtemp(prefix="egress-kvm2-")
    ending.SCRATCH.add(folder)
    try:
        path = os.path.join(folder, "ssh")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700)
        try:
            os.write(descriptor, script.encode())
        finally:
            os.close(descriptor)
        yield path
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        ending.SCRATCH.discard(folder)
