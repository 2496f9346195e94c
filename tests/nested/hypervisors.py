# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hypervisors as podman containers: brought up, kept while they are well, replaced when they are not, taken down."""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
import shutil

import inventory
import kvm
import publish
import roots
from progress import Failure, answer, say, step, wait_until
from state import HERE, State, digest_of, remove, write_whole

READY = 60  # seconds until a new hypervisor has to answer
WELL = (
    "virsh -q list >/dev/null && virsh -q net-info default | grep -q '^Active: *yes'"
    " && virsh -q pool-info default | grep -q '^State: *running' && echo well"
)
LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"


def parse(hosts: str, release: str) -> dict[str, str]:
    """Return host → release for what the command line asks for."""
    names = [name.strip() for name in hosts.split(",")]
    for name in names:
        if not re.fullmatch(LABEL, name) or len(name) > 32:
            raise Failure(f"Failed to read --hosts: {name!r} is no host name. Use lower-case letters, digits and dashes: --hosts hv1,hv2")
    plan = dict.fromkeys(names, "")
    for part in release.split(","):
        host, equals, value = part.strip().rpartition("=")
        if equals and host not in plan:
            raise Failure(f"Failed to read --release: {host!r} is not among the hosts {', '.join(plan)}.")
        for name in [host] if equals else [one for one in plan if not plan[one]]:
            plan[name] = roots.find(value).name
    without = [name for name, value in plan.items() if not value]
    if without:
        raise Failure(f"Failed to read --release: it names none for {', '.join(without)}.")
    return plan


def up(state: State, plan: dict[str, str], images: dict[str, str]) -> None:
    """Have these hypervisors and the publish server running; others that are well stay."""
    _keys(state)
    gateway = _network(state)
    works = kvm.proven(state, next(iter(images.values())))
    with step(f"hypervisors {', '.join(plan)}") as this:
        server = _published(state, gateway)
        how = digest_of(works, *(state.shared / name for name in ("entry.sh", "authorized_keys", "ssh_host_ed25519_key")))
        wanted = {name: digest_of(name, images[release], how) for name, release in plan.items()}
        this.detail = "looking at what runs"
        found = {one["name"]: one for one in _containers(state)}
        hosts = _kept(state, [one for name, one in found.items() if name not in plan])
        this.detail = "starting what is missing"

        def one(name: str) -> dict:
            return _one(state, name, plan[name], images[plan[name]], wanted[name], found.get(name), works)

        with concurrent.futures.ThreadPoolExecutor() as pool:
            hosts.update(zip(plan, pool.map(one, plan), strict=True))
        hosts = dict(sorted(hosts.items()))
        inventory.write(state, hosts, server, works)
        if publish.running(state) is None:
            raise Failure(f"Failed to reach the publish server: its log is {state.logs / 'publish.log'}.")
    say("ready: " + ", ".join(f"{name} {facts['address']}" for name, facts in hosts.items()))
    say(f"inventory: {state.inventory}")


def _kept(state: State, others: list[dict]) -> dict[str, dict]:
    """Return the facts of hypervisors that were not asked for and are well; those that are not are removed."""
    kept = {}
    for one in others:
        address = _address(one["container"]) if one["running"] else ""
        if address and well(state, address):
            kept[one["name"]] = {"address": address, "release": one["release"], "container": one["container"]}
        else:
            say(f"{one['name']}: it does not answer and was not asked for; it is removed")
            _drop(state, one)
    return kept


