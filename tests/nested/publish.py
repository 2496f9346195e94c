# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP server that publishes the images to hypervisors and guests, and tells a client its own address.

Run as a program it is the server: publish.py FOLDER ADDRESS PORT FACTS KEY. As a module it starts and stops that program.
"""

from __future__ import annotations

import http
import http.client
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

BLOCK = 256 * 1024
TRIES = 100  # ports
IP_FREEBIND = 15  # bind to the bridge's address before the bridge is there, and keep it while it comes and goes


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the files of one folder (ranges, validators, HEAD) and /whoami."""

    protocol_version = "HTTP/1.1"
    server_version = "kvm2-publish"
    folder: pathlib.Path

    def do_HEAD(self) -> None:
        """Answer without a body."""
        self._answer(body=False)

    def do_GET(self) -> None:
        """Answer with the body."""
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        path = self.path.partition("?")[0]
        if path == "/whoami":
            seen = {"address": self.client_address[0]}
            for header in ("Via", "X-Forwarded-For"):
                if header in self.headers:
                    seen[header] = self.headers[header]
            self._text(json.dumps(seen) + "\n", "application/json", body)
        elif path == "/":
            names = sorted(one.name for one in self.folder.iterdir() if one.is_file() and not one.name.startswith("."))
            self._text("".join(f"{name}\n" for name in names), "text/plain; charset=utf-8", body)
        else:
            self._file(path[1:], body)

    def _text(self, text: str, kind: str, body: bool, status: int = 200) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if body:
            self.wfile.write(data)

    def _file(self, name: str, body: bool) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name) or name.endswith(".part"):
            return self._text("there is no such file\n", "text/plain; charset=utf-8", body, 404)
        try:
            handle = open(self.folder / name, "rb")
        except OSError:
            return self._text("there is no such file\n", "text/plain; charset=utf-8", body, 404)
        with handle:
            facts = os.fstat(handle.fileno())
            tag = f'"{facts.st_mtime_ns:x}-{facts.st_size:x}"'
            date = self.date_time_string(int(facts.st_mtime))
            known = self.headers.get("If-None-Match")
            if tag in known if known else self.headers.get("If-Modified-Since") == date:
                self.send_response(http.HTTPStatus.NOT_MODIFIED)
                self.send_header("ETag", tag)
                self.end_headers()
                return None
            wanted = self.headers.get("Range") if self.headers.get("If-Range", tag) in (tag, date) else None
            first, last, partial = _range(wanted, facts.st_size)
            if first > last and facts.st_size:
                self.send_response(http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
                self.send_header("Content-Range", f"bytes */{facts.st_size}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return None
            self.send_response(http.HTTPStatus.PARTIAL_CONTENT if partial else http.HTTPStatus.OK)
            if partial:
                self.send_header("Content-Range", f"bytes {first}-{last}/{facts.st_size}")
            self.send_header("Content-Type", "text/plain" if name.endswith("SUMS") else "application/octet-stream")
            self.send_header("Content-Length", str(last - first + 1))
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Last-Modified", date)
            self.send_header("ETag", tag)
            self.end_headers()
            if body:
                self._copy(handle, first, last - first + 1)
        return None

    def _copy(self, handle, first: int, count: int) -> None:
        handle.seek(first)
        while count > 0:
            data = handle.read(min(BLOCK, count))
            if not data:
                self.close_connection = True  # the file has shrunk: the client must not take this for the whole
                return
            self.wfile.write(data)
            count -= len(data)

    def log_message(self, text: str, *values: object) -> None:
        """Write one line a request."""
        print(f"{self.log_date_time_string()} {self.client_address[0]} {text % values}", flush=True)


def _range(wanted: str | None, size: int) -> tuple[int, int, bool]:
    """Return the first and last byte to send, and whether that is a part; first > last: nothing of it is there."""
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted or "")
    if not found or found.groups() == ("", ""):
        return 0, size - 1, False
    start, end = found.groups()
    if start == "":
        return max(0, size - int(end)), size - 1, True
    return int(start), min(int(end), size - 1) if end else size - 1, True


class Server(http.server.ThreadingHTTPServer):
    """Binds early, and outlives clients that go away."""

    daemon_threads = True
    request_queue_size = 128

    def server_bind(self) -> None:
        """Bind, whether the bridge is there yet or not."""
        self.socket.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
        super().server_bind()

    def handle_error(self, request, client_address) -> None:
        """Say in one line that a client went away."""
        print(f"{client_address[0]} {sys.exc_info()[1]!r}", flush=True)


def started(pid: int) -> str | None:
    """Return when that process started, in clock ticks since boot; None when it is gone or only waits to be reaped."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]


def running(state) -> dict | None:
    """Return the facts of the server when it is alive and answers: pid, started, address, port, key; else None."""
    try:
        facts = json.loads(state.publish.read_text(encoding="utf-8"))
        alive = started(facts["pid"]) == facts["started"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return facts if alive and answers(facts) else None


def answers(facts: dict) -> bool:
    """Return whether the server answers a request."""
    link = http.client.HTTPConnection(facts["address"], facts["port"], timeout=5)
    try:
        link.request("GET", "/whoami")
        return link.getresponse().status == 200
    except OSError:
        return False
    finally:
        link.close()


def stop(state) -> bool:
    """Stop the server that the file speaks of, if it still is that process; return whether there was one."""
    try:
        facts = json.loads(state.publish.read_text(encoding="utf-8"))
        pid, since = int(facts["pid"]), facts["started"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        state.publish.unlink(missing_ok=True)
        return False
    there = started(pid) == since
    if there:
        os.kill(pid, signal.SIGKILL)  # it has nothing to finish
        while started(pid) == since:
            time.sleep(0.02)
    state.publish.unlink(missing_ok=True)
    return there


def start(state, address: str, key: str) -> dict:
    """Start the server as a process of its own and return its facts. Its port stays the same from run to run where it can."""
    base = 20000 + int(state.tag, 16) % 20000
    command = [sys.executable, "-I", os.path.abspath(__file__), str(state.images), address, str(base), str(state.publish), key]
    with open(state.logs / "publish.log", "a", encoding="utf-8") as log:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True, cwd="/", text=True
        )
    said = child.stdout.readline()
    child.stdout.close()
    if said.strip() != "listening":
        raise OSError(f"no port from {base} to {base + TRIES - 1} could be had on {address}; see {state.logs / 'publish.log'}")
    return json.loads(state.publish.read_text(encoding="utf-8"))


def main() -> None:
    """Serve until killed. The server itself writes down who it is: whoever started it may be gone by then."""
    folder, address, base, facts, key = sys.argv[1:]
    Handler.folder = pathlib.Path(folder)
    for port in range(int(base), int(base) + TRIES):
        try:
            server = Server((address, port), Handler)
            break
        except OSError as reason:
            print(f"port {port}: {reason}", file=sys.stderr, flush=True)
    else:
        sys.exit(1)
    part = pathlib.Path(facts + ".part")
    part.write_text(json.dumps({"pid": os.getpid(), "started": started(os.getpid()), "address": address, "port": port, "key": key}))
    part.replace(facts)
    print("listening", flush=True)
    os.dup2(2, 1)
    server.serve_forever()


if __name__ == "__main__":
    main()
