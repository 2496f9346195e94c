# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The harness tried on itself: two hypervisors, guests with each engine, and a hypervisor whose processes have all been killed."""

from __future__ import annotations

import concurrent.futures
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

IMAGES = {
    "micro": {"file": "micro.qcow2", "memory": 256, "patience": 300, "ssh": False},
    "debian": {"file": "debian-12.qcow2", "memory": 512, "patience": 1200, "ssh": True},
}
MICRO = (
    {"name": "probe", "engine": "tinyproxy", "address": ""},
    {"name": "probe-squid", "engine": "squid", "address": "192.168.122.5/24"},
    {"name": "probe-dante", "engine": "dante", "address": "192.168.122.6/24"},
)
DEBIAN = (
    {"name": "probe-bios", "engine": "squid", "address": "", "firmware": "bios"},
    {"name": "probe-efi", "engine": "dante", "address": "192.168.122.7/24", "firmware": "efi"},
)
HOSTS = ("selftest1", "selftest2")  # beside whatever else runs from this state folder


def run(state: State, up) -> int:
    """Run all of it; return the exit code."""
    with state.locked():
        _check("publish server: a process of another is never taken for ours", _foreign_process(state))
        up(state, ",".join(HOSTS), "trixie")
    facts = inventory.read(state)
    first, second = (facts["hosts"][name] for name in HOSTS)
    try:
        for wish in MICRO:
            _guest(state, facts, first["address"], {"kind": "micro", **wish})
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


def debian(state: State, up) -> int:
    """The Debian guest, booted by BIOS and by UEFI at the same time; return the exit code."""
    with state.locked():
        up(state, HOSTS[0], "trixie", "debian")
    facts = inventory.read(state)
    address = facts["hosts"][HOSTS[0]]["address"]
    try:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(lambda wish: _guest(state, facts, address, {"kind": "debian", **wish}), DEBIAN))
    finally:
        with state.locked():
            hypervisors.down(state, HOSTS[:1])
    say("selftest: the Debian guest is as it should be")
    return 0


def _guest(state: State, facts: dict, address: str, guest: dict) -> None:
    """Boot a guest on the hypervisor of that address, and judge what was seen."""
    kind, name, engine = guest["kind"], guest["name"], guest["engine"]
    image = IMAGES[kind]
    published = facts["publish_url"]
    wish = {
        "image_url": f"{published}/{image['file']}", "checksum_url": f"{published}/SHA256SUMS", "ask_url": f"{published}/whoami",
        "memory": image["memory"], "patience": image["patience"], "ssh": image["ssh"], "firmware": "bios", **guest, "kind": facts["virt_type"],
    }
    command = [*hypervisors.ssh_command(state, address), "python3", "/etc/kvm2-nested/boot_guest.py"]
    with step(f"{kind} guest {name}: {engine}, {guest.get('firmware', 'bios')}, address {guest['address'] or 'by DHCP'}"):
        seen = json.loads(answer(command, timeout=2 * image["patience"] + 300, stdin=json.dumps(wish)))
    say("\n".join("  " + line for line in seen["console"]))
    say(f"  {name}: address after {seen['addressed']:.1f} s, answer after {seen['answered']:.1f} s, off in {seen['off']:.1f} s")
    _check(f"{name}: its host name is the seed's", seen["host_name"] == name)
    _check(f"{name}: a literal block of the seed is written as it is", seen["note"])
    _check(f"{name}: the request left from the hypervisor", seen["answer"]["address"] == address)
    _check(f"{name}: {engine} refuses a wrong password", seen["wrong"] == "refused")
    if engine != "dante":
        _check(f"{name}: the request went through {engine}", engine in seen["answer"].get("Via", ""))
    if image["ssh"]:
        say("\n".join("  " + line for line in seen["login"].splitlines()))
        _check(f"{name}: its user logs in with a key, cloud-init is done, by the firmware asked for",
               seen["login"].splitlines()[:3] == ["debian", "status: done", wish["firmware"]])
        _check(f"{name}: the root has grown to the disk's 4 GiB", seen["root"] > 3.5 * 1024**3)


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