def _keys(state: State) -> None:
    """Make the user's and the hosts' keys, once for all hosts: so known_hosts is right before the first contact."""
    for path, comment in ((state.private_key, "kvm2-nested"), (state.shared / "ssh_host_ed25519_key", "kvm2-nested-host")):
        if not path.exists() or not path.with_name(path.name + ".pub").exists():
            part = path.with_name(path.name + ".part")
            public = part.with_name(part.name + ".pub")
            for left in (part, public):
                left.unlink(missing_ok=True)
            answer(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(part)])
            public.replace(path.with_name(path.name + ".pub"))
            part.replace(path)
    kind, key = (state.shared / "ssh_host_ed25519_key.pub").read_text(encoding="ascii").split()[:2]
    write_whole(state.known_hosts, f"* {kind} {key}\n")
    write_whole(state.shared / "authorized_keys", state.private_key.with_name("id_ed25519.pub").read_text(encoding="ascii"))
    for source in (HERE / "hypervisor").iterdir():
        write_whole(state.shared / source.name, source.read_text(encoding="utf-8"), 0o755)


def _network(state: State) -> str:
    """Create our podman network where it is missing; return the address of its gateway."""

    def gateway() -> str:
        text = answer(["podman", "network", "inspect", state.prefix], check=False)
        return json.loads(text)[0]["subnets"][0]["gateway"] if text else ""

    if not gateway():
        answer(["podman", "network", "create", "--label", state.label, "--disable-dns", state.prefix])
    return gateway()


def _published(state: State, gateway: str) -> dict:
    """Have the publish server of this code and this address running; return its facts."""
    key = digest_of(HERE / "publish.py", gateway, state.images)
    facts = publish.running(state)
    if facts and facts["key"] == key:
        return facts
    publish.stop(state)
    try:
        return publish.start(state, gateway, key)
    except OSError as reason:
        raise Failure(f"Failed to start the publish server: {reason}.") from reason


def _containers(state: State) -> list[dict]:
    """Return our containers: id, container, name of the host, key, release, and whether podman thinks that it runs."""
    text = answer(["podman", "ps", "--all", "--no-trunc", "--format", "json", "--filter", f"label={state.label}"])
    return [
        {
            "id": one["Id"],
            "container": one["Names"][0],
            "name": one["Labels"].get("egress.kvm2.host", ""),
            "key": one["Labels"].get("egress.kvm2.key", ""),
            "release": one["Labels"].get("egress.kvm2.release", ""),
            "running": one["State"] == "running",
        }
        for one in json.loads(text or "[]") or []
    ]


def _one(state: State, name: str, release: str, image: str, key: str, found: dict | None, works: bool) -> dict:
    """Have one hypervisor running and well; return its facts."""
    container = f"{state.prefix}-{name}"
    facts = {"release": release, "container": container}
    if found:
        address = _address(container) if found["running"] and found["key"] == key else ""
        if address and well(state, address):
            return {"address": address, **facts}
        say(f"{name}: {'there is another version of it' if found['key'] != key else 'it does not answer'}; it is replaced")
        _drop(state, found)
    volume = f"{container}-images"
    answer(["podman", "volume", "rm", "--force", volume], check=False)
    answer(["podman", "volume", "create", "--label", state.label, volume])
    answer([
        "podman", "--runtime", "runc", "run", "--detach", "--privileged", "--init", "--name", container, "--hostname", name,
        "--label", state.label, "--label", f"egress.kvm2.host={name}", "--label", f"egress.kvm2.key={key}",
        "--label", f"egress.kvm2.release={release}",
        "--network", state.prefix, "--ulimit", "nofile=8192:8192", "--ulimit", "nproc=8192:8192",
        "--volume", f"{state.shared}:/etc/kvm2-nested:ro", "--volume", f"{volume}:/var/lib/libvirt/images",
        image, "/bin/sh", "/etc/kvm2-nested/entry.sh", "kvm" if works else "no-kvm",
    ])
    address = _address(container)
    if not address:
        raise Failure(f"Failed to find the address of {container}: it has ended. `podman logs {container}` tells why.")
    try:
        wait_until(lambda: well(state, address), READY, f"{name} answer on {address} with its default network and pool")
    except Failure as reason:
        last = answer(["podman", "logs", "--tail", "15", container], check=False)
        raise Failure(f"{reason} The end of `podman logs {container}`:\n{last}") from reason
    return {"address": address, **facts}


