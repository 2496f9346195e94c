# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy import progress
from ansible_collections.egress.kvm2.plugins.module_utils._policy.progress import Sample

MIB = 1024 ** 2


@pytest.mark.parametrize("sample, before, text", [
    (Sample("fetch", 25 * MIB, 100 * MIB, 5), None, "fetching 25 % of 100.0 MiB, 5.0 MiB/s, 15 s left"),
    (Sample("fetch", 50 * MIB, 100 * MIB, 10), Sample("fetch", 40 * MIB, 100 * MIB, 8), "fetching 50 % of 100.0 MiB, 5.0 MiB/s, 10 s left"),
    (Sample("fetch", 40 * MIB, None, 4), None, "fetching 40.0 MiB, 10.0 MiB/s"),
    (Sample("fetch", 40 * MIB, 80 * MIB, 9), Sample("fetch", 40 * MIB, 80 * MIB, 4), "fetching 50 % of 80.0 MiB, nothing came since the last look"),
    (Sample("verify", 10 * MIB, 20 * MIB, 1), Sample("fetch", 20 * MIB, 20 * MIB, 60), "verifying 50 % of 20.0 MiB, 10.0 MiB/s, 1 s left"),
    (Sample("store", 1 * MIB, 3 * 3600 * MIB, 1), None, "storing 0 % of 10.5 GiB, 1.0 MiB/s, 2 h 59 min left"),
    (Sample("store", 1 * MIB, 101 * MIB, 0), None, "storing 0 % of 101.0 MiB"),
    # Fetched once more from the start.
    (Sample("fetch", 10 * MIB, 100 * MIB, 5), Sample("fetch", 50 * MIB, 100 * MIB, 4), "fetching 10 % of 100.0 MiB, 2.0 MiB/s, 45 s left"),
    (Sample("fetch", 11 * MIB, 10 * MIB, 1), None, "fetching 100 % of 10.0 MiB, 11.0 MiB/s"),
    (Sample("wait", 75, None, 75), None, "waiting for another run that has the same to do, 1 min 15 s so far"),
])
def test_line(sample, before, text):
    assert progress.line(sample, before) == text


@given(st.sampled_from(["fetch", "store", "verify", "wait"]), st.integers(0, 2 ** 62), st.none() | st.integers(0, 2 ** 62), st.floats(0, 1e9))
def test_what_is_written_is_read_and_shown(phase, done, total, seconds):
    sample = Sample(phase, done, total, seconds)
    data = progress.render(sample)
    assert len(data) < progress.LIMIT
    assert progress.parse("\r\nLast login: today\r\n" + data.decode()) == sample
    assert "\n" not in progress.line(sample)


VALUES = st.none() | st.integers() | st.text() | st.floats()


@given(st.text() | st.dictionaries(st.sampled_from(["phase", "done", "total", "seconds", "more"]), VALUES).map(json.dumps))
def test_anything_else_is_nothing_or_a_sample_that_can_be_shown(text):
    sample = progress.parse(text)
    assert sample is None or progress.line(sample)


@pytest.mark.parametrize("token", [None, "", "a" * 31, "A" * 32, "../" + "a" * 29, "a" * 32 + "\n", "a" * 33])
def test_only_a_token_names_a_folder(token):
    assert progress.folder(token) is None
    assert progress.folder("0f" * 16) == "/tmp/kvm2-progress-" + "0f" * 16
