# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Python that runs the module, and the libraries that it has for it."""

from __future__ import annotations

import importlib.util
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from .._policy.host_state import Library, Runtime
from .host_files import read, settings

# By import name: the name that the library is registered under.
LIBRARIES = {"libvirt": "libvirt-python", "lxml": "lxml", "pycdlib": "pycdlib"}


def runtime(root="/"):
    """host_state.Runtime of this process."""
    return Runtime(
        sys.executable, platform.python_version(), families(root), tuple(Library(name, _version(name)) for name in LIBRARIES))


def families(root="/"):
    """What the distribution calls itself and what it is like, as os-release has it, the closest first."""
    found = settings(read(root, "etc/os-release"))
    return (found["ID"], *found.get("ID_LIKE", "").split()) if found.get("ID") else ()


def _version(name):
    """The library's version, empty where it has none to tell, None where it cannot be found."""
    if importlib.util.find_spec(name) is None:
        return None
    try:
        return version(LIBRARIES[name])
    except PackageNotFoundError:
        return ""
