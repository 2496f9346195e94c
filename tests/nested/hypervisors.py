# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hypervisors as podman containers: brought up, kept while they are well, replaced when they are not, taken down."""

from __future__ import annotations

import concurrent.futures
import os
import re
import shutil

import access
import containers
import inventory
import kvm
import publish
import role
import roots
from access import says, ssh_command
from progress import Failure, answer, say, step, wait_until
from state import HERE, State, digest_of, remove

READY = 60  # seconds until a new hypervisor has to answer
ANSWERS = "virsh -q list >/dev/null && echo answers"
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
    access.ensure(state)
    gateway = containers.network(state)
    works = kvm.proven(state, next(iter(images.values())))
    with step(f"hypervisors {', '.join(plan)}") as this:
        server = _published(state, gateway)
        how = digest_of(works, role.key(), *(state.shared / name for name in ("entry.sh", "authorized_keys", "ssh_host_ed25519_key")))
        wanted = {name: digest_of(name, images[release], how) for name, release in plan.items()}
        this.detail = "looking at what runs"
        found = {one["name"]: one for one in containers.listed(state)}
        hosts = _kept(state, [one for name, one in found.items() if name not in plan])
        this.detail = "starting what is missing"

        def address_of(name: str) -> str:
            return _found(state, name, wanted[name], found.get(name))

        def start(name: str) -> str:
            return _started(state, name, plan[name], images[plan[name]], wanted[name], works)

        with concurrent.futures.ThreadPoolExecutor() as pool:
            addresses = dict(zip(plan, pool.map(address_of, plan), strict=True))
            missing = [name for name in plan if not addresses[name]]
            new = dict(zip(missing, pool.map(start, missing), strict=True))
        if new:
            _prepared(state, plan, new)
        for name, release in plan.items():
            address = addresses[name] or new[name]
            hosts[name] = {"address": address, "release": release, "container": f"{state.prefix}-{name}"}
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
        address = containers.address(one["container"]) if one["running"] else ""
        if address and well(state, address):
            kept[one["name"]] = {"address": address, "release": one["release"], "container": one["container"]}
        else:
            say(f"{one['name'] or one['container']}: it does not answer and was not asked for; it is removed")
            containers.drop(state, one)
    return kept


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


def _found(state: State, name: str, key: str, found: dict | None) -> str:
    """Return the address of a hypervisor that runs already, is the right one and is well; another one of that name is removed."""
    if not found:
        return ""
    address = containers.address(found["container"]) if found["running"] and found["key"] == key else ""
    if address and well(state, address):
        return address
    say(f"{name}: {'there is another version of it' if found['key'] != key else 'it does not answer'}; it is replaced")
    containers.drop(state, found)
    return ""


def _started(state: State, name: str, release: str, image: str, key: str, works: bool) -> str:
    """Start a hypervisor, as bare as the role left it in its image; return its address once its daemon answers."""
    container = f"{state.prefix}-{name}"
    volume = f"{container}-images"
    answer(["podman", "volume", "rm", "--force", volume], check=False)
    answer(["podman", "volume", "create", "--label", state.label, volume])
    labels = {"egress.kvm2.host": name, "egress.kvm2.key": key, "egress.kvm2.release": release}
    options = ["--privileged", "--volume", f"{volume}:/var/lib/libvirt/images"]
    options += [word for label, value in labels.items() for word in ("--label", f"{label}={value}")]
    address = containers.run(state, name, image, options, "kvm" if works else "no-kvm")
    _wait(state, name, lambda: says(state, address, ANSWERS) == "answers", f"{name} answer on {address}")
    return address


def _prepared(state: State, plan: dict[str, str], addresses: dict[str, str]) -> None:
    """Let the role hypervisor do the rest of its work on new hypervisors."""
    with step(f"role hypervisor on {', '.join(addresses)}") as this:
        hosts = {name: {"address": address, "extra": roots.find(plan[name]).extra} for name, address in addresses.items()}
        role.apply(state, this, hosts, "main", "role.log")
    for name, address in addresses.items():
        _wait(state, name, lambda address=address: well(state, address), f"the default network and pool of {name}")


def _wait(state: State, name: str, condition, what: str) -> None:
    try:
        wait_until(condition, READY, what)
    except Failure as reason:
        container = f"{state.prefix}-{name}"
        raise Failure(f"{reason} The end of `podman logs {container}`:\n{containers.log_of(container)}") from reason


def well(state: State, address: str) -> bool:
    """Return whether ssh, libvirtd, its network and its pool are all there."""
    return says(state, address, WELL) == "well"


def down(state: State, hosts: tuple[str, ...] = ()) -> None:
    """Stop and remove the hypervisors and the publish server; with hosts, only these hypervisors."""
    if shutil.which("podman"):
        found = [one for one in containers.listed(state) if not hosts or one["name"] in hosts]
        if found:
            with step(f"stopping {', '.join(sorted(one['name'] or one['container'] for one in found))}"):
                for one in found:
                    containers.drop(state, one)
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
        names = answer(["podman", "images", "--format", "{{.Repository}}:{{.Tag}}", "--filter", f"reference=localhost/{state.prefix}-*"])
        for name in state.own_images(names.split()):
            answer(["podman", "rmi", name])  # never forced: of a copied state folder the image is one and the same, and may be in use
    for folder in (state.roots, state.images, state.nested):
        remove(folder)


def status(state: State) -> int:
    """Print what runs; return 0 when all of it is well."""
    server = publish.running(state)
    print("publish server: " + (f"http://{server['address']}:{server['port']}" if server else "does not run"))
    good = bool(server)
    found = containers.listed(state) if shutil.which("podman") else []
    for one in sorted(found, key=lambda one: one["name"]):
        address = containers.address(one["container"]) if one["running"] else ""
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