def _address(container: str) -> str:
    """Return the address podman gave the container; empty when it has none."""
    wanted = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    return answer(["podman", "inspect", "--format", wanted, container], check=False).strip()


def ssh_command(state: State, address: str) -> list[str]:
    """Return the ssh command line up to where the remote command goes."""
    return [
        "ssh", "-F", "none", "-i", str(state.private_key), "-o", "IdentitiesOnly=yes", "-o", f"UserKnownHostsFile={state.known_hosts}",
        "-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=5", f"root@{address}",
    ]


def well(state: State, address: str) -> bool:
    """Return whether ssh, libvirtd, its network and its pool are all there."""
    return answer([*ssh_command(state, address), "-o", "BatchMode=yes", WELL], timeout=15, check=False).strip() == "well"


def _drop(state: State, one: dict) -> None:
    """Remove a container and its volume, also where its processes have vanished without podman's knowledge."""
    answer(["podman", "rm", "--force", "--time", "0", "--volumes", one["id"]], check=False)
    if any(left["id"] == one["id"] for left in _containers(state)):
        # The runtime's record of a container whose processes were killed can be in the way.
        answer(["runc", "delete", "--force", one["id"]], check=False)
        answer(["podman", "container", "cleanup", one["id"]], check=False)
        answer(["podman", "rm", "--force", "--time", "0", one["id"]])
    answer(["podman", "volume", "rm", "--force", f"{one['container']}-images"], check=False)


def down(state: State, hosts: tuple[str, ...] = ()) -> None:
    """Stop and remove the hypervisors and the publish server; with hosts, only these hypervisors."""
    if shutil.which("podman"):
        found = [one for one in _containers(state) if not hosts or one["name"] in hosts]
        if found:
            with step(f"stopping {', '.join(sorted(one['name'] or one['container'] for one in found))}"):
                for one in found:
                    _drop(state, one)
    if not hosts:
        if shutil.which("podman"):
            for volume in answer(["podman", "volume", "ls", "--quiet", "--filter", f"label={state.label}"]).split():
                answer(["podman", "volume", "rm", "--force", volume], check=False)
        publish.stop(state)
        inventory.forget(state)
    else:
        inventory.drop(state, hosts)


def clean(state: State) -> None:
    """Remove all that the harness has ever made, and nothing else in the state folder."""
    down(state)
    if shutil.which("podman"):
        answer(["podman", "network", "rm", "--force", state.prefix], check=False)
        names = answer(["podman", "images", "--format", "{{.Repository}}:{{.Tag}}", "--filter", f"reference=localhost/{state.prefix}-root"])
        for name in names.split():
            answer(["podman", "rmi", name])  # never forced: of a copied state folder the image is one and the same, and may be in use
    for folder in (state.roots, state.images, state.nested):
        remove(folder)


def status(state: State) -> int:
    """Print what runs; return 0 when all of it is well."""
    server = publish.running(state)
    print("publish server: " + (f"http://{server['address']}:{server['port']}" if server else "does not run"))
    good = bool(server)
    found = _containers(state) if shutil.which("podman") else []
    for one in sorted(found, key=lambda one: one["name"]):
        address = _address(one["container"]) if one["running"] else ""
        good_one = bool(address) and well(state, address)
        good = good and good_one
        print(f"{one['name']}: {address or 'no address'}, {'well' if good_one else 'not well'}, container {one['container']}")
    if not found:
        print("no hypervisor runs")
    return 0 if good and found else 1


def ssh(state: State, host: str, argv: list[str]) -> int:
    """Become an ssh to that host."""
    hosts = inventory.read(state).get("hosts", {})
    if host not in hosts:
        there = f"only {', '.join(hosts)} run" if hosts else "nothing runs"
        raise Failure(f"Failed to reach {host}: {there}. `python3 tests/nested up --hosts {host}` starts it.")
    command = ssh_command(state, hosts[host]["address"])
    os.execvp("ssh", [*command, *argv] if argv else [*command[:1], "-t", *command[1:]])
