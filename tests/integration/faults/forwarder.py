# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A forwarder between a libvirt client and its daemon that goes wrong at a place of one's choice. Standard library only: it runs on hypervisors.

    with Forwarder(unix_listener(path), "/run/libvirt/libvirt-sock", Place("reply", 83), "freeze") as forwarder:
        ...                                  # a client on that path is frozen out at the first reply to procedure 83
    forwarder.fired                          # when that was, by time.monotonic(), or None
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import threading
import time
from dataclasses import dataclass

# length (with itself), program, version, procedure, type, serial, status
HEADER = struct.Struct(">7I")
KEEPALIVE = 0x6B656570
CALL, REPLY, EVENT, STREAM = range(4)
OK, ERROR, CONTINUE = range(3)
FAULTS = ("freeze", "mute", "close", "reset", "slow", "garbage", "longer", "huge", "twice")
RATE = 1024
PIECE = 128


@dataclass(frozen=True)
class Message:
    """One message of libvirt's protocol, or of a connection that is not looked into a piece of it (then without header)."""

    data: bytes
    from_client: bool
    header: tuple = (0,) * 7

    @property
    def program(self):
        return self.header[1]

    @property
    def procedure(self):
        return self.header[3]

    @property
    def kind(self):
        return self.header[4]

    @property
    def status(self):
        return self.header[6]

    @property
    def payload(self):
        return len(self.data) - HEADER.size


@dataclass(frozen=True)
class Place:
    """Where it goes wrong, on each connection anew.

    what: call or reply: the number-th one of that procedure; sent or received: where that many bytes of its stream have passed; finish: the
    daemon's answer to the end of a stream; bytes: where that many have passed both ways. procedure: None is any.
    """

    what: str
    procedure: int | None = None
    number: int = 1


def once(act):
    """A fault of the first time only: later connections go well."""
    left = [act]

    def fault():
        if left:
            left.pop()()
    return fault


class Counter:
    """Tells for each message of one connection whether the place has come, once."""

    def __init__(self, place):
        self._place, self._count, self._come = place, 0, False

    def comes(self, message):
        if self._come:
            return False
        self._count += self._weight(message)
        self._come = self._count >= self._place.number
        return self._come

    def _weight(self, message):
        place = self._place
        if place.what == "bytes":
            return len(message.data)
        if message.program == KEEPALIVE or place.procedure not in (None, message.procedure):
            return 0
        if place.what in ("call", "reply"):
            return int(message.kind == (CALL if place.what == "call" else REPLY) and message.from_client == (place.what == "call"))
        if message.kind != STREAM or message.from_client != (place.what == "sent"):
            return 0
        if place.what == "finish":
            return place.number * int(message.status == OK)
        return message.payload if message.status == CONTINUE else 0


class Forwarder:
    """Forwards each connection that comes to the listening socket to a daemon: a path, or a pair of address and port.

    fault: one of FAULTS, or a function that is called at the place, before the message goes on. framed: is it libvirt's protocol?
    headers: (from the client?, header) of each message that came, in their order. fired: when the place came first.

    freeze: nothing passes any more. mute: nothing but keepalive. close, reset: the end (a reset is one where the transport has it). slow: a
    kilobyte a second. garbage: a message of the right length full of nonsense. longer, huge: one whose length is wrong by a little and by far.
    twice: the daemon's last message is sent again.
    """

    def __init__(self, listener, daemon, place, fault, framed=True):
        self._listener, self._daemon, self.place, self.fault, self.framed = listener, daemon, place, fault, framed
        self.fired = None
        self.headers = []
        self.ended = threading.Event()
        self._threads = [threading.Thread(target=self._accept, name="forwarder")]
        self._sockets = []

    def __enter__(self):
        self._threads[0].start()
        return self

    def __exit__(self, *_error):
        self.ended.set()
        for thread in self._threads:
            while thread.is_alive():
                # One may be blocked in sending to a daemon that is stopped.
                for one in tuple(self._sockets):
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)
                thread.join(0.1)
        self._listener.close()

    def _accept(self):
        while not self.ended.is_set():
            if select.select([self._listener], [], [], 0.1)[0]:
                thread = threading.Thread(target=self._serve, args=(self._listener.accept()[0],), name="forwarded")
                self._threads.append(thread)
                thread.start()

    def _serve(self, client):
        # A daemon that is not there, or goes away, ends the connection of its client.
        with contextlib.suppress(OSError), client, _connected(self._daemon) as daemon:
            self._sockets += [client, daemon]
            Connection(self, client, daemon).run()

    def came(self):
        if self.fired is None:
            self.fired = time.monotonic()


