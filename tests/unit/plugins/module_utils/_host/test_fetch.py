# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import http.server
import threading

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import fetch
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error

DATA = bytes(range(256)) * 4096


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        kind = self.path.partition("?")[0].strip("/")
        if kind.isdigit():
            self.send_error(int(kind))
            return
        if kind == "redirect":
            self.send_response(302)
            self.send_header("Location", "/whole")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        if kind == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
        elif kind == "unknown":
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(DATA)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        if self.command == "HEAD":
            return
        if kind == "chunked":
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(DATA), DATA))
        elif kind == "short":
            self.wfile.write(DATA[:1000])
            self.close_connection = True
        else:
            self.wfile.write(DATA)

    def log_message(self, *arguments):
        """Say nothing."""


@pytest.fixture(scope="module")
def url():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


OPTIONS = fetch.FetchOptions(timeout=5, use_proxy=False)


@pytest.mark.parametrize("path, length", [("whole", len(DATA)), ("redirect", len(DATA)), ("chunked", None), ("unknown", None)])
def test_sources(url, path, length):
    source = fetch.open_source(f"{url}/{path}", OPTIONS)
    assert source.length == length
    assert b"".join(source.blocks()) == DATA
    source.close()


def test_a_source_of_unknown_length_is_spooled(url, tmp_path):
    source = fetch.open_source(f"{url}/chunked", OPTIONS)
    spooled = fetch.spool(source, str(tmp_path))
    source.close()
    assert spooled.length == len(DATA) and b"".join(spooled.blocks()) == DATA
    spooled.close()
    assert list(tmp_path.iterdir()) == []


def test_probe_fetches_nothing(url):
    assert fetch.probe(f"{url}/whole", OPTIONS) == len(DATA)
    assert fetch.probe(f"{url}/chunked", OPTIONS) is None
    assert fetch.probe(f"{url}/405", OPTIONS) is None


@pytest.mark.parametrize("status, kind", [
    (404, "permanent"), (403, "permanent"), (410, "permanent"), (429, "transient"), (500, "transient"), (503, "transient"),
])
def test_status(url, status, kind):
    for call in (fetch.open_source, fetch.probe):
        with pytest.raises(Kvm2Error) as caught:
            call(f"{url}/{status}?token=secret", OPTIONS)
        assert caught.value.kind == kind and str(status) in caught.value.message and "secret" not in caught.value.message


def test_a_server_that_breaks_off_is_transient(url):
    source = fetch.open_source(f"{url}/short", OPTIONS)
    with pytest.raises(Kvm2Error) as caught:
        b"".join(source.blocks())
    assert caught.value.kind == "transient"


def test_a_server_that_is_not_there_is_transient():
    with pytest.raises(Kvm2Error) as caught:
        fetch.open_source("http://127.0.0.1:9/x", OPTIONS)
    assert caught.value.kind == "transient" and "refused" in caught.value.message


def test_text_is_bounded(url, monkeypatch):
    assert len(fetch.read_text(f"{url}/whole", OPTIONS)) > 0
    monkeypatch.setattr(fetch, "TEXT_LIMIT", 1000)
    with pytest.raises(Kvm2Error, match="larger than a list of checksums"):
        fetch.read_text(f"{url}/whole", OPTIONS)


def test_files(tmp_path):
    path = tmp_path / "image"
    path.write_bytes(DATA)
    source = fetch.open_file(str(path))
    assert source.length == len(DATA) and b"".join(source.blocks()) == DATA
    source.close()
    with pytest.raises(Kvm2Error) as caught:
        fetch.open_file(str(tmp_path / "none"))
    assert caught.value.kind == "permanent"


@pytest.mark.parametrize("url, text", [
    ("https://user:pw@host:8443/a/b.qcow2?token=x#f", "https://host:8443/a/b.qcow2"),
    ("http://[::1]:80/a", "http://[::1]:80/a"),
    ("http://host", "http://host"),
])
def test_shown_hides_secrets(url, text):
    assert fetch.shown(url) == text
