# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Importing this makes Python compile each further file of the archive that Ansible sends a module in once. By itself it does so twice (zipimport
compiles a file to tell its name, and again to run it), and that is the longer part of what a call costs that has nothing to do."""

from __future__ import annotations

import functools
import sys
from importlib.machinery import ModuleSpec
from zipimport import ZipImportError, zipimporter

# The path of the archive that the module came in, empty where it came in none.
ARCHIVE = __spec__.loader.archive if isinstance(__spec__.loader, zipimporter) else ""

# It looks for its file each time that it is made.
_archive = functools.lru_cache(maxsize=None)(zipimporter)


class _Finder:
    """Finds what the packages in the archive hold; leaves everything else to Python."""

    @staticmethod
    def find_spec(name, path=None, _target=None):
        if not path or not path[0].startswith(ARCHIVE):
            return None
        try:
            archive = _archive(path[0])
            package = archive.is_package(name)
        except ZipImportError:
            return None
        folder = f"{path[0]}/{name.rpartition('.')[2]}"
        spec = ModuleSpec(name, _Loader(archive), origin=f"{folder}/__init__.py" if package else f"{folder}.py", is_package=package)
        spec.has_location = True
        if package:
            spec.submodule_search_locations.append(folder)
        return spec


class _Loader:
    """Of a module in the archive."""

    def __init__(self, archive):
        self._archive = archive

    @staticmethod
    def create_module(_spec):
        return None

    def get_source(self, name):
        """The text, also for tracebacks."""
        return self._archive.get_source(name)

    def exec_module(self, module):
        spec = module.__spec__
        exec(compile(self.get_source(spec.name), spec.origin, "exec", dont_inherit=True), module.__dict__)


if ARCHIVE:
    sys.meta_path.insert(0, _Finder)
