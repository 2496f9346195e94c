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

from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import TRANSIENT, InvalidInput, Kvm2Error, kind_of_several
from ansible_collections.egress.kvm2.plugins.module_utils._services import proxy_check
from ansible_collections.egress.kvm2.plugins.module_utils._services.proxy_check import ProxyCheckService
from ansible_collections.egress.kvm2.plugins.module_utils._services.service import Context

URL = "http://egress.example/whoami"


@pytest.fixture(autouse=True)
def no_waiting():
    """Real sockets want the real clock, which the fixture of this name stops for the other services."""


@pytest.fixture
def at_the_first_pause(monkeypatch):
    """at_the_first_pause(start): calls it when an attempt has failed and the next one is waited for, however slow the machine is."""
    real = threading.Event.wait

    def arrange(start):
        waiting = [start]

        def wait(event, seconds=None):
            if waiting and seconds == proxy_check._PAUSE:
                waiting.pop()()
            return real(event, seconds)

        monkeypatch.setattr(threading.Event, "wait", wait)

    return arrange


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


def check(ports, check_mode=False, check_stop=lambda: None, **options):
    """(context, result) of the service over proxies named by their position."""
    proxies = [{"name": f"p{index}", "address": "127.0.0.1", "port": port, "scheme": "http"} for index, port in enumerate(ports)]
    params = dict({"proxies": proxies, "url": URL, "timeout": "5s", "wait": "0", "expect_status": 200}, **options)
    context = Context(nonce=None, warn=None)
    context.check_stop = check_stop
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


def test_a_proxy_that_starts_late_is_waited_for_and_the_others_go_on(serve, at_the_first_pause):
    port = closed_port()
    at_the_first_pause(lambda: serve(answers(), port))
    context, proxies = check([serve(answers()).port, port], wait="20s")
    assert context.failures == []
    assert proxies[0]["attempts"] == 1
    assert proxies[1]["attempts"] > 1


def test_the_wait_ends(serve):
    started = time.monotonic()
    context, proxies = check([closed_port()], wait="1.2s")
    assert time.monotonic() - started < 5
    assert proxies[0]["attempts"] <= 3
    assert len(context.failures) == 1


def test_where_nobody_wants_the_answers_any_more_it_ends_at_once_and_asks_no_more(serve):
    asked, gone = threading.Event(), Kvm2Error(TRANSIENT, "go on with", "the work", "the controller that asked for it has gone", "Run again.")

    def stays_silent(connection):
        if connection.recv(1):
            asked.set()
            threading.Event().wait(60)

    def check_stop():
        if asked.is_set():
            raise gone

    started, silent = time.monotonic(), serve(stays_silent)
    with pytest.raises(Kvm2Error) as caught:
        check([silent.port, closed_port()], timeout="60s", wait="10m", check_stop=check_stop)
    assert caught.value is gone and time.monotonic() - started < 20
    before = {thread for thread in threading.enumerate() if thread.name.startswith("kvm2-proxy")}
    # The one that asked a closed port again and again has ended; the other one ends with its request.
    until = time.monotonic() + 20
    while sum(thread.is_alive() for thread in before) > 1 and time.monotonic() < until:
        threading.Event().wait(0.01)
    assert sum(thread.is_alive() for thread in before) <= 1


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


# -- logins and refusals

def recv_all(connection, length):
    data = b""
    while len(data) < length:
        more = connection.recv(length - len(data))
        if not more:
            raise ConnectionResetError
        data += more
    return data


def socks(users=None, reply=0, kind=1, seen=None):
    """A SOCKS5 proxy that serves anybody, or those users {name: password}; it answers the request that follows by itself."""
    def handle(connection):
        methods = recv_all(connection, recv_all(connection, 2)[1])
        method = 2 if users is not None else 0
        if method not in methods:
            connection.sendall(b"\x05\xff")
            return connection.close()
        connection.sendall(bytes((5, method)))
        if method:
            name = recv_all(connection, recv_all(connection, 2)[1]).decode()
            password = recv_all(connection, recv_all(connection, 1)[0]).decode()
            good = users.get(name) == password
            connection.sendall(bytes((1, 0 if good else 1)))
            if not good:
                return connection.close()
        _version, _command, _reserved, atyp = recv_all(connection, 4)
        length = {1: 4, 4: 16}.get(atyp) or recv_all(connection, 1)[0]
        target = (atyp, recv_all(connection, length), int.from_bytes(recv_all(connection, 2), "big"))
        if seen is not None:
            seen.append(target)
        bound = {1: b"\0" * 4, 3: b"\x04name", 4: b"\0" * 16}[kind]
        connection.sendall(bytes((5, reply, 0, kind)) + bound + b"\0\0")
        if reply:
            return connection.close()
        return answers(requests=seen)(connection)

    return handle


