# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Giving the zeros of a file back to its filesystem, on the machine of the pool."""

from __future__ import annotations


def dig(run_command, path):
    """Turn the zeros of a file into holes, which read as zeros; None where that was done, else why not. run_command: AnsibleModule.run_command."""
    try:
        code, _output, errors = run_command(["fallocate", "--dig-holes", path], handle_exceptions=False)
    except OSError as error:
        return f"fallocate: {error.strerror or error}"
    return None if code == 0 else errors.strip() or f"fallocate ended with {code}"
