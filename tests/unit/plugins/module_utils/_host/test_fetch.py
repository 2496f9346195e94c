# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import contextlib
import http.client
import select
import socket
import threading
from dataclasses import replace

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import fetch
from ansible_collections.egress.kvm2.plugins.module_utils._host.fetch_options import FetchOptions
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import PERMANENT, InvalidInput, Kvm2Error
from ansible_collections.egress.kvm2.tests.unit import certificates, odd_server

DATA = bytes(range(256)) * 8192
OPTIONS = FetchOptions(timeout=5, use_proxy=False)


@contextlib.contextmanager
def serving(server):
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(fetch, "PAUSES", (0, 0, 0))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "image").write_bytes(DATA)
    (tmp_path / "empty").write_bytes(b"")
    return tmp_path


@pytest.fixture
def server(folder):
    return odd_server.Server(folder)


@pytest.fixture
def url(server):
    with serving(server) as address:
        yield address


def content(url, options=OPTIONS):
    source = fetch.open_source(url, options)
    try:
        return b"".join(source.blocks())
    finally:
        source.close()


@pytest.mark.parametrize("way, length", [
    ("plain", len(DATA)), ("redirect", len(DATA)), ("chunked", None), ("closed", None), ("noranges", len(DATA)), ("flaky", len(DATA)),
])
def test_sources(url, way, length):
    source = fetch.open_source(f"{url}/{way}/image", OPTIONS)
    assert source.length == length
    assert b"".join(source.blocks()) == DATA
    source.close()


@pytest.mark.parametrize("way", ["plain", "noranges", "redirect"])
def test_probe_tells_length_and_beginning_and_fetches_little_more(url, server, way):
    length, head = fetch.probe(f"{url}/{way}/image", OPTIONS, 1000)
    assert length == len(DATA) and head == DATA[:1000]
    assert server.requests[-1][2]["Range"] == "bytes=0-999"


@pytest.mark.parametrize("way", ["chunked", "closed"])
def test_probe_of_unknown_length(url, way):
    assert fetch.probe(f"{url}/{way}/image", OPTIONS, 1000) == (None, DATA[:1000])


def test_probe_of_an_empty_file(url):
    assert fetch.probe(f"{url}/plain/empty", OPTIONS, 1000) == (0, b"")


@pytest.mark.parametrize("status, kind, requests", [
    (404, "permanent", 1), (403, "permanent", 1), (410, "permanent", 1), (429, "transient", 4), (500, "transient", 4), (503, "transient", 4),
])
def test_status(url, server, status, kind, requests):
    for call in (fetch.open_source, lambda *given: fetch.probe(*given, 1000)):
        server.requests.clear()
        with pytest.raises(Kvm2Error) as caught:
            call(f"{url}/status/{status}?token=secret", OPTIONS)
        assert caught.value.kind == kind and str(status) in caught.value.message and "secret" not in caught.value.message
        assert len(server.requests) == requests


def test_a_transfer_that_breaks_off_goes_on_where_it_was(url, server):
    assert content(f"{url}/drop/image") == DATA
    (_get, _path, first), (_get, _path, second) = server.requests
    assert "Range" not in first
    assert second["Range"].startswith("bytes=") and 0 < int(second["Range"][6:-1]) <= len(DATA) // 2
    assert second["If-Range"].startswith('"')


@pytest.mark.parametrize("way, word", [
    ("dropnorange", "does not go on from there"), ("dropchange", "does not go on from there"), ("dropweak", "names no version"),
])
def test_a_transfer_that_cannot_go_on_is_said_to_be_interrupted(url, way, word):
    source = fetch.open_source(f"{url}/{way}/image", OPTIONS)
    got = []
    with pytest.raises(fetch.Interrupted, match=word) as caught:
        got.extend(source.blocks())
    assert caught.value.kind == "transient" and DATA.startswith(b"".join(got))
    source.close()


@pytest.mark.parametrize("way", ["plain", "chunked", "closed"])
def test_what_comes_slowly_is_handed_on_as_it_comes(folder, monkeypatch, way):
    monkeypatch.setattr(fetch, "PATIENCE", 0)
    more = threading.Event()

    class Trickling(odd_server.Handler):
        def _send(self, data, chunked):
            self.wfile.write(b"3e8\r\n%s\r\n" % data[:1000] if chunked else data[:1000])
            assert more.wait(30)
            super()._send(data[1000:], chunked)

    server = odd_server.Server(folder, handler=Trickling)
    with serving(server) as url:
        source = fetch.open_source(f"{url}/{way}/image", OPTIONS)
        blocks = source.blocks()
        first = next(blocks)
        more.set()
        assert 0 < len(first) <= 1000
        assert first + b"".join(blocks) == DATA
        source.close()


