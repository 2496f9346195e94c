# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many instances made and removed, and many replacements of one in a row: what is left is what the collector takes."""

from __future__ import annotations

import pytest

from .living import living, output


def test_ten_instances_and_ten_replacements(hv1):
    with living(hv1, "hv1"):
        output(hv1, "hv1", "python3 many.py 10 10")


@pytest.mark.extended
def test_a_hundred_instances_and_a_hundred_replacements(hv1):
    with living(hv1, "hv1"):
        output(hv1, "hv1", "python3 many.py 100 100")
