# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A connection to libvirt: opening, keepalive, calls and their errors. The only file that imports libvirt."""

from __future__ import annotations

import contextlib
import threading
import time
import traceback

from .._policy import connection_uri
from .._policy.errors import PERMANENT, TRANSIENT, Kvm2Error
from . import classify, overlapping, ssh_command
from .line import Line
from .reopening import Closed, are_of_one_machine

try:
    import libvirt
    LIBVIRT_IMPORT_ERROR = None
except ImportError:
    libvirt = None
    LIBVIRT_IMPORT_ERROR = traceback.format_exc()

RETRIES = 8
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.5
# Seconds in which a daemon that restarts, or has too many clients for the moment, is tried again; never longer than connect_timeout.
OPEN_AGAIN = 5.0
# Seconds between two rounds of the event loop.
LOOP_PAUSE = 0.02
# How often the event loop goes round before its end.
LAST_ROUNDS = 4
# Seconds that closing may take before the line is cut, and after it.
CLOSE = 3.0
# How often a connection that its peer closed is opened anew.
REOPENINGS = 3


class Connection:
    """connect_timeout, keepalive_interval and open_again in seconds. `deadline` bounds what libvirt itself cannot bound.

    ssh: connection_uri.Ssh. Nothing else in the process may open sockets while this is made: those that appear meanwhile are taken for the
    connection's own, and are shut down where it has to be cut.
    """

    def __init__(self, uri, deadline, connect_timeout=10, keepalive_interval=5, keepalive_count=3, ssh=None, open_again=OPEN_AGAIN):
        self.uri = uri
        self._parsed = _parse(uri)
        self._deadline = deadline
        self._connect_timeout, self._open_again = connect_timeout, min(open_again, connect_timeout)
        self._keepalive = int(keepalive_interval), int(keepalive_count)
        self._ssh = ssh
        self._conn = self._failed = None
        self._reopenings = REOPENINGS
        self._reviving = threading.Lock()
        self._is_shared = False
        self._loop = _EventLoop.join()
        try:
            self._connect()
            self._machine = self._hostname()
        except BaseException:
            self.close()
            raise

    def _connect(self):
        obj, transport = f"hypervisor {self.uri}", self._parsed.transport
        self._ended = Closed()
        self._line = Line("ssh" in transport)
        self._deadline.cut = self._line.cut
        self._deadline.narrow(self._connect_timeout, "connect to", obj, _silent(transport))
        try:
            with _ssh_program(self._parsed, self._ssh, self._connect_timeout) as command:
                self._conn = self._open(connection_uri.without_questions(self._parsed, command), self._open_again)
            self._line.opened()
            self._watch(*self._keepalive)
        finally:
            self._deadline.widen()

    def revive(self):
        """Open the connection anew where its peer closed it, as a daemon that restarts does; True then. One that went silent, or was cut since the
        time is over, stays lost. Where nobody answers any more, or another machine does, every further call fails as this one."""
        # A thread that reads ahead and the one that cleans up after it may come at the same time.
        with self._reviving:
            return self._revive()

    @contextlib.contextmanager
    def used_by_several(self):
        """Inside, several threads may call at the same time, and the connection is not opened anew under them. Gives a function that tells whether it
        is there still."""
        self.revive()
        self._is_shared = True
        try:
            yield lambda: not self._is_lost()
        finally:
            self._is_shared = False

    def overlap(self, jobs, at_once, check_stop):
        return overlapping.run(self, jobs, at_once, check_stop)

    def _revive(self):
        if self._failed is not None:
            raise self._failed
        if self._is_shared:
            return False
        if not self._ended.is_set() and not self._is_lost():
            return False
        if not self._reopenings or self._deadline.passed is not None:
            return False
        if not self._ended.by_peer() or not self._shut():
            self._reopenings = 0
            return False
        self._reopenings -= 1
        try:
            self._connect()
            self._see_same_machine()
        except BaseException as error:
            # Whatever it was, nothing goes on over a connection that is not there, or that is not known to lead to the same machine.
            self._failed = error if isinstance(error, Kvm2Error) else Kvm2Error(
                TRANSIENT, "connect again to", f"hypervisor {self.uri}", str(error) or type(error).__name__, "Run again.")
            raise
        return True

    def _hostname(self):
        """That of the machine at the other end; "" where it is this one. The host's UUID would not do: where the firmware has none, a daemon draws
        another one at each start."""
        if self.is_local():
            return ""
        try:
            return self._conn.getHostname()
        except libvirt.libvirtError as error:
            raise self._error("read", "read the hostname of", f"hypervisor {self.uri}", error) from error

    def _see_same_machine(self):
        # A name or an address may have gone over to another hypervisor, where a domain of the same fleet, name and UUID may run.
        now = self._hostname()
        if not are_of_one_machine(self._machine, now):
            raise Kvm2Error(
                TRANSIENT, "go on with", f"hypervisor {self.uri}", f"the connection to {self._machine} was lost, and now {now} answers there",
                f"Nothing was changed on {now}. Run again where that is the hypervisor that is meant.")

    def _open(self, uri, again):
        until, pause = time.monotonic() + again, FIRST_PAUSE
        while True:
            try:
                return libvirt.open(uri)
            except libvirt.libvirtError as error:
                verdict = self._verdict(error)
                if not verdict.again or self._deadline.passed is not None or time.monotonic() + pause > until:
                    raise self._error("open", "connect to", f"hypervisor {self.uri}", error) from error
            threading.Event().wait(pause)
            pause = min(pause * 2, 1.0)

    def _verdict(self, error):
        from .classify_open import classify_open
        return classify_open(self._parsed.transport, error.get_error_code(), error.get_int1() or 0, error.get_error_message() or "")

    def _watch(self, interval, count):
        # Without a step before it, which could end the work and leave a connection that is only half made to what cleans up.
        try:
            self._conn.registerCloseCallback(_note, self._ended)
        except libvirt.libvirtError as error:
            raise self._error("open", "watch", f"hypervisor {self.uri}", error) from error
        try:
            self._conn.setKeepAlive(interval, count)
        except libvirt.libvirtError as error:
            # A driver inside this process has no line to keep.
            if error.get_error_code() != classify.NO_SUPPORT:
                raise self._error("open", "watch", f"hypervisor {self.uri}", error) from error

    def close(self):
        """Within some seconds, whatever the peer does. False where a thread is still blocked in it: only the end of the process frees that."""
        if not self._shut():
            return False
        self._deadline.cut = None
        if self._loop is not None:
            self._loop.leave()
            self._loop = None
        return True

    def _shut(self):
        if self._conn is not None:
            # A close can wait behind a blocked call, or for an answer of a frozen peer.
            closer = threading.Thread(target=self._close, args=(self._conn,), name="kvm2-close", daemon=True)
            closer.start()
            closer.join(CLOSE)
            if closer.is_alive():
                self._line.cut()
                closer.join(CLOSE)
            if closer.is_alive():
                return False
            self._conn = None
        return True

    def _close(self, conn):
        try:
            conn.unregisterCloseCallback()
        except libvirt.libvirtError:
            pass
        try:
            # Something still holds an object of the connection, which keeps it open.
            if conn.close() > 0:
                self._line.cut()
        except libvirt.libvirtError:
            pass

    def is_local(self):
        return self._parsed.is_local

    def _error(self, operation, act, obj, error):
        passed = self._deadline.passed
        if passed is not None and (operation == "open" or self._is_lost()):
            # The line was cut because of the deadline: that is the cause, and not what libvirt makes of it.
            return passed
        code = error.get_error_code()
        if operation == "open":
            verdict = self._verdict(error)
            kind, hint = verdict.kind, verdict.hint
        elif self._is_lost():
            kind, hint = TRANSIENT, "The connection was lost; try again once the hypervisor answers."
        else:
            kind, hint = classify.classify(operation, code, error.get_int1() or 0)
        obj = obj if self.uri in obj else f"{obj} on {self.uri}"
        return Kvm2Error(kind, act, obj, " ".join((error.get_error_message() or str(error)).split()), hint, code)

    def _is_lost(self):
        if self._conn is None or self._ended.is_set():
            return True
        try:
            return not self._conn.isAlive()
        except libvirt.libvirtError:
            return True

    def _step(self):
        """Called before each call to the daemon."""

    def _call(self, operation, act, obj, function, *args):
        """Call; a passing condition of the daemon (a job in the pool, a volume still being made) is waited for, some ten seconds at most."""
        pause = FIRST_PAUSE
        for attempt in range(RETRIES):
            self._step()
            try:
                return function(*args)
            except libvirt.libvirtError as error:
                passing = classify.is_passing(error.get_error_code(), error.get_error_message() or "")
                if attempt == RETRIES - 1 or not passing or self._deadline.remaining() < pause:
                    raise self._error(operation, act, obj, error) from error
            threading.Event().wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        return None

    def _find(self, missing, act, obj, function, *args):
        """Like _call for a look-up: None where the object does not exist."""
        self._step()
        try:
            return function(*args)
        except libvirt.libvirtError as error:
            if error.get_error_code() == missing:
                return None
            raise self._error("read", act, obj, error) from error


