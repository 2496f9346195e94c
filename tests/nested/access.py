# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys and ssh: how the harness, Ansible and the user reach the containers."""

from __future__ import annotations

from progress import answer
from state import HERE, State, write_whole


def ensure(state: State) -> None:
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
        if source.is_file():
            write_whole(state.shared / source.name, source.read_text(encoding="utf-8"), 0o755)


def ssh_command(state: State, address: str) -> list[str]:
    """Return the ssh command line up to where the remote command goes."""
    return [
        "ssh", "-F", "none", "-i", str(state.private_key), "-o", "IdentitiesOnly=yes", "-o", f"UserKnownHostsFile={state.known_hosts}",
        "-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=5", f"root@{address}",
    ]


def says(state: State, address: str, script: str) -> str:
    """Return what a shell script says there; empty where it fails or nobody answers."""
    return answer([*ssh_command(state, address), "-o", "BatchMode=yes", script], timeout=15, check=False).strip()
