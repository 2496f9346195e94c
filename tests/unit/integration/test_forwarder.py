# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forwarder of the fault tests, between a client of the test's and a daemon that answers each call with the same payload."""

from __future__ import annotations

import contextlib
import importlib.util
import select
import socket
import struct
import sys
import threading
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[2] / "integration" / "faults" / "forwarder.py"
SPEC = importlib.util.spec_from_file_location("kvm2_forwarder", PATH)
forwarder = sys.modules[SPEC.name] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(forwarder)

REMOTE = 0x20008086


def message(procedure, kind=forwarder.CALL, payload=b"", status=forwarder.OK, program=REMOTE):
    return forwarder.HEADER.pack(forwarder.HEADER.size + len(payload), program, 1, procedure, kind, 1, status) + payload


def receive(end, size, seconds=5):
    """So many bytes, or those that came before the end or within the time."""
    data = b""
    while len(data) < size and select.select([end], [], [], seconds)[0]:
        part = end.recv(size - len(data))
        if not part:
            break
        data += part
    return data


@pytest.fixture
def daemon(tmp_path):
    """The path of a daemon that answers calls and takes streams in silence."""
    path = str(tmp_path / "daemon.sock")
    listener = forwarder.unix_listener(path)
    ended = threading.Event()

    def serve():
        while not ended.is_set():
            if not select.select([listener], [], [], 0.05)[0]:
                continue
            with listener.accept()[0] as end, contextlib.suppress(OSError):
                while not ended.is_set():
                    if select.select([end], [], [], 0.05)[0]:
                        head = receive(end, forwarder.HEADER.size)
                        if not head:
                            break
                        header = forwarder.HEADER.unpack(head)
                        payload = receive(end, header[0] - len(head))
                        if header[4] == forwarder.CALL:
                            end.sendall(message(header[3], forwarder.REPLY, payload, program=header[1]))
                        elif header[6] == forwarder.OK:
                            end.sendall(message(header[3], forwarder.STREAM))

    thread = threading.Thread(target=serve)
    thread.start()
    yield path
    ended.set()
    thread.join()
    listener.close()


@contextlib.contextmanager
def connected(tmp_path, daemon, place, fault):
    path = str(tmp_path / "forwarded.sock")
    with forwarder.Forwarder(forwarder.unix_listener(path), daemon, forwarder.Place(*place), fault) as running, socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        yield client, running


def answer(client, procedure, payload=b"", program=REMOTE):
    client.sendall(message(procedure, payload=payload, program=program))
    return message(procedure, forwarder.REPLY, payload, program=program)


def test_everything_passes_until_the_place_and_the_place_is_counted(tmp_path, daemon):
    with connected(tmp_path, daemon, ("reply", 7, 3), "close") as (client, running):
        for payload in (b"", b"x" * 300000):
            expected = answer(client, 7, payload)
            assert receive(client, len(expected)) == expected
        expected = answer(client, 8)
        assert receive(client, len(expected)) == expected
        assert running.fired is None
        answer(client, 7)
        assert receive(client, 1) == b""
        assert running.fired is not None


def test_a_frozen_connection_stays_open_and_silent_and_a_mute_one_answers_keepalive(tmp_path, daemon):
    for fault, alive in (("freeze", False), ("mute", True)):
        with connected(tmp_path, daemon, ("reply", 7), fault) as (client, _running):
            answer(client, 7)
            assert receive(client, 1, 0.3) == b""
            expected = answer(client, 1, program=forwarder.KEEPALIVE)
            assert receive(client, len(expected), 2 if alive else 0.3) == (expected if alive else b"")
            client.sendall(message(9))
            assert not select.select([client], [], [], 0.2)[0]
        (tmp_path / "forwarded.sock").unlink()


@pytest.mark.parametrize("fault, check", [
    ("twice", lambda got, right: got == right + right),
    ("longer", lambda got, right: struct.unpack(">I", got[:4])[0] == len(right) + 8 and got[4:] == right[4:]),
    ("huge", lambda got, right: struct.unpack(">I", got[:4])[0] > 2 ** 31 and got[4:] == right[4:]),
    ("garbage", lambda got, right: struct.unpack(">I", got[:4])[0] == len(got) >= 64 and got[4:28] != right[4:28])])
