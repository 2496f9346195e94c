# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An HTTP server inside the test that gives one image as slowly as the test wants."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import random
import re
import threading

BLOCK = 65536


def random_image(size, seed):
    """Bytes that no compression and no hole shortens; the same for the same seed."""
    return random.Random(seed).randbytes(size)


class Served:
    """content behind url. With hold_at the answers stop after that many bytes until release(); with rate they give so many bytes a second.

    requests counts the fetches; a look at the beginning, which precedes each, is none.
    """

    def __init__(self, content, hold_at=None, rate=None):
        self.content, self.rate, self.hold_at = content, rate, hold_at
        self.checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.url = ""
        self.requests = 0
        self._lock, self._holding = threading.Lock(), threading.Semaphore(0)
        self._held, self._released, self._closed = threading.Event(), threading.Event(), threading.Event()

    def release(self):
        """Let the answers go on."""
        self._released.set()

    def close(self):
        """Give the rest as fast as it goes."""
        self._released.set()
        self._closed.set()

    def wait_until_held(self, seconds=60):
        assert self._held.wait(seconds), "nobody fetched as far as to where the answer stops"

    def wait_until_held_by(self, count, seconds=60):
        """So many fetches have come to where the answer stops; to be asked once."""
        for number in range(count):
            assert self._holding.acquire(timeout=seconds), f"{number} of {count} fetched as far as to where the answer stops"

    def give(self, write):
        with self._lock:
            self.requests += 1
        sent = 0
        while sent < len(self.content):
            end = min(sent + BLOCK, len(self.content))
            if self.hold_at is not None and sent <= self.hold_at < end and not self._released.is_set():
                write(self.content[sent:self.hold_at])
                sent = self.hold_at
                self._held.set()
                self._holding.release()
                self._released.wait(300)
                continue
            write(self.content[sent:end])
            if self.rate:
                # The pace itself, not a wait for something to happen.
                self._closed.wait((end - sent) / self.rate)
            sent = end


@contextlib.contextmanager
def serving(address, content, **how):
    """Serve content on a free port of this address; gives a Served."""
    served = Served(content, **how)

    class Handler(http.server.BaseHTTPRequestHandler):
        def _head(self, beginning=None):
            self.send_response(200 if beginning is None else 206)
            self.send_header("Content-Length", str(len(content) if beginning is None else beginning))
            if beginning is not None:
                self.send_header("Content-Range", f"bytes 0-{beginning - 1}/{len(content)}")
            self.send_header("ETag", '"as-it-is"')
            self.end_headers()

        def do_HEAD(self):
            self._head()

        def do_GET(self):
            look = re.fullmatch(r"bytes=0-(\d+)", self.headers.get("Range", ""))
            beginning = min(int(look[1]) + 1, len(content)) if look else None
            self._head(beginning)
            with contextlib.suppress(OSError):
                if look:
                    self.wfile.write(content[:beginning])
                else:
                    served.give(self.wfile.write)

        def log_message(self, *_values):
            pass

    server = http.server.ThreadingHTTPServer((address, 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    served.url = f"http://{address}:{server.server_address[1]}/image.raw"
    try:
        yield served
    finally:
        served.close()
        server.shutdown()
        server.server_close()
        thread.join()
