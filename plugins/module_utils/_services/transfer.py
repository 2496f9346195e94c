# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Blocks of bytes on their way: hashed as they pass, fetched by one thread while another sends them."""

from __future__ import annotations

import hashlib
import queue
import threading

from .._policy.errors import Kvm2Error

_END = object()


def hashing(blocks, *digests):
    """Pass blocks on and update each hashlib object with them."""
    for block in blocks:
        for digest in digests:
            digest.update(block)
        yield block


def watched(blocks, total, phase, progress, check_stop):
    """Pass blocks on; tell progress(done, total, phase) and ask check_stop() at each. total: bytes or None."""
    done = 0
    for block in blocks:
        check_stop()
        done += len(block)
        progress(done, total, phase)
        yield block


def prefetch(blocks, depth=8):
    """Iterate over blocks that a thread of its own reads ahead, at most `depth` of them. Leaving early stops the thread."""
    # Two queues in C, one of blocks and one of room for them: a bounded queue in Python would take a twentieth of an upload's time.
    waiting, room, stop = queue.SimpleQueue(), queue.SimpleQueue(), threading.Event()
    for _block in range(depth):
        room.put(None)

    def read():
        try:
            for block in blocks:
                room.get()
                if stop.is_set():
                    return
                waiting.put(block)
        except Kvm2Error as error:
            waiting.put(error)
        finally:
            # Whatever ended the reading, the taker must not wait for ever; it counts the bytes.
            waiting.put(_END)

    reader = threading.Thread(target=read, name="kvm2-prefetch", daemon=True)
    reader.start()
    try:
        while True:
            item = waiting.get()
            if item is _END:
                return
            if isinstance(item, Kvm2Error):
                raise item
            room.put(None)
            yield item
    finally:
        stop.set()
        room.put(None)
        reader.join(2)


def take_head(blocks, size):
    """(head, rest): at least the first `size` bytes where there are that many, and an iterator over everything, head included."""
    blocks = iter(blocks)
    taken, have = [], 0
    for block in blocks:
        taken.append(block)
        have += len(block)
        if have >= size:
            break

    def everything():
        while taken:
            yield taken.pop(0)
        yield from blocks

    return b"".join(taken), everything()


def digest_of(blocks, algorithm="sha256"):
    digest = hashlib.new(algorithm)
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()
