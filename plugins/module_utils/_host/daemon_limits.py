# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many clients the daemon on this machine takes: from its admin socket, else from its settings."""

from __future__ import annotations

import os
import re

from .._policy.host_state import Limits
from .host_files import read, settings

TIMEOUT = 20
# The modular daemon, where its socket is there, is what qemu:///system leads to.
DAEMONS = ("virtqemud", "libvirtd")
_SOCKETS = {"virtqemud": "run/libvirt/virtqemud-sock", "libvirtd": "run/libvirt/libvirt-sock"}
# What the daemons take where nothing is set.
_DEFAULTS = {"max_clients": 5000, "max_anonymous_clients": 20}


def limits(run_command, root="/"):
    """host_state.Limits of the system's daemon, None where there is none. run_command: AnsibleModule.run_command, or None for the settings only."""
    daemon = next((name for name in DAEMONS if os.path.exists(os.path.join(root, _SOCKETS[name]))), None)
    if daemon is None:
        return None
    file = f"etc/libvirt/{daemon}.conf"
    told = {} if run_command is None else _ask(run_command, daemon)
    if "nclients_max" in told:
        return Limits(
            daemon, "virt-admin", f"/{file}", told["nclients_max"], told.get("nclients"), told.get("nclients_unauth_max"), told.get("nclients_unauth"))
    text = read(root, file)
    if text is None:
        return None
    found = dict(_DEFAULTS, **{name: int(value) for name, value in settings(text).items() if value.isdigit()})
    return Limits(daemon, f"/{file}", f"/{file}", found["max_clients"], max_unauthenticated=found["max_anonymous_clients"])


def _ask(run_command, daemon):
    """{name: number} as virt-admin tells them, empty where it cannot."""
    try:
        code, output, _errors = run_command(
            ["timeout", str(TIMEOUT), "virt-admin", "-c", f"{daemon}:///system", "srv-clients-info", daemon], handle_exceptions=False)
    except OSError:
        return {}
    return {} if code != 0 else {name: int(number) for name, number in re.findall(r"^(\w+)\s*: (\d+)\s*$", output, re.MULTILINE)}
