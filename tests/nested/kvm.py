# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether KVM really runs a guest here. A device that opens proves nothing: the micro guest has to come up under it."""

from __future__ import annotations

import json
import os
import pathlib
import secrets

from guest import NAME
from progress import answer, step
from state import State, digest_of, write_whole

LIMIT = 12  # seconds; where KVM works, userland is reached within two
SCRIPT = """
timeout -s KILL {limit} qemu-system-x86_64 -accel kvm -cpu host -m 256 -display none -nodefaults -snapshot -serial stdio \
    -drive file=/images/{name},format=qcow2,if=virtio < /dev/null 2>&1 | grep -m 1 'micro: userland'
"""


def proven(state: State, image: str) -> bool:
    """Return whether KVM runs the micro guest; the answer is remembered until the machine boots again."""
    if not os.path.exists("/dev/kvm"):
        return False
    memory = state.nested / "kvm.json"
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    key = digest_of(boot, os.uname().release, SCRIPT, LIMIT)
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
        if known["key"] == key:
            return known["works"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass
    with step("kvm: booting the micro guest under it to see whether it works") as this:
        name = f"{state.prefix}-kvm-{secrets.token_hex(3)}"
        said = answer(
            ["podman", "--runtime", "runc", "run", "--rm", "--privileged", "--init", "--network", "none", "--name", name,
             "--label", state.label, "--ulimit", "nofile=8192:8192", "--ulimit", "nproc=8192:8192",
             "--volume", f"{state.images}:/images:ro", image, "/bin/sh", "-c", SCRIPT.format(limit=LIMIT, name=NAME)],
            timeout=LIMIT + 30, check=False,
        )
        works = "micro: userland" in said
        this.detail = "works" if works else "does not work"
    write_whole(memory, json.dumps({"key": key, "works": works}) + "\n")
    return works