def _parse(uri):
    """The Uri; what no operator may give, such as the test driver of libvirt, is taken for local."""
    return connection_uri.parse(uri) if uri.startswith("qemu") else connection_uri.Uri(uri, "unix", "")


def _silent(transport):
    hint = "Something takes the connection there and does not answer: a frozen daemon or machine, or one with too many clients (virt-admin srv-clients-info)."
    if transport != "unix":
        hint = "Nothing answers there: the machine is down or frozen, the network or a firewall swallows it, or its daemon has too many clients."
    return f"{hint} Try again, or raise connect_timeout."


def _note(_conn, reason, closed):
    closed.reason = reason
    closed.set()


@contextlib.contextmanager
def _ssh_program(uri, ssh, connect_timeout):
    """The path of what is run in the place of ssh, or None for ssh itself."""
    if ssh is None or ssh.is_plain:
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            path = stack.enter_context(ssh_command.program(connection_uri.ssh_script(uri, ssh, connect_timeout)))
        except OSError as error:
            raise Kvm2Error(
                TRANSIENT, "write", f"the program that runs ssh for hypervisor {uri.text}", error,
                "It goes to the folder for temporary files (TMPDIR) of the machine that runs the module: make room there, then run again.") from error
        yield path


class _EventLoop:
    """libvirt's default event loop in a thread: without it keepalive does nothing. One for all connections, while there are any."""

    _lock = threading.Lock()
    _current = None
    _is_registered = False

    @classmethod
    def join(cls):
        """The running loop; leave() it when the connection is closed."""
        if libvirt is None:
            raise Kvm2Error(PERMANENT, "load", "the Python library libvirt", "it is not installed")
        with cls._lock:
            if not cls._is_registered:
                # libvirt prints errors on stderr by itself unless told otherwise.
                libvirt.registerErrorHandler(_say_nothing, None)
                libvirt.virEventRegisterDefaultImpl()
                cls._is_registered = True
            if cls._current is None:
                cls._current = cls()
            cls._current._users += 1
            return cls._current

    def leave(self):
        with self._lock:
            self._users -= 1
            if self._users:
                return
            type(self)._current = None
            self._stop.set()
            # Wakes the loop.
            timer = libvirt.virEventAddTimeout(0, _once, None)
            self._thread.join(5)
            libvirt.virEventRemoveTimeout(timer)
            libvirt.virEventRemoveTimeout(self._timer)

    def __init__(self):
        self._users = 0
        self._stop = threading.Event()
        # A timer that fires keeps the loop from sleeping for ever when nothing else is registered.
        self._timer = libvirt.virEventAddTimeout(1000, _say_nothing, None)
        self._thread = threading.Thread(target=self._run, name="kvm2-events", daemon=True)
        self._thread.start()

    def _run(self):
        # After the end was asked for, some rounds more: the descriptors of what was closed are let go of in the loop.
        left = LAST_ROUNDS
        while left:
            if self._stop.is_set():
                left -= 1
                # They go in a round in which nothing else is due. This goes in the same way, so no round waits for something to happen.
                libvirt.virEventRemoveTimeout(libvirt.virEventAddTimeout(-1, _say_nothing, None))
            try:
                libvirt.virEventRunDefaultImpl()
            except libvirt.libvirtError:
                self._stop.wait(FIRST_PAUSE)
            # Each message that another thread sends wakes the loop twice. What it is there for is not urgent, and it would take time from an upload.
            self._stop.wait(LOOP_PAUSE)


def _once(timer, _opaque):
    """For libvirt to call at a timer that is to fire once."""
    libvirt.virEventUpdateTimeout(timer, -1)


def _say_nothing(*_arguments):
    """For libvirt to call."""
