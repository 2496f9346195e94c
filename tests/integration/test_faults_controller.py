# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules over ssh that wait for what never answers: Ansible reads the result of a long wait as any other, and where all of Ansible is killed the
module is gone from the hypervisor within a minute, though the ssh client that it started is still there."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import CHECKOUT, INVENTORY, ansible_environment

pytestmark = pytest.mark.extended

FOLDER = "/srv/silent"
# A daemon that takes one connection and never says a word; it writes down the process id of who came.
SILENT = f"""
import os, socket, struct
listener = socket.socket(socket.AF_UNIX)
listener.bind("{FOLDER}/socket")
listener.listen(1)
open("{FOLDER}/ready", "w").close()
client = listener.accept()[0]
pid = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
with open("{FOLDER}/new", "w") as file:
    file.write(str(pid))
os.rename("{FOLDER}/new", "{FOLDER}/pid")
while client.recv(65536):
    pass
"""
# Longer than three of the lines by which a module looks for its reader.
LONG = 50
GONE = 60
MODES = {"pipelining": {"ANSIBLE_PIPELINING": "1"}, "files": {"ANSIBLE_PIPELINING": "0"}}


@contextlib.contextmanager
def silent(hv1):
    hv1.shell("hv1", f"rm -rf {FOLDER}; mkdir {FOLDER}; cat > {FOLDER}/silent.py <<'END'\n{SILENT}\nEND\n"
                     f"setsid python3 {FOLDER}/silent.py < /dev/null > {FOLDER}/output 2>&1 & echo $! > {FOLDER}/listener")
    try:
        hv1.shell("hv1", f"for _ in $(seq 300); do [ -e {FOLDER}/ready ] && exit; sleep 0.1; done; cat {FOLDER}/output; exit 1")
        yield
    finally:
        hv1.shell("hv1", f"kill $(cat {FOLDER}/listener) 2> /dev/null; rm -rf {FOLDER}")


def play(tmp_path, seconds, **task):
    look = {"uri": f"qemu+unix:///system?socket={FOLDER}/socket", "connect_timeout": seconds, "timeout": seconds + 60}
    tasks = [
        {"name": "Look", "egress.kvm2.kvm2_pool_check": look, "register": "r", "ignore_errors": True, **task},
        {"name": "Keep", "ansible.builtin.copy": {"content": "{{ r | to_json }}", "dest": str(tmp_path / "result")}, "delegate_to": "localhost"}]
    path = tmp_path / "play.yml"
    path.write_text(json.dumps([{"hosts": "hv1", "gather_facts": False, "tasks": tasks}]), encoding="utf-8")
    return path


@pytest.mark.parametrize("mode, task", [("pipelining", {}), ("files", {}), ("files", {"async": 300, "poll": 2})], ids=["pipelining", "files", "async"])
def test_the_result_of_a_long_wait_is_read_as_any_other(hv1, tmp_path, mode, task):
    with silent(hv1):
        began = time.monotonic()
        done = hv1.playbook(play(tmp_path, LONG, **task), "-vvv", "--limit", "hv1,localhost", environment={**ansible_environment(), **MODES[mode]})
        assert time.monotonic() - began > LONG
    result = json.loads((tmp_path / "result").read_text(encoding="utf-8"))
    assert result["failed"] and f"no answer within {LONG} s" in result["msg"] and result["error"]["kind"] == "transient", result
    assert not {"module_stdout", "warnings"} & set(result), result
    assert "junk" not in done.stdout and "deserialization" not in done.stdout


def below(pid):
    """{process id: its command line} of all that a process has started."""
    found, parents = {}, [pid]
    while parents:
        text = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", ",".join(map(str, parents))], stdout=subprocess.PIPE, text=True, check=False).stdout
        some = {int(line.split(None, 1)[0]): line.split(None, 1)[1] for line in text.splitlines()}
        found.update(some)
        parents = list(some)
    return found


@pytest.mark.parametrize("mode", MODES)
def test_a_module_ends_when_all_of_ansible_was_killed(hv1, tmp_path, mode):
    with silent(hv1):
        process = subprocess.Popen(
            [Path(sys.executable).with_name("ansible-playbook"), "-i", INVENTORY, "--limit", "hv1,localhost", play(tmp_path, 900)],
            cwd=CHECKOUT, env={**ansible_environment(), **MODES[mode]}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        clients = {}
        try:
            pid = int(hv1.shell("hv1", f"for _ in $(seq 900); do [ -e {FOLDER}/pid ] && break; sleep 0.1; done; cat {FOLDER}/pid"))
            started = below(process.pid)
            clients = {one: command for one, command in started.items() if command.startswith("ssh ")}
            assert clients, started
            killed = time.monotonic()
            for one in (process.pid, *(set(started) - set(clients))):
                os.kill(one, signal.SIGKILL)
            process.wait()
            hv1.shell("hv1", f"for _ in $(seq {GONE * 10}); do [ -e /proc/{pid} ] || exit 0; sleep 0.1; done; ps -ef; exit 1")
            print(f"{mode}: the module was gone {time.monotonic() - killed:.1f} s after Ansible")
        finally:
            for one in (process.pid, *clients):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
            process.wait()