def test_resuming_is_bounded(folder, monkeypatch):
    monkeypatch.setattr(fetch, "RESUMES", 3)
    monkeypatch.setattr(fetch, "BLOCK", 1000)

    class Dripping(odd_server.Handler):
        def _send(self, data, chunked):
            self.wfile.write(data[:1000])
            self.close_connection = True

    server = odd_server.Server(folder, handler=Dripping)
    with serving(server) as url, pytest.raises(Kvm2Error, match="broke off 4 times"):
        content(f"{url}/plain/image")
    assert len(server.requests) == 4


def test_a_transfer_that_never_gets_further_ends(url, server):
    with pytest.raises(Kvm2Error, match=f"broke off 5 times, at last after {len(DATA) // 2} bytes") as caught:
        content(f"{url}/dropalways/image")
    assert caught.value.kind == "transient" and len(server.requests) == 5


def test_a_wait_can_be_stopped():
    def stop():
        raise Kvm2Error(PERMANENT, "go on with", "the fetch", "nobody waits for it")
    with pytest.raises(Kvm2Error, match="nobody waits"):
        fetch.wait(1000, stop)


def test_a_server_that_is_not_there_is_transient():
    with pytest.raises(Kvm2Error) as caught:
        fetch.open_source("http://127.0.0.1:9/x", OPTIONS)
    assert caught.value.kind == "transient" and "refused" in caught.value.message


def test_basic_auth(url, server):
    asked = replace(OPTIONS, username="someone", password="secret")
    assert content(f"{url}/auth/image", asked) == DATA
    assert content(f"{url}/auth/image", replace(asked, force_basic_auth=True)) == DATA
    assert content(f"{url.replace('//', '//someone:secret@')}/auth/image") == DATA
    with pytest.raises(Kvm2Error) as caught:
        content(f"{url}/auth/image", replace(asked, password="wrong"))
    assert caught.value.kind == "permanent" and "401" in caught.value.message and "wrong" not in caught.value.message


def test_headers(url):
    assert content(f"{url}/token/image", replace(OPTIONS, headers={"X-Token": "secret"})) == DATA
    with pytest.raises(Kvm2Error, match="403"):
        content(f"{url}/token/image")


def test_credentials_do_not_follow_a_redirect_to_another_server(url, server, folder):
    other = odd_server.Server(folder)
    options = replace(OPTIONS, username="someone", password="secret", force_basic_auth=True, headers={"X-Token": "secret", "Authorization": "Bearer x"})
    with serving(other) as elsewhere:
        assert content(f"{url}/to?to={elsewhere}/plain/image", options) == DATA
        assert content(f"{url}/to?to={url}/auth/image", replace(options, headers={})) == DATA
    ((_get, _path, seen),) = other.requests
    assert "Authorization" not in seen and "X-Token" not in seen
    assert server.requests[0][2]["X-Token"] == "secret"


def test_redirects_end(url):
    with pytest.raises(Kvm2Error, match="redirects more than 10 times") as caught:
        content(f"{url}/loop")
    assert caught.value.kind == "permanent"
    with pytest.raises(InvalidInput, match="the redirect"):
        content(f"{url}/to?to=ftp://127.0.0.1/x")


@pytest.mark.parametrize("way, etag, expected", [
    ("plain", None, True), ("plain", '"other"', False), ("nohead", None, True), ("nohead", '"other"', False), ("novalidators", None, None),
])
def test_unchanged(url, server, way, etag, expected):
    source = fetch.open_source(f"{url}/{way}/image", OPTIONS)
    source.close()
    assert fetch.is_unchanged(f"{url}/{way}/image", OPTIONS, etag or source.etag, source.last_modified if etag is None else None) is expected


def test_text_is_bounded(url, monkeypatch):
    assert len(fetch.read_text(f"{url}/plain/image", OPTIONS)) > 0
    monkeypatch.setattr(fetch, "TEXT_LIMIT", 1000)
    with pytest.raises(Kvm2Error, match="larger than a list of checksums"):
        fetch.read_text(f"{url}/plain/image", OPTIONS)


def test_a_byte_order_mark_is_no_part_of_a_text(url, folder):
    (folder / "SUMS").write_bytes(b"\xef\xbb\xbf0a  image\n")
    assert fetch.read_text(f"{url}/plain/SUMS", OPTIONS) == "0a  image\n"


class Proxy(odd_server.Handler):
    """Forwards plain requests to where they are meant for."""

    def _answer(self):
        self.server.requests.append((self.command, self.path, dict(self.headers.items())))
        host, _slash, path = self.path.partition("//")[2].partition("/")
        link = http.client.HTTPConnection(host, timeout=5)
        link.request(self.command, f"/{path}", headers=dict(self.headers.items()))
        answer = link.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def test_proxy_of_the_environment(url, folder, monkeypatch):
    proxy = odd_server.Server(folder, handler=Proxy)
    with serving(proxy) as address:
        monkeypatch.setenv("http_proxy", address)
        monkeypatch.setenv("no_proxy", "")
        assert content(f"{url}/plain/image", replace(OPTIONS, use_proxy=True)) == DATA
        assert len(proxy.requests) == 1
        assert content(f"{url}/plain/image", OPTIONS) == DATA
        assert len(proxy.requests) == 1


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return certificates.make(tmp_path_factory.mktemp("certificates"))


