# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import shlex
import subprocess

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host import ssh_command
from ansible_collections.egress.kvm2.plugins.module_utils._policy import connection_uri
from ansible_collections.egress.kvm2.plugins.module_utils._policy.connection_uri import Ssh
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import InvalidInput


@pytest.mark.parametrize("text, transport, host", [
    ("qemu:///system", "unix", ""),
    ("qemu:///session", "unix", ""),
    ("qemu+unix:///system?socket=/run/user/1000/libvirt/libvirt-sock", "unix", ""),
    ("qemu+unix:///system?mode=direct", "unix", ""),
    ("qemu+ssh://root@hv1/system", "ssh", "hv1"),
    ("qemu+ssh://root@[fd00::1]:2222/system?keyfile=/k", "ssh", "fd00::1"),
    ("qemu+libssh2://hv1/session", "libssh2", "hv1"),
    ("qemu://hv1/system", "tls", "hv1"),
    ("qemu+tls://hv1:16514/system?pkipath=/etc/pki/kvm2", "tls", "hv1"),
    ("qemu+tcp://127.0.0.1/system", "tcp", "127.0.0.1"),
    ("qemu+tcp://127.9.0.1:16509/session", "tcp", "127.9.0.1"),
    ("qemu+tcp://[::1]:16509/system", "tcp", "::1"),
    ("qemu+tcp://LocalHost/system", "tcp", "localhost"),
    ("qemu+tcp://hv1.localhost/system", "tcp", "hv1.localhost"),
])
def test_uris(text, transport, host):
    uri = connection_uri.parse(text)
    assert (uri.transport, uri.host, uri.is_local) == (transport, host, not host)


@pytest.mark.parametrize("socket, is_local", [
    ("socket=/run/libvirt/libvirt-sock", True),
    ("socket=/var/run/libvirt/virtqemud-sock", True),
    ("socket=/run/libvirt/common/hv", True),
    ("mode=direct&socket=%2Frun%2Flibvirt%2Flibvirt-sock", True),
    ("socket=", True),
    ("socket=/tmp/hv1.sock", False),
    ("SOCKET=/tmp/hv1.sock", False),
    ("mode=direct;socket=/tmp/hv1.sock", False),
    ("socket=/run/libvirt/libvirt-sock&socket=/tmp/hv1.sock", False),
    ("socket=/run/libvirt/../hv1.sock", False),
    ("socket=/run/libvirt-elsewhere/libvirt-sock", False),
    ("socket=/srv/run/libvirt/libvirt-sock", False),
    ("socket=libvirt-sock", False),
])
def test_a_socket_elsewhere_may_lead_to_another_machine(socket, is_local):
    assert connection_uri.parse(f"qemu+unix:///system?{socket}").is_local is is_local


@pytest.mark.parametrize("text, cause", [
    (" ", "it is empty"),
    ("hv1", "QEMU driver"),
    ("vbox:///session", "QEMU driver"),
    ("qemu+smoke://hv1/system", "no transport smoke"),
    ("qemu+ext://hv1/system?command=/x", "no transport ext"),
    ("qemu:///sytem", "its path is '/sytem'"),
    ("qemu+ssh://hv1", "its path is ''"),
    ("qemu+ssh:///system", "needs a host"),
    ("qemu+tcp:///system", "needs a host"),
    ("qemu+tcp://hv1/system", "neither encrypted nor authenticated"),
    ("qemu+tcp://root@192.0.2.1:16509/system", "neither encrypted nor authenticated"),
    ("qemu+tcp://[fd00::1]/system", "neither encrypted nor authenticated"),
    ("qemu+tcp://0.0.0.0/system", "neither encrypted nor authenticated"),
    ("qemu+tcp://localhost.example.com/system", "neither encrypted nor authenticated"),
    ("qemu+tcp://127.0.0.1.example.com/system", "neither encrypted nor authenticated"),
    ("qemu+unix://hv1/system", "has no host"),
    ("qemu+ssh://hv1:port/system", "Port could not be cast"),
    ("qemu+ssh://[hv1/system", "Invalid IPv6 URL"),
])
def test_what_libvirt_would_take_for_something_else_is_refused(text, cause):
    with pytest.raises(InvalidInput) as caught:
        connection_uri.parse(text)
    assert cause in caught.value.message and repr(text.strip()) in caught.value.message and caught.value.hint


@pytest.mark.parametrize("host", ["hv1", "[fd00::1]"])
def test_over_a_network_the_ways_that_are_safe_are_named(host):
    with pytest.raises(InvalidInput) as caught:
        connection_uri.parse(f"qemu+tcp://{host}:16509/system")
    assert f"qemu+ssh://{host}/system" in caught.value.hint and f"qemu+tls://{host}/system" in caught.value.hint


