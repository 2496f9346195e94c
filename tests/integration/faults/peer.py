# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: peer.py NAME SOCKET is the other end of a connection, in a process of its own; it prints the URI under which it is found
and goes on until its standard input ends. With `peers()` a program has one."""

from __future__ import annotations

import contextlib
import os
import socketserver
import subprocess
import sys
import threading

import ground
from forwarder import Forwarder, Place, tcp_listener, unix_listener

SSH = f"qemu+ssh://root@127.0.0.1:{{}}/system?keyfile={ground.KEY}"
THROUGH_SSH = f"qemu+ssh://root@127.0.0.1/system?keyfile={ground.KEY}&proxy=netcat&netcat={ground.NETCAT}&socket={{}}"
# The reply to the first call that the module makes on a connection that is open: the driver opens by the ones before it.
OPENED = Place("call", 6)

# Name: transport, place, fault.
FORWARDED = {
    "well-unix": ("unix", Place("reply", 9999), "close"), "well-tcp": ("tcp", Place("reply", 9999), "close"),
    "well-ssh": ("ssh", Place("reply", 9999), "close"),
    "closes-unix": ("unix", Place("reply"), "close"), "resets-tcp": ("tcp", Place("reply"), "reset"),
    "nonsense-unix": ("unix", Place("reply"), "garbage"), "huge-tcp": ("tcp", Place("reply"), "huge"),
    "closes-later-unix": ("unix", OPENED, "close"), "resets-later-tcp": ("tcp", OPENED, "reset"),
    "silent-unix": ("unix", Place("reply"), "freeze"), "silent-tcp": ("tcp", Place("reply"), "freeze"), "silent-ssh": ("ssh", Place("reply"), "freeze"),
    "silent-later-unix": ("unix", OPENED, "freeze"), "silent-later-tcp": ("tcp", OPENED, "freeze"), "silent-later-ssh": ("ssh", OPENED, "freeze"),
}
OTHERS = ("no-socket", "port-closed-tcp", "http-tcp", "port-closed-ssh", "http-ssh")
NAMES = (*FORWARDED, *OTHERS)


class Page(socketserver.BaseRequestHandler):
    """What a web server says to anything that it does not understand."""

    def handle(self):
        if self.request.recv(65536):
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@contextlib.contextmanager
def http_server():
    """Its port."""
    with socketserver.TCPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def closed_port():
    with tcp_listener() as listener:
        return listener.getsockname()[1]


@contextlib.contextmanager
def forwarded(transport, place, fault, path):
    listener = tcp_listener() if transport == "tcp" else unix_listener(path)
    if transport == "tcp":
        uri = f"qemu+tcp://127.0.0.1:{listener.getsockname()[1]}/system"
    else:
        uri = f"qemu+unix:///system?socket={path}" if transport == "unix" else THROUGH_SSH.format(path)
    with Forwarder(listener, ground.SOCKET, place, fault):
        yield uri


@contextlib.contextmanager
def here(name, path):
    """The URI of that peer, served by this process."""
    if name in FORWARDED:
        with forwarded(*FORWARDED[name], path) as uri:
            yield uri
    elif name == "no-socket":
        yield f"qemu+unix:///system?socket={path}.nowhere"
    elif name.startswith("port-closed"):
        yield SSH.format(closed_port()) if name.endswith("ssh") else f"qemu+tcp://127.0.0.1:{closed_port()}/system"
    else:
        with http_server() as port:
            yield SSH.format(port) if name.endswith("ssh") else f"qemu+tcp://127.0.0.1:{port}/system"


@contextlib.contextmanager
def peer(name):
    """The URI of that peer, served by another process."""
    path = f"{ground.SOCKETS}/peer-{name}.sock"
    with subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), name, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(30)


def main():
    with here(*sys.argv[1:]) as uri:
        print(uri, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
