# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process of its own per test: its standard output is what is cut."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import threading

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import ending
from ansible_collections.egress.kvm2.plugins.module_utils._host.controller import ControllerWatch

PROGRAM = """
import sys, threading
sys.path[:0] = {path!r}
from ansible_collections.egress.kvm2.plugins.module_utils._host.controller import ControllerGone, ControllerWatch
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error
watch = ControllerWatch(grace={grace}, knock={knock})
print("ready", flush=True)
{work}
"""

STEPS = """
told = []
while not told:
    try:
        watch.step()
        threading.Event().wait(0.01)
    except ControllerGone as gone:
        told.append(gone.error.kind)
watch.step()   # cleaning up goes through
for _time in range(2):
    try:
        watch.check()
    except Kvm2Error as error:
        told.append(error.kind)
watch.cancel()
sys.stderr.write(" ".join(told))
"""

BLOCKED = """
lock = threading.Lock()
lock.acquire()
lock.acquire()
"""


def start(work, grace, knock=60, **how):
    program = PROGRAM.format(path=sys.path, grace=grace, knock=knock, work=work)
    return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **how)


def test_each_step_until_the_reader_has_gone_and_one_refusal_then():
    with start(STEPS, 60, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == "ready\n"
        process.stdout.close()
        said = process.stderr.read()
        assert (process.wait(30), said) == (0, "transient transient transient")


def test_a_terminal_that_hangs_up_is_noticed_and_does_not_end_it_in_the_middle():
    ours, theirs = pty.openpty()
    with start(STEPS, 60, stdout=theirs, start_new_session=True, preexec_fn=lambda: __import__("fcntl").ioctl(1, 0x540E, 0)) as process:
        os.close(theirs)
        with open(ours, "rb", buffering=0) as terminal:
            assert terminal.readline().strip() == b"ready"
        said = process.stderr.read()
        assert (process.wait(30), said) == (0, "transient transient transient")


@pytest.mark.parametrize("number", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_ends_it_at_the_next_step(number):
    # Whatever runs the tests may ignore it.
    with start(STEPS, 60, stdout=subprocess.PIPE, preexec_fn=lambda: signal.signal(getattr(signal, number), signal.SIG_DFL)) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, number))
        assert (process.wait(30), process.stderr.read()) == (0, "transient transient transient")


def test_a_signal_ends_what_is_blocked_in_c_with_a_result():
    with start(BLOCKED, 0.2, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 1
        result = json.loads(process.stdout.read())
        assert result["failed"] and result["error"]["kind"] == "transient" and "SIGTERM" in result["msg"]


def test_a_signal_that_somebody_ignores_is_left_alone():
    with start("watch.cancel()", 60, stdout=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as process:
        assert process.wait(30) == 0
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        watch = ControllerWatch(lambda text: None)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN and signal.getsignal(signal.SIGINT) != signal.default_int_handler
        watch.cancel()
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_what_is_blocked_is_cut_off_after_the_grace():
    with start(BLOCKED, 0.2, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == "ready\n"
        process.stdout.close()
        assert process.wait(30) == 1


@pytest.mark.parametrize("kind", ["pipe", "file", "closed"])
def test_with_its_reader_there_nothing_happens(tmp_path, kind):
    reader, writer = os.pipe()
    if kind == "file":
        os.close(writer)
        writer = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    if kind == "closed":
        # A number that the watch's own pipe does not get.
        os.dup2(writer, 200)
        os.close(200)
        writer = 200
    left = []
    before = threading.active_count()
    watch = ControllerWatch(left.append, grace=0, descriptor=writer, knock=0.02)
    if kind == "pipe":
        assert os.read(reader, 1) + os.read(reader, 1) == b"\n\n"
    if kind == "file":
        while not os.path.getsize(tmp_path / "out"):
            threading.Event().wait(0.01)
    watch.step()
    watch.check()
    watch.cancel()
    assert not watch.gone and left == [] and threading.active_count() == before
    os.close(reader)


HANDS_ON = """
import os, sys
while True:
    data = os.read(0, 1)
    os.write(1, data)
"""


def test_a_reader_behind_one_that_only_hands_on_is_noticed_too():
    # As the ssh client of an Ansible whose processes were all killed.
    hands_on = [sys.executable, "-c", HANDS_ON]
    with (
        subprocess.Popen(hands_on, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as between,
        start(STEPS, 60, stdout=between.stdin, knock=0.1) as process,
    ):
        between.stdin.close()
        assert between.stdout.readline() == b"ready\n"
        between.stdout.close()
        said = process.stderr.read()
        assert (process.wait(30), said) == (0, "transient transient transient")


def test_a_reader_whose_end_only_a_write_shows_is_noticed_too():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watch = ControllerWatch(lambda text: None, grace=60, descriptor=theirs.fileno(), knock=0.02)
        assert ours.recv(1) == b"\n"
        # As an sshd of which the session is not a pipe.
        ours.shutdown(socket.SHUT_RD)
        assert watch._gone.wait(30)
        watch.cancel()


def test_nothing_is_written_into_a_result():
    reader, writer = os.pipe()
    told, go_on = threading.Event(), threading.Event()

    def tell():
        ending.before_last_word(lambda: (told.set(), go_on.wait(30)))

    teller = threading.Thread(target=tell)
    teller.start()
    assert told.wait(30)
    watch = ControllerWatch(lambda text: None, grace=60, descriptor=writer, knock=0.01)
    try:
        assert not select.select([reader], [], [], 0.3)[0]
        go_on.set()
        assert os.read(reader, 1) == b"\n"
    finally:
        go_on.set()
        teller.join()
        watch.cancel()
        os.close(reader)
        os.close(writer)


def test_one_that_cannot_be_written_to_at_the_moment_holds_nobody_up():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, bytes(65536))
    except BlockingIOError:
        os.set_blocking(writer, True)
    watch = ControllerWatch(lambda text: None, grace=60, descriptor=writer, knock=0.01)
    for _time in range(20):
        threading.Event().wait(0.01)
        # The result could be told.
        assert ending._LAST_WORD.acquire(timeout=5)
        ending._LAST_WORD.release()
    watch.cancel()
    assert not watch.gone
    os.close(reader)
    os.close(writer)