def test_what_a_spoiled_answer_looks_like(tmp_path, daemon, fault, check):
    with connected(tmp_path, daemon, ("reply", 7), fault) as (client, _running):
        right = answer(client, 7, b"payload!")
        assert check(receive(client, 4096, 0.3), right)


def test_a_place_in_a_stream_is_counted_in_its_bytes(tmp_path, daemon):
    with connected(tmp_path, daemon, ("sent", 208, 1000), "close") as (client, running):
        for _number in range(3):
            client.sendall(message(208, forwarder.STREAM, b"x" * 300, forwarder.CONTINUE))
        expected = answer(client, 9)
        assert receive(client, len(expected)) == expected
        assert running.fired is None
        client.sendall(message(208, forwarder.STREAM, b"x" * 300, forwarder.CONTINUE))
        assert receive(client, 1) == b""


def test_the_answer_to_the_end_of_a_stream_is_a_place(tmp_path, daemon):
    with connected(tmp_path, daemon, ("finish", 208), "close") as (client, running):
        client.sendall(message(208, forwarder.STREAM, b"x", forwarder.CONTINUE) + message(208, forwarder.STREAM))
        assert receive(client, 1) == b""
        assert running.fired is not None


def test_a_reset_is_one_where_the_transport_has_it(daemon):
    listener = forwarder.tcp_listener()
    with forwarder.Forwarder(listener, daemon, forwarder.Place("reply", 7), "reset"), socket.create_connection(listener.getsockname()) as client:
        answer(client, 7)
        with pytest.raises(ConnectionResetError):
            receive(client, 1)


def test_a_function_is_called_at_the_place_and_the_message_goes_on(tmp_path, daemon):
    called = []
    with connected(tmp_path, daemon, ("call", 7, 2), lambda: called.append(True)) as (client, _running):
        for number in range(3):
            expected = answer(client, 7)
            assert receive(client, len(expected)) == expected
            assert len(called) == int(number > 0)


def test_a_fault_of_the_first_time_only_leaves_later_connections_alone():
    called = []
    fault = forwarder.once(lambda: called.append(True))
    fault()
    fault()
    assert called == [True]


def test_slow_is_a_kilobyte_a_second_from_the_place_on(tmp_path, daemon):
    with connected(tmp_path, daemon, ("call", 7), "slow") as (client, _running):
        expected = answer(client, 7, b"x" * 100)
        assert receive(client, len(expected)) == expected
        client.sendall(message(8, payload=b"x" * 4000))
        assert len(receive(client, 4000, 0.5)) == 0


def test_without_frames_bytes_of_both_ways_are_counted(tmp_path, daemon):
    path = str(tmp_path / "raw.sock")
    running = forwarder.Forwarder(forwarder.unix_listener(path), daemon, forwarder.Place("bytes", number=60), "close", framed=False)
    with running, socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        expected = answer(client, 7)
        assert receive(client, len(expected)) == expected
        client.sendall(message(8))
        assert receive(client, 1) == b""


def test_a_daemon_that_is_not_there_ends_the_connection(tmp_path):
    path = str(tmp_path / "forwarded.sock")
    running = forwarder.Forwarder(forwarder.unix_listener(path), str(tmp_path / "nobody"), forwarder.Place("reply"), "close")
    with running, socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        assert receive(client, 1) == b""


def test_a_daemon_that_takes_nothing_more_holds_up_nobody(tmp_path):
    path, stopped = str(tmp_path / "forwarded.sock"), str(tmp_path / "stopped.sock")
    with forwarder.unix_listener(stopped), socket.socket(socket.AF_UNIX) as client:
        running = forwarder.Forwarder(forwarder.unix_listener(path), stopped, forwarder.Place("reply"), "close")
        running.__enter__()
        client.connect(path)
        client.setblocking(False)
        data = message(9, payload=b"x" * 100000)
        # Until nothing goes in any more on either side.
        while select.select([], [client], [], 1)[1]:
            data = data[client.send(data):] or message(9, payload=b"x" * 100000)
        ending = threading.Thread(target=running.__exit__, daemon=True)
        ending.start()
        ending.join(10)
        assert not ending.is_alive()
