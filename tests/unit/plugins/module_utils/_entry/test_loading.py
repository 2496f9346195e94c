# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible sends modules as source, so each file that one loads is compiled in each call: what only some calls need is loaded by those."""

from __future__ import annotations

import os
import subprocess
import sys

OURS = "ansible_collections.egress.kvm2.plugins.module_utils."
# What kvm2_image loads before it knows that it has something to do.
SCRIPT = f"""
import sys
import {OURS}_entry.run, {OURS}_services.image
print(*sys.modules)
"""
# Of an import, of a collection, of failures, of domains, and of kvm2_pool_check.
LATER = (
    "ansible.module_utils.urls", "difflib", "fractions", *(OURS + name for name in (
        "_host.fetch", "_host.source", "_host.spool", "_host.streaming", "_host.beside", "_host.decompress", "_host.python_libraries", "_host.host_files",
        "_host.console_log", "_host.daemon_limits", "_host.qemu_img", "_services.image_import", "_services.image_content", "_services.image_source",
        "_policy.qcow2", "_policy.image_kinds", "_policy.references", "_policy.packages", "_policy.mark", "_policy.space", "_policy.domain_spec",
        "_policy.domain_read", "_policy.network_checks", "_policy.host_state")))


def test_a_cached_image_needs_little_code():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)), capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert OURS + "_services.bases" in loaded
    assert loaded.isdisjoint(LATER)
