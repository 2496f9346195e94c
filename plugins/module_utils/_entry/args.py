# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that every module with a hypervisor takes, and their values parsed once."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ansible.module_utils.basic import env_fallback

from .._policy import connection_uri
from .._policy.errors import InvalidInput
from .._policy.units import parse_duration


def connection_arguments(timeout):
    """Argument spec of the connection options; `timeout` is the default of the option of that name."""
    return {
        "uri": {"type": "str", "default": "qemu:///system", "fallback": (env_fallback, ["KVM2_URI"])},
        "connect_timeout": {"type": "str", "default": "10s"},
        "keepalive_interval": {"type": "str", "default": "5s"},
        "keepalive_count": {"type": "int", "default": 3},
        "timeout": {"type": "str", "default": timeout},
        "ssh_known_hosts": {"type": "path"},
        "ssh_jump_host": {"type": "str"},
        "exclusive": {"type": "bool", "default": False},
    }


@dataclass(frozen=True)
class Connection:
    """uri, times in seconds, and connection_uri.Ssh."""

    uri: str
    connect_timeout: float
    keepalive_interval: float
    keepalive_count: int
    timeout: float
    ssh: connection_uri.Ssh

    @property
    def is_local(self):
        return connection_uri.parse(self.uri).is_local


def parse_connection(params, longest_timeout=None):
    connect_timeout = parse_duration(params["connect_timeout"], "connect_timeout")
    interval = parse_duration(params["keepalive_interval"], "keepalive_interval")
    timeout = parse_duration(params["timeout"], "timeout")
    uri = connection_uri.parse(params["uri"])
    ssh = connection_uri.Ssh(params["ssh_known_hosts"], params["ssh_jump_host"])
    connection_uri.check_ssh(uri, ssh)
    if ssh.known_hosts is not None and not os.access(ssh.known_hosts, os.R_OK):
        raise InvalidInput(f"ssh_known_hosts {ssh.known_hosts}", "there is no such file that can be read", "It has to be on the machine the module runs on.")
    if connect_timeout <= 0 or timeout <= 0:
        raise InvalidInput("connect_timeout and timeout", "they must be longer than 0", "Give a duration such as 10s.")
    if interval < 1 or params["keepalive_count"] < 1:
        raise InvalidInput("keepalive_interval and keepalive_count", "they must be at least 1s and 1", "Leave them out for 5s and 3.")
    if longest_timeout is not None and timeout > longest_timeout:
        raise InvalidInput(
            f"timeout {params['timeout']!r}", f"it may be at most {longest_timeout / 3600:g} hours",
            "An import that runs longer could meet the collector of half-made images.")
    return Connection(params["uri"], connect_timeout, interval, params["keepalive_count"], timeout, ssh)
