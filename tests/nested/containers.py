# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The podman containers of a state folder: started, listed and removed, also where their processes vanished behind podman's back."""

from __future__ import annotations

import json

from progress import Failure, answer
from state import State

ENTRY = ("/bin/sh", "/etc/kvm2-nested/entry.sh")


def network(state: State) -> str:
    """Create our podman network where it is missing; return the address of its gateway."""

    def gateway() -> str:
        text = answer(["podman", "network", "inspect", state.prefix], check=False)
        return json.loads(text)[0]["subnets"][0]["gateway"] if text else ""

    if not gateway():
        answer(["podman", "network", "create", "--label", state.label, "--disable-dns", state.prefix])
    return gateway()


def listed(state: State) -> list[dict]:
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


def run(state: State, name: str, image: str, options: list[str], mode: str) -> str:
    """Start a container of that host name with our entry script in this mode; return its address."""
    container = f"{state.prefix}-{name}"
    answer([
        "podman", "--runtime", "runc", "run", "--detach", "--init", "--name", container, "--hostname", name, "--label", state.label,
        "--network", state.prefix, "--ulimit", "nofile=8192:8192", "--ulimit", "nproc=8192:8192",
        "--volume", f"{state.shared}:/etc/kvm2-nested:ro", *options, image, *ENTRY, mode,
    ])
    found = address(container)
    if not found:
        raise Failure(f"Failed to find the address of {container}: it has ended. `podman logs {container}` tells why.")
    return found


def address(container: str) -> str:
    """Return the address podman gave the container; empty when it has none."""
    wanted = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    return answer(["podman", "inspect", "--format", wanted, container], check=False).strip()


def log_of(container: str) -> str:
    """Return the last lines of a container's output."""
    return answer(["podman", "logs", "--tail", "15", container], check=False)


def drop(state: State, one: dict) -> None:
    """Remove a container and its volume, also where its processes have vanished without podman's knowledge."""
    answer(["podman", "rm", "--force", "--time", "0", "--volumes", one["id"]], check=False)
    if any(left["id"] == one["id"] for left in listed(state)):
        # The runtime's record of a container whose processes were killed can be in the way.
        answer(["runc", "delete", "--force", one["id"]], check=False)
        answer(["podman", "container", "cleanup", one["id"]], check=False)
        answer(["podman", "rm", "--force", "--time", "0", one["id"]])
    answer(["podman", "volume", "rm", "--force", f"{one['container']}-images"], check=False)
