# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kvm2_proxy_check over real sockets: proxies that answer, refuse, close, stay silent, drip, or start late."""

from __future__ import annotations

import http.server
import json
import socket
import threading
import time

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import InvalidInput, kind_of_several
from ansible_collections.egress.kvm2.plugins.module_utils._services.proxy_check import ProxyCheckService
from ansible_collections.egress.kvm2.plugins.module_utils._services.service import Context

URL = "http://egress.example/whoami"


class Server:
    """A server on a loopback port; handle(connection) runs in a thread for each connection."""

    def __init__(self, handle, port=0):
        self.handle = handle
        self.socket = socket.create_server(("127.0.0.1", port))
        self.port = self.socket.getsockname()[1]
        self.connections = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _address = self.socket.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection):
        try:
            self.handle(connection)
        except OSError:
            pass  # the client went away, as some cases want it to

    def close(self):
        # Closing alone leaves the port to the thread that waits in accept.
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        for connection in self.connections:
            connection.close()


@pytest.fixture
def serve():
    servers = []

    def start(handle, port=0):
        servers.append(Server(handle, port))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def answers(status=200, body=b'{"address": "192.0.2.7"}', requests=None):
    def handle(connection):
        text = connection.recv(65536).decode()
        if requests is not None:
            requests.append(text)
        reason = http.HTTPStatus(status).phrase
        connection.sendall(f"HTTP/1.1 {status} {reason}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        connection.close()

    return handle


def drips(connection):
    """Begins a good answer and goes on for ever, so that no single read times out."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-More: a\r\n")
        time.sleep(0.05)


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def check(ports, check_mode=False, **options):
    """(context, result) of the service over proxies named by their position."""
    proxies = [{"name": f"p{index}", "address": "127.0.0.1", "port": port, "scheme": "http"} for index, port in enumerate(ports)]
    params = dict({"proxies": proxies, "url": URL, "timeout": "5s", "wait": "0", "expect_status": 200}, **options)
    context = Context(nonce=None, warn=None)
    service = ProxyCheckService(params, context)
    seen = service.observe(None)
    plan = service.plan(seen)
    assert not plan.changed
    return context, (service.predict(seen, plan) if check_mode else service.apply(None, seen, plan))["proxies"]


def causes(context):
    return {item: error.cause for item, error in context.failures}


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_proxy_that_answers(serve, check_mode):
    requests = []
    port = serve(answers(requests=requests)).port
    context, proxies = check([port], check_mode)
    assert context.failures == []
    assert 0 <= proxies[0].pop("duration") < 5
    assert proxies == [{
        "name": "p0", "address": "127.0.0.1", "port": port, "scheme": "http", "url": f"http://127.0.0.1:{port}", "ok": True, "status": 200,
        "body": '{"address": "192.0.2.7"}', "refused": None, "egress_address": "192.0.2.7", "attempts": 1, "error": None}]
    assert requests[0].startswith(f"GET {URL} HTTP/1.1\r\nHost: egress.example\r\n")


@pytest.mark.parametrize(("body", "address"), [
    (b"plain text", None), (b"", None), (b"[1]", None), (b'{"address": 7}', None), (b'{"other": "a"}', None), (b"\xff\x00", None),
    (b'{"address": "2001:db8::7"}', "2001:db8::7")])
def test_the_egress_address_is_a_field_of_a_json_object(serve, body, address):
    context, proxies = check([serve(answers(body=body)).port])
    assert context.failures == []
    assert proxies[0]["egress_address"] == address


def test_no_more_than_two_kibibytes_of_a_body_are_kept(serve):
    _context, proxies = check([serve(answers(body=b"x" * 100000)).port])
    assert proxies[0]["body"] == "x" * 2048


@pytest.mark.parametrize(("status", "kind", "hint"), [
    (403, "permanent", "allows clients"), (407, "permanent", "allows clients"), (404, "permanent", "without a proxy"),
    (429, "transient", "without a proxy"), (502, "transient", "reaches the server"), (301, "permanent", "without a proxy")])
def test_another_status_is_a_failure_with_its_own_hint(serve, status, kind, hint):
    context, proxies = check([serve(answers(status)).port])
    error = context.failures[0][1]
    assert (error.kind, proxies[0]["status"], proxies[0]["ok"]) == (kind, status, False)
    assert error.cause == f"{URL} was answered with status {status} where 200 is expected"
    assert hint in error.hint
    assert proxies[0]["egress_address"] is None


def test_the_expected_status_can_be_another(serve):
    context, _proxies = check([serve(answers(204, b"")).port], expect_status=204)
    assert context.failures == []


def test_all_are_asked_and_each_failure_is_named(serve):
    ports = [
        serve(answers()).port, closed_port(), serve(lambda connection: connection.close()).port, serve(answers(502)).port,
        serve(lambda connection: connection.sendall(b"SSH-2.0-x\r\n" * 9)).port]
    context, proxies = check(ports)
    assert [proxy["ok"] for proxy in proxies] == [True, False, False, False, False]
    assert causes(context)["p1"] == "connection refused"
    assert set(causes(context)) == {"p1", "p2", "p3", "p4"}
    assert kind_of_several(error.kind for item, error in context.failures) == "transient"
    assert all(proxy["error"]["object"].startswith(f"proxy {proxy['name']} (http://127.0.0.1:") for proxy in proxies[1:])


@pytest.mark.parametrize("handle", [drips, lambda connection: connection.recv(1) and threading.Event().wait(20)])
def test_one_deadline_ends_a_request_that_drips_or_stays_silent(serve, handle):
    started = time.monotonic()
    context, _proxies = check([serve(handle).port] * 3, timeout="0.5s")
    assert time.monotonic() - started < 5
    assert set(causes(context).values()) == {"there was no complete answer within 0.5 s"}


def test_a_proxy_that_starts_late_is_waited_for_and_the_others_go_on(serve):
    port = closed_port()
    threading.Timer(1.2, serve, (answers(), port)).start()
    context, proxies = check([serve(answers()).port, port], wait="20s")
    assert context.failures == []
    assert proxies[0]["attempts"] == 1
    assert proxies[1]["attempts"] > 1


def test_the_wait_ends(serve):
    started = time.monotonic()
    context, proxies = check([closed_port()], wait="1.2s")
    assert time.monotonic() - started < 5
    assert proxies[0]["attempts"] in (2, 3)
    assert len(context.failures) == 1


def test_no_proxies_is_a_success():
    context, proxies = check([])
    assert (context.failures, proxies) == ([], [])


def test_a_hundred_are_asked_at_the_same_time(serve):
    def slow(connection):
        time.sleep(0.5)
        answers()(connection)

    started = time.monotonic()
    context, _proxies = check([serve(slow).port] * 100, timeout="20s")
    assert context.failures == []
    assert time.monotonic() - started < 20  # one after the other would take 50 s


@pytest.mark.parametrize(("options", "names"), [
    ({"url": "https://egress.example/"}, "url"), ({"url": "egress.example"}, "url"), ({"url": "http://"}, "url"),
    ({"url": "http://a b/"}, "url"), ({"url": "http://a/\r\nX: y"}, "url"), ({"url": "http://a:99999/"}, "url"), ({"url": "http://ä/"}, "url"),
    ({"timeout": "0"}, "timeout"), ({"timeout": "soon"}, "timeout"), ({"wait": "-1s"}, "wait")])
def test_bad_input_is_one_clear_error(options, names):
    with pytest.raises(InvalidInput) as caught:
        check([1], **options)
    assert caught.value.object.startswith(names)
    assert caught.value.hint


@pytest.mark.parametrize("port", [0, 65536, -1])
def test_a_port_that_cannot_be_is_refused(port):
    with pytest.raises(InvalidInput, match=r"proxies\[0\]\.port"):
        check([port])


def test_the_result_can_be_returned_by_a_module(serve):
    _context, proxies = check([serve(answers()).port, closed_port()])
    assert json.loads(json.dumps(proxies)) == proxies
