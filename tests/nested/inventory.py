# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the harness tells others: an Ansible inventory, and the same facts as JSON for scripts and pytest."""

from __future__ import annotations

import json

from guest import NAME
from state import State, write_whole


def write(state: State, hosts: dict[str, dict], publish: dict, kvm: bool) -> None:
    """Write state.json and inventory.yml for these hosts (name → address, release, container)."""
    url = f"http://{publish['address']}:{publish['port']}"
    _write(state, {
        "hosts": hosts,
        "inventory": str(state.inventory),
        "private_key": str(state.private_key),
        "known_hosts": str(state.known_hosts),
        "user": "root",
        "publish_url": url,
        "publish_folder": str(state.images),
        "virt_type": "kvm" if kvm else "qemu",
        "image": {"key": "micro", "url": f"{url}/{NAME}", "checksum": f"sha256:{url}/SHA256SUMS"},
    })


def drop(state: State, names: tuple[str, ...]) -> None:
    """Take hosts out of both files."""
    facts = read(state)
    if facts:
        facts["hosts"] = {name: host for name, host in facts["hosts"].items() if name not in names}
        _write(state, facts)


def _write(state: State, facts: dict) -> None:
    options = f"-o 'UserKnownHostsFile=\"{state.known_hosts}\"' -o StrictHostKeyChecking=yes -o ControlMaster=auto -o ControlPersist=60s"
    shared = {
        "ansible_user": facts["user"],
        "ansible_ssh_private_key_file": facts["private_key"],
        "ansible_ssh_common_args": options,
        "ansible_python_interpreter": "/usr/bin/python3",
        "nested_publish_url": facts["publish_url"],
        "nested_virt_type": facts["virt_type"],
        "nested_image": facts["image"],
    }
    write_whole(state.facts, json.dumps(facts, indent=2) + "\n")
    lines = ["---", "hypervisors:", "  hosts:"]
    for name, host in facts["hosts"].items():
        lines += [f"    {name}:", f"      ansible_host: {json.dumps(host['address'])}", f"      nested_release: {host['release']}"]
    lines.append("  vars:")
    for name, value in shared.items():
        if isinstance(value, dict):
            lines += [f"    {name}:", *(f"      {inner}: {json.dumps(text)}" for inner, text in value.items())]
        else:
            lines.append(f"    {name}: {json.dumps(value)}")
    write_whole(state.inventory, "\n".join(lines) + "\n")


def read(state: State) -> dict:
    """Return the facts of state.json; empty when there are none."""
    try:
        return json.loads(state.facts.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}


def forget(state: State) -> None:
    """Remove both files: nothing runs."""
    state.inventory.unlink(missing_ok=True)
    state.facts.unlink(missing_ok=True)