@pytest.mark.parametrize("text, command, expected", [
    ("qemu:///system", None, "qemu:///system"),
    ("qemu+tls://h/system?no_verify=1", None, "qemu+tls://h/system?no_verify=1"),
    ("qemu+ssh://h/system", None, "qemu+ssh://h/system?no_tty=1"),
    ("qemu+ssh://h/system?no_tty=0&keyfile=/a%20b", None, "qemu+ssh://h/system?keyfile=/a%20b&no_tty=1"),
    ("qemu+ssh://u@h:22/system?socket=/run/x", "/proc/1/fd/3", "qemu+ssh://u@h:22/system?socket=/run/x&no_tty=1&command=/proc/1/fd/3"),
])
def test_ssh_never_asks(text, command, expected):
    assert connection_uri.without_questions(connection_uri.parse(text), command) == expected


@pytest.mark.parametrize("uri, ssh, cause", [
    ("qemu:///system", Ssh(known_hosts="/k"), "does not go over qemu\\+ssh"),
    ("qemu+tls://h/system", Ssh(jump_host="j"), "does not go over qemu\\+ssh"),
    ("qemu+ssh://h/system?command=/x", Ssh(jump_host="j"), "command of its own"),
    ("qemu+ssh://h/system", Ssh(known_hosts="k"), "absolute path"),
    ("qemu+ssh://h/system", Ssh(known_hosts='/a"b'), "absolute path"),
    ("qemu+ssh://h/system", Ssh(jump_host="-oProxyCommand=x"), "of the form"),
    ("qemu+ssh://h/system", Ssh(jump_host="u@h:99999"), "of the form"),
    ("qemu+ssh://h/system", Ssh(jump_host="a b"), "of the form"),
    ("qemu+ssh://h/system", Ssh(jump_host=""), "of the form"),
])
def test_options_of_ssh_that_mean_nothing_are_refused(uri, ssh, cause):
    with pytest.raises(InvalidInput, match=cause):
        connection_uri.check_ssh(connection_uri.parse(uri), ssh)


def test_the_program_runs_ssh_with_its_options_and_the_jump_host_with_the_same(tmp_path):
    """A program named ssh stands for it and writes down what it was called with; real ssh reads the options."""
    fake = tmp_path / "ssh"
    fake.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n", encoding="utf-8")
    fake.chmod(0o755)
    uri = connection_uri.parse("qemu+ssh://root@hv1/system?keyfile=/keys/a%20b")
    ssh = Ssh("/etc/ssh/known hosts", "ops@[fd00::2]:2222")
    connection_uri.check_ssh(uri, ssh)
    before = len(os.listdir("/proc/self/fd"))
    with ssh_command.program(connection_uri.ssh_script(uri, ssh, 7.5)) as path:
        given = subprocess.run([path, "-p", "22", "a b"], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True, capture_output=True, text=True).stdout
        said = subprocess.run([path, "-G", "hv1"], check=True, capture_output=True, text=True).stdout
    assert len(os.listdir("/proc/self/fd")) == before
    words = given.splitlines()
    assert words[:6] == ["-o", "BatchMode=yes", "-o", "ConnectTimeout=7", "-o", 'UserKnownHostsFile="/etc/ssh/known hosts"']
    assert words[-3:] == ["-p", "22", "a b"]
    settings = dict(line.partition(" ")[::2] for line in said.splitlines())
    assert settings["batchmode"] == "yes" and settings["connecttimeout"] == "7" and settings["userknownhostsfile"] == "/etc/ssh/known hosts"
    assert shlex.split(settings["proxycommand"]) == [
        "ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=7", "-o", 'UserKnownHostsFile="/etc/ssh/known hosts"', "-p", "2222", "-l", "ops",
        "-i", "/keys/a b", "-W", "[%h]:%p", "fd00::2"]


@pytest.mark.parametrize("text", [
    "qemu+ssh://root:s3cret@hypervisor/system", "qemu+tls://root:s3cret@hypervisor:16514/system?no_verify=1", "foo://root:s3cret@hypervisor/system",
    "qemu+ssh://:s3cret@hypervisor/system", "qemu+ssh://root:s3c@ret@hypervisor/system"])
def test_a_password_is_refused_and_not_shown(text):
    with pytest.raises(InvalidInput) as caught:
        connection_uri.parse(text)
    assert "it has a password in it" in caught.value.message and "s3c" not in caught.value.message and "hypervisor" in caught.value.message


def test_what_only_looks_like_a_password_is_none():
    assert connection_uri.parse("qemu+ssh://root@[2001:db8::1]:22/system").host == "2001:db8::1"
    assert connection_uri.parse("qemu+ssh://hypervisor:22/system?keyfile=/a:b@c").host == "hypervisor"