def half_an_answer(connection):
    """A SOCKS5 proxy that hears the client out, and stops in the middle of what it says itself."""
    recv_all(connection, recv_all(connection, 2)[1])
    connection.sendall(b"\x05\x00")
    recv_all(connection, recv_all(connection, 5)[4] + 2)
    connection.sendall(b"\x05\x00\x00\x01\x00")
    connection.close()


def one(port, **more):
    """(context, result) of the service over one proxy with these options."""
    options = {key: more.pop(key) for key in ("url", "timeout", "wait", "expect_status") if key in more}
    return check([], proxies=[dict({"name": "p0", "address": "127.0.0.1", "port": port, "scheme": "http"}, **more)], **options)


@pytest.mark.parametrize(("url", "target", "path", "host"), [
    ("http://egress.example/whoami?a=b", (3, b"egress.example", 80), "/whoami?a=b", "egress.example"),
    ("http://192.0.2.7:8080", (1, bytes((192, 0, 2, 7)), 8080), "/", "192.0.2.7:8080"),
    ("http://[2001:db8::7]/", (4, bytes.fromhex("20010db8000000000000000000000007"), 80), "/", "[2001:db8::7]"),
])
def test_socks5_connects_to_the_server_and_asks_it(serve, url, target, path, host):
    seen = []
    context, proxies = one(serve(socks(seen=seen)).port, scheme="socks5", url=url)
    assert context.failures == []
    assert proxies[0]["url"].startswith("socks5://127.0.0.1:")
    assert (proxies[0]["status"], proxies[0]["egress_address"], proxies[0]["refused"]) == (200, "192.0.2.7", None)
    assert seen[0] == target
    assert seen[1].startswith(f"GET {path} HTTP/1.1\r\n")
    assert f"Host: {host}" in seen[1].split("\r\n")


@pytest.mark.parametrize("kind", [1, 3, 4])
def test_whatever_address_a_socks5_proxy_tells_of_itself_is_read_over(serve, kind):
    assert one(serve(socks(kind=kind)).port, scheme="socks5")[0].failures == []


def test_socks5_logs_in(serve):
    port = serve(socks({"op": "s3cret: é"})).port
    assert one(port, scheme="socks5", user="op", password="s3cret: é")[0].failures == []


@pytest.mark.parametrize(("handle", "login", "how"), [
    (socks({"op": "right"}), {"user": "op", "password": "wrong"}, "it does not take this user and password"),
    (socks({"op": "right"}), {}, "it wants a user and a password"),
    (socks(reply=2), {}, "it answered: not allowed by its rules"),
    (lambda connection: connection.close(), {}, "it closed the connection"),
    (lambda connection: connection.recv(1) and connection.close(), {}, "it closed the connection"),
])
def test_refusals_of_socks5(serve, handle, login, how):
    port = serve(handle).port
    context, proxies = one(port, scheme="socks5", expect="refused", **login)
    assert context.failures == []
    assert (proxies[0]["ok"], proxies[0]["refused"], proxies[0]["egress_address"]) == (True, how, None)
    context, _proxies = one(port, scheme="socks5", **login)
    error = context.failures[0][1]
    assert (error.kind, error.cause) == ("permanent", f"the proxy refused: {how}")


def http_login(connection):
    """An HTTP proxy that wants op:s3cret."""
    head = connection.recv(65536).decode()
    good = "Proxy-Authorization: Basic b3A6czNjcmV0\r\n" in head
    status = "200 OK" if good else "407 Proxy Authentication Required"
    connection.sendall(f"HTTP/1.1 {status}\r\nConnection: close\r\n\r\n{head}".encode())
    connection.close()


