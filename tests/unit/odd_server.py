# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An HTTP server that serves the files of a folder in all the ways that servers do: /<way>/<file>.

Needs nothing but Python's standard library, so that it also runs on a hypervisor: odd_server.py FOLDER PORT.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import pathlib
import re
import sys
import threading
from urllib.parse import parse_qs, urlsplit

BLOCK = 65536
DATE = "Mon, 05 Jan 2026 10:00:00 GMT"
PASSWORD = "Basic " + base64.b64encode(b"someone:secret").decode()


class Handler(http.server.BaseHTTPRequestHandler):
    """Ways: plain; chunked; closed (no length, ended by closing); noranges; novalidators; nohead; drop, dropnorange, dropchange, dropweak
    (the first transfer of each URL breaks off in the middle); dropalways (none gets beyond the middle); flaky (two times 503 before it works);
    auth (user someone, password secret); token (header X-Token: secret); redirect (within the server); to?to=URL; loop; status/NNN."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self._answer()

    def do_GET(self):
        self._answer()

    def _answer(self):
        with self.server.lock:
            self.server.requests.append((self.command, self.path, dict(self.headers.items())))
            # Requests for a part are not counted: before an image is fetched its beginning is looked at.
            count = self.server.counts[self.path] = self.server.counts.get(self.path, 0) + (self.command == "GET" and "Range" not in self.headers)
        parts = urlsplit(self.path)
        way, _slash, name = parts.path.lstrip("/").partition("/")
        if way == "status":
            return self._say(int(name))
        if way in ("redirect", "loop", "to"):
            return self._say(302, Location={"redirect": f"/plain/{name}", "loop": self.path}.get(way) or parse_qs(parts.query)["to"][0])
        if way == "flaky" and len([path for _method, path, _headers in self.server.requests if path == self.path]) <= 2:
            return self._say(503)
        if way == "auth" and self.headers.get("Authorization") != PASSWORD:
            return self._say(401, **{"WWW-Authenticate": 'Basic realm="odd"'})
        if way == "token" and self.headers.get("X-Token") != "secret":
            return self._say(403)
        if way == "nohead" and self.command == "HEAD":
            return self._say(405)
        path = self.server.folder / name
        if "/" in name or not path.is_file():
            return self._say(404)
        return self._file(path.read_bytes(), way, count)

    def _say(self, status, **headers):
        self.send_response(status)
        for header, value in headers.items():
            self.send_header(header, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _file(self, data, way, count):
        looks = self.headers.get("Range", "").startswith("bytes=0-")
        first_part = (way == "dropalways" and not looks) or (way.startswith("drop") and "Range" not in self.headers and count == 1)
        tag = hashlib.sha256(data).hexdigest()[:16] + (str(len(self.server.requests)) if way == "dropchange" else "")
        tag = f'W/"{tag}"' if way == "dropweak" else f'"{tag}"'
        validators = {} if way == "novalidators" else {"ETag": tag, "Last-Modified": DATE}
        if validators and (self.headers.get("If-None-Match") == tag or (
                "If-None-Match" not in self.headers and self.headers.get("If-Modified-Since") == DATE)):
            return self._say(304, **validators)
        start, end, partial = 0, len(data), False
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted and way not in ("noranges", "dropnorange", "chunked", "closed") and self.headers.get("If-Range", tag) in (tag, DATE):
            start, end, partial = int(wanted[1]), min(len(data), int(wanted[2] or len(data)) + 1), True
            if start >= len(data):
                return self._say(416, **{"Content-Range": f"bytes */{len(data)}"})
        self.send_response(206 if partial else 200)
        if partial:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        for header, value in validators.items():
            self.send_header(header, value)
        if way == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
        elif way == "closed":
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(end - start))
        self.end_headers()
        if self.command == "GET":
            self._send(data[start:len(data) // 2 if first_part else end], way == "chunked")
            self.close_connection = self.close_connection or first_part
        return None

    def _send(self, data, chunked):
        for at in range(0, len(data), BLOCK):
            block = data[at:at + BLOCK]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block) if chunked else block)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *arguments):
        """Say nothing."""


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder; requests holds (method, path, headers) of each request seen."""

    daemon_threads = True

    def __init__(self, folder, port=0, handler=Handler):
        super().__init__(("127.0.0.1", port), handler)
        self.folder = pathlib.Path(folder)
        self.lock = threading.Lock()
        self.requests, self.counts = [], {}

    def handle_error(self, request, client_address):
        """Say nothing: clients leave when they like."""


if __name__ == "__main__":
    Server(sys.argv[1], int(sys.argv[2])).serve_forever()
