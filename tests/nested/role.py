# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's role hypervisor, applied to containers: so a hypervisor of the tests is what the role makes of a bare Debian."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import sys
import tempfile
import threading

from progress import Step, logged, step
from state import CHECKOUT, HERE, State, digest_of

ROLE = CHECKOUT / "roles" / "hypervisor"
PLAYBOOK = HERE / "prepare.yml"
# What the first part of the role, which installs the packages, is made of.
PACKAGES = (ROLE / "tasks" / "packages.yml", ROLE / "vars" / "main" / "packages.yml", PLAYBOOK)
KEPT = ("HOME", "PATH", "TMPDIR", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_environment = threading.Lock()


def packages_key() -> str:
    """Return a key that changes with what the role installs."""
    return digest_of(*PACKAGES)


def key() -> str:
    """Return a key that changes with the role."""
    return digest_of(ROLE, PLAYBOOK)


def program(state: State) -> pathlib.Path:
    """Return an ansible-playbook of the pinned tools; they are installed where neither this state folder nor the checkout has them."""
    places = [folder / "venv" / "bin" / "ansible-playbook" for folder in (state.folder, CHECKOUT / ".cache")]
    there = next((place for place in places if place.exists()), None)
    if there:
        return there
    with step("Ansible") as this:
        this.detail = "waiting for the Python environment"
        # For the user who called, whose environment it is, and not for root.
        user = os.environ.get("SUDO_UID")
        passed = [f"{name}={os.environ[name]}" for name in ("KVM2_CACHE", "KVM2_PYTHON", "PATH") if name in os.environ]
        before = ["sudo", "--set-home", "--user", f"#{user}", "env", *passed] if os.geteuid() == 0 and user else []
        logged(this, [*before, sys.executable, str(CHECKOUT / "tests" / "tools"), "venv"], state.logs / "venv.log", fenced=False)
    return places[0]


def apply(state: State, this: Step, hosts: dict[str, dict], part: str, log: str) -> None:
    """Run the role, or only its part "packages", on these hosts (name → address, extra packages), at the same time on all."""
    with _environment:
        playbook = program(state)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kvm2-"))  # short: a socket's path has a limit of some hundred characters
    shared = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(state.private_key),
        "ansible_ssh_common_args": f"-F none -o 'UserKnownHostsFile=\"{state.known_hosts}\"' -o StrictHostKeyChecking=yes",
        "ansible_python_interpreter": "/usr/bin/python3",
        "nested_part": part,
    }
    lines = {name: {"ansible_host": one["address"], "hypervisor_extra_packages": list(one["extra"])} for name, one in hosts.items()}
    (folder / "inventory.json").write_text(json.dumps({"all": {"hosts": lines, "vars": shared}}), encoding="utf-8")
    env = {name: os.environ[name] for name in KEPT if name in os.environ} | {
        "ANSIBLE_ROLES_PATH": str(CHECKOUT / "roles"), "ANSIBLE_PIPELINING": "1", "ANSIBLE_NOCOLOR": "1", "ANSIBLE_HOST_PATTERN_MISMATCH": "error",
        # A control socket of an earlier container with this address must not be met.
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder / "cp"), "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"), "ANSIBLE_RETRY_FILES_ENABLED": "0",
        "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8",
    }
    try:
        logged(this, [str(playbook), "-i", str(folder / "inventory.json"), str(PLAYBOOK)], state.logs / log, describe=_doing, env=env)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _doing(line: str) -> str | None:
    """Return what Ansible is at, in a line of its output."""
    return line.partition("[")[2].partition("]")[0].rpartition(" : ")[2].lower() if line.startswith("TASK [") else None