def test_an_http_proxy_gets_the_login_and_no_answer_shows_it(serve):
    context, proxies = one(serve(http_login).port, user="op", password="s3cret")
    assert context.failures == []
    assert "Proxy-Authorization: Basic ********" in proxies[0]["body"]
    assert proxies[0]["url"] == f"http://127.0.0.1:{proxies[0]['port']}"


@pytest.mark.parametrize("status", [401, 403, 407])
def test_refusals_of_http(serve, status):
    context, proxies = one(serve(answers(status)).port, expect="refused")
    assert context.failures == []
    assert (proxies[0]["refused"], proxies[0]["status"], proxies[0]["egress_address"]) == (f"status {status}", status, None)


@pytest.mark.parametrize(("handle", "scheme"), [
    (answers(), "http"), (answers(404), "http"), (answers(502), "http"), (socks(), "socks5"), (socks({"op": "s3cret"}), "socks5")])
def test_who_is_let_through_was_not_refused(serve, handle, scheme):
    login = {"user": "op", "password": "s3cret"}
    context, proxies = one(serve(handle).port, scheme=scheme, expect="refused", **login)
    assert "so the proxy let the request through" in context.failures[0][1].cause
    assert (proxies[0]["ok"], proxies[0]["refused"]) == (False, None)


def test_an_answer_of_the_server_that_is_expected_was_not_refused(serve):
    assert one(serve(answers(403)).port, expect="refused", expect_status=403)[0].failures != []


@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_where_nothing_listens_or_nothing_answers_nobody_refuses(serve, scheme):
    silent = serve(lambda connection: connection.recv(1) and threading.Event().wait(20)).port
    for port in (silent, closed_port()):
        context, _proxies = one(port, scheme=scheme, expect="refused", timeout="0.5s")
        assert context.failures[0][1].kind == "transient"


def test_a_http_proxy_that_closes_without_an_answer_does_not_refuse(serve):
    assert one(serve(lambda connection: connection.close()).port, expect="refused")[0].failures[0][1].kind == "transient"


@pytest.mark.parametrize(("handle", "cause"), [
    (socks(reply=4), "it answered: host unreachable"), (socks(reply=99), "it answered: reply 99"),
    (lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "its answer is not SOCKS5"),
    (half_an_answer, "it closed the connection in the middle of its answer"),
])
@pytest.mark.parametrize("expect", ["answer", "refused"])
def test_other_failures_of_socks5_are_no_refusals(serve, handle, cause, expect):
    error = one(serve(handle).port, scheme="socks5", expect=expect)[0].failures[0][1]
    assert (error.kind, error.cause) == ("transient", cause)


def test_a_refusal_is_waited_for_while_the_proxy_starts(serve, at_the_first_pause):
    port = closed_port()
    at_the_first_pause(lambda: serve(answers(403), port))
    context, proxies = one(port, expect="refused", wait="20s")
    assert context.failures == []
    assert proxies[0]["attempts"] > 1


@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_the_request_comes_from_the_address_that_is_given(serve, scheme):
    seen = []

    def handle(connection):
        seen.append(connection.getpeername()[0])
        (answers() if scheme == "http" else socks())(connection)

    port = serve(handle).port
    assert one(port, scheme=scheme, source_address="127.0.0.77")[0].failures == []
    assert seen == ["127.0.0.77"]
    error = one(port, scheme=scheme, source_address="192.0.2.7", expect="refused")[0].failures[0][1]
    assert (error.kind, error.cause) == ("permanent", "192.0.2.7 is not an address of this machine")


@pytest.mark.parametrize(("more", "names"), [
    ({"user": "op"}, "proxies[0]"), ({"password": "x"}, "proxies[0]"), ({"user": "a:b", "password": "x"}, "proxies[0].user"),
    ({"user": "", "password": "x"}, "proxies[0].user"), ({"user": "op", "password": "hunter2" * 40}, "proxies[0].password"),
    ({"source_address": "hv1"}, "proxies[0].source_address 'hv1'")])
def test_bad_logins_are_one_clear_error(more, names):
    with pytest.raises(InvalidInput) as caught:
        one(1, **more)
    assert caught.value.object == names
    assert "hunter2" not in caught.value.message


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
