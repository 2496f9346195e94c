# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The harness tried on itself: two hypervisors, a guest with its proxy, and a hypervisor whose processes have all been killed."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess

import hypervisors
import inventory
import publish
from progress import Failure, answer, say, step, wait_until
from state import State

HOSTS = ("selftest1", "selftest2")  # beside whatever else runs from this state folder


def run(state: State, up) -> int:
    """Run all of it; return the exit code."""
    with state.locked():
        _check("publish server: a process of another is never taken for ours", _foreign_process(state))
        up(state, ",".join(HOSTS), "trixie")
    facts = inventory.read(state)
    first, second = (facts["hosts"][name] for name in HOSTS)
    try:
        with step(f"guest on {HOSTS[0]}"):
            seen = _guest(state, facts, first["address"])
        say("\n".join("  " + line for line in seen["console"]))
        say(f"  address after {seen['addressed']:.1f} s, answer after {seen['answered']:.1f} s, off in {seen['off']:.1f} s")
        _check("the guest's host name is the seed's", seen["host_name"] == "probe")
        _check("a literal block of the seed is written as it is", seen["note"])
        _check("the request left from the hypervisor", seen["answer"]["address"] == first["address"])
        _check("the request went through the proxy", "tinyproxy" in seen["answer"].get("Via", ""))
        _range(facts)
        _kill(second["container"])
        with state.locked():
            up(state, ",".join(HOSTS), "trixie")
        again = inventory.read(state)["hosts"]
        _check("the killed hypervisor answers again", hypervisors.well(state, again[HOSTS[1]]["address"]))
        _check("the other one was left alone", again[HOSTS[0]] == first)
    finally:
        with state.locked():
            hypervisors.down(state, HOSTS)
    say("selftest: all of it is as it should be")
    return 0


def _check(what: str, good: bool) -> None:
    if not good:
        raise Failure(f"selftest: not so: {what}.")
    say(f"selftest: {what}")


def _guest(state: State, facts: dict, address: str) -> dict:
    wish = {
        "name": "probe",
        "kind": facts["virt_type"],
        "image_url": facts["image"]["url"],
        "checksum_url": facts["image"]["checksum"].partition(":")[2],
        "ask_url": facts["publish_url"] + "/whoami",
    }
    command = [*hypervisors.ssh_command(state, address), "python3", "/etc/kvm2-nested/boot_guest.py"]
    return json.loads(answer(command, timeout=400, stdin=json.dumps(wish)))


def _range(facts: dict) -> None:
    """Ask the publish server for parts, and for what has not changed."""
    import http.client

    server, port = facts["publish_url"].removeprefix("http://").split(":")
    image = (pathlib.Path(facts["publish_folder"]) / "micro.qcow2").read_bytes()

    def get(**headers: str):
        link = http.client.HTTPConnection(server, int(port), timeout=10)
        link.request("GET", "/micro.qcow2", headers={name.replace("_", "-"): value for name, value in headers.items()})
        reply = link.getresponse()
        return reply, reply.read()

    whole, body = get()
    _check("the image comes whole", body == image and int(whole.headers["Content-Length"]) == len(image))
    part, body = get(Range="bytes=1000-1999")
    _check("a range comes as asked", part.status == 206 and body == image[1000:2000])
    part, body = get(Range="bytes=-10")
    _check("a range from the end comes as asked", part.status == 206 and body == image[-10:])
    _check("a range past the end is refused", get(Range=f"bytes={len(image)}-")[0].status == 416)
    _check("what has not changed is not sent again", get(If_None_Match=whole.headers["ETag"])[0].status == 304)


def _kill(container: str) -> None:
    """Kill the container's monitor and all its processes behind podman's back."""
    monitor, first = map(int, answer(["podman", "inspect", "--format", "{{.State.ConmonPid}} {{.State.Pid}}", container]).split())
    for pid in (monitor, first):  # the end of the first process is the end of all in its namespace
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda pid=pid: publish.started(pid) is None, 20, f"the end of process {pid}")
    state = answer(["podman", "ps", "--all", "--format", "{{.State}}", "--filter", f"name={container}"]).strip()
    say(f"selftest: killed monitor and processes of {container}, which podman calls {state!r}")


def _foreign_process(state: State) -> bool:
    """Write a process that is not ours into the server's file, as a machine that has booted since would leave it."""
    publish.stop(state)
    with subprocess.Popen(["sleep", "600"]) as other:
        facts = {"pid": other.pid, "started": "1", "address": "127.0.0.1", "port": 1, "key": ""}
        state.publish.write_text(json.dumps(facts), encoding="utf-8")
        publish.stop(state)
        spared = other.poll() is None
        other.kill()
    return spared
