# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import hashlib
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import TRANSIENT, Kvm2Error
from ansible_collections.egress.kvm2.plugins.module_utils._services import transfer

BLOCKS = st.lists(st.binary(min_size=1, max_size=64), max_size=40)


@given(BLOCKS, st.integers(0, 300))
def test_head_and_rest_are_the_whole(blocks, size):
    head, rest = transfer.take_head(blocks, size)
    whole = b"".join(blocks)
    assert whole.startswith(head) and len(head) >= min(size, len(whole))
    assert b"".join(rest) == whole


@given(BLOCKS, st.integers(1, 4))
def test_prefetch_keeps_order_and_content(blocks, depth):
    digest = hashlib.sha256()
    assert list(transfer.prefetch(transfer.hashing(blocks, digest), depth)) == blocks
    assert digest.hexdigest() == transfer.digest_of(blocks) == hashlib.sha256(b"".join(blocks)).hexdigest()


def failing():
    yield b"one"
    raise Kvm2Error(TRANSIENT, "fetch", "it", "no more")


def test_prefetch_hands_on_a_failure():
    blocks = transfer.prefetch(failing())
    assert next(blocks) == b"one"
    with pytest.raises(Kvm2Error, match="no more"):
        next(blocks)


def test_prefetch_left_early_ends_its_thread():
    blocks = transfer.prefetch(iter([b"x"] * 1000), depth=1)
    next(blocks)
    blocks.close()
    assert not any(thread.name == "kvm2-prefetch" and thread.is_alive() for thread in threading.enumerate())