@contextlib.contextmanager
def serving_tls(folder, authority, ask_client=False):
    server = odd_server.Server(folder)
    server.socket = certificates.server_context(authority, ask_client).wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with serving(server) as address:
        yield address.replace("http:", "https:").replace("127.0.0.1", "localhost")


def test_tls_with_an_authority_of_its_own(folder, authority):
    with serving_tls(folder, authority) as url:
        assert content(f"{url}/plain/image", replace(OPTIONS, ca_path=authority.ca)) == DATA
        assert content(f"{url}/plain/image", replace(OPTIONS, validate_certs=False)) == DATA
        with pytest.raises(Kvm2Error, match="ca_path") as caught:
            content(f"{url}/plain/image")
        assert caught.value.kind == "permanent"


class Tunnel(odd_server.Handler):
    """Connects to where it is asked to, for one user, and passes on what it cannot read."""

    def do_CONNECT(self):
        self.server.requests.append((self.command, self.path, dict(self.headers.items())))
        if self.headers.get("Proxy-Authorization") != odd_server.PASSWORD:
            return self._say(407)
        host, _colon, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=5) as link:
            self.send_response(200)
            self.end_headers()
            ends = {link: self.connection, self.connection: link}
            while True:
                for one in select.select(list(ends), [], [], 5)[0]:
                    data = one.recv(65536)
                    if not data:
                        self.close_connection = True
                        return None
                    ends[one].sendall(data)


@pytest.fixture
def tunnel(folder, monkeypatch):
    """The proxy's requests, and a function that sets its user and password in the environment."""
    server = odd_server.Server(folder, handler=Tunnel)
    with serving(server) as address:
        monkeypatch.setenv("no_proxy", "")

        def set_user(login):
            monkeypatch.setenv("https_proxy", address.replace("//", f"//{login}"))
        yield server.requests, set_user


def test_tls_through_a_proxy_that_connects(folder, authority, tunnel):
    requests, set_user = tunnel
    set_user("someone:secret@")
    options = replace(OPTIONS, ca_path=authority.ca, use_proxy=True, headers={"X-Token": "secret"}, username="someone", password="secret")
    with serving_tls(folder, authority) as url:
        assert content(f"{url}/token/image", options) == DATA
        # What breaks off is taken up through the proxy again.
        assert content(f"{url}/drop/image", options) == DATA
        assert [(method, path) for method, path, _headers in requests] == [("CONNECT", url.partition("//")[2])] * 3
        # What is meant for the server is no business of the proxy's.
        assert all(set(headers) <= {"Host", "Proxy-Authorization"} for _method, _path, headers in requests), requests
        with pytest.raises(Kvm2Error, match="ca_path"):
            content(f"{url}/plain/image", replace(options, ca_path=None))


def test_a_proxy_that_does_not_connect(folder, authority, tunnel):
    requests, set_user = tunnel
    set_user("")
    with serving_tls(folder, authority) as url:
        with pytest.raises(Kvm2Error, match="407"):
            content(f"{url}/plain/image", replace(OPTIONS, ca_path=authority.ca, use_proxy=True))
        assert requests
        assert content(f"{url}/plain/image", replace(OPTIONS, ca_path=authority.ca)) == DATA


def test_client_certificate(folder, authority):
    trusting = replace(OPTIONS, ca_path=authority.ca)
    with serving_tls(folder, authority, ask_client=True) as url:
        assert content(f"{url}/plain/image", replace(trusting, client_cert=authority.cert, client_key=authority.key)) == DATA
        with pytest.raises(Kvm2Error):
            content(f"{url}/plain/image", trusting)


def test_a_redirect_from_https_to_http_needs_a_checksum(folder, authority, url):
    trusting = replace(OPTIONS, ca_path=authority.ca)
    with serving_tls(folder, authority) as secure:
        asked = f"{secure}/to?to={url}/plain/image"
        with pytest.raises(Kvm2Error, match="redirects from https to") as caught:
            content(asked, trusting)
        assert caught.value.kind == "permanent"
        assert content(asked, replace(trusting, pinned=True)) == DATA


@pytest.mark.parametrize("what", ["client_cert", "client_key", "ca_path"])
def test_missing_certificate_files(what):
    with pytest.raises(InvalidInput, match=f"{what} /nowhere.pem"):
        fetch.open_source("http://127.0.0.1:9/x", replace(OPTIONS, **{what: "/nowhere.pem"}))