class Connection:
    """One client and its daemon; one thread, so that a closed socket is closed at once."""

    def __init__(self, forwarder, client, daemon):
        self._forwarder, self._client, self._daemon = forwarder, client, daemon
        self._counter = Counter(forwarder.place)
        self._mode = ""
        self._last = None

    def run(self):
        sources = [self._client, self._daemon]
        while not self._forwarder.ended.is_set():
            for source in select.select(sources, [], [], 0.1)[0]:
                message = self._read(source)
                if message is None or self._pass(message) == "end":
                    return

    def _read(self, source):
        """The next Message, or None at the end."""
        from_client = source is self._client
        if not self._forwarder.framed:
            data = source.recv(65536)
            return Message(data, from_client) if data else None
        head = _exactly(source, HEADER.size)
        if len(head) < HEADER.size:
            return None
        header = HEADER.unpack(head)
        rest = _exactly(source, header[0] - HEADER.size)
        return Message(head + rest, from_client, header) if len(rest) == header[0] - HEADER.size else None

    def _pass(self, message):
        """Pass it on, rightly or wrongly; "end" where the connection is over."""
        self._forwarder.headers.append((message.from_client, message.header))
        comes = self._counter.comes(message)
        if comes:
            self._forwarder.came()
        if comes and callable(self._forwarder.fault):
            self._forwarder.fault()
            comes = False
        if comes:
            return self._go_wrong(message)
        if self._mode != "mute" or message.program == KEEPALIVE:
            self._send(self._daemon if message.from_client else self._client, message.data)
        if not message.from_client:
            self._last = message
        return None

    def _go_wrong(self, message):
        fault = self._forwarder.fault
        if fault in ("freeze", "mute", "slow"):
            self._mode = fault
            if fault == "slow":
                self._send(self._daemon if message.from_client else self._client, message.data)
            if fault == "freeze":
                self._forwarder.ended.wait()
            return None
        if fault in ("close", "reset"):
            if fault == "reset" and self._client.family == socket.AF_INET:
                self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._client.close()
            return "end"
        if message.from_client:
            self._send(self._daemon, message.data)
        original = self._last.data if message.from_client else message.data
        self._send(self._client, _spoiled(fault, original))
        return None

    def _send(self, sink, data):
        if self._mode != "slow":
            sink.sendall(data)
            return
        for begin in range(0, len(data), PIECE):
            sink.sendall(data[begin:begin + PIECE])
            # The pace itself, not a wait for something to happen.
            if self._forwarder.ended.wait(PIECE / RATE):
                return


def _spoiled(fault, data):
    """What the client gets in the place of a message."""
    if fault == "garbage":
        nonsense = random.Random(len(data)).randbytes(max(len(data), 64) - 4)
        return struct.pack(">I", len(nonsense) + 4) + nonsense
    if fault == "twice":
        return data + data
    length = struct.unpack(">I", data[:4])[0] + 8 if fault == "longer" else 0xFFFFFF00
    return struct.pack(">I", length) + data[4:]


def _exactly(source, size):
    """That many bytes, fewer at the end."""
    parts, have = [], 0
    while have < size:
        part = source.recv(min(size - have, 1 << 18))
        if not part:
            break
        parts.append(part)
        have += len(part)
    return b"".join(parts)


def _connected(address):
    found = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    try:
        found.connect(address)
    except OSError:
        found.close()
        raise
    return found


def unix_listener(path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(16)
    return listener


def tcp_listener():
    """On a free port of this machine alone; getsockname() tells which."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(16)
    return listener
