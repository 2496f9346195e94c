# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One line for each destructive step in the system log of the machine the module runs on, whatever no_log says: it holds nothing secret."""

from __future__ import annotations

import os
import pwd
import socket

# systemd's journal and every syslog daemon listen here.
SOCKET = "/dev/log"
# Facility user (1), severity notice (5).
_PRIORITY = 1 * 8 + 5
_LONGEST = 8000
# A log that does not take the line at once does without it.
_PATIENCE = 1.0


class Journal:
    """tag: what the lines begin with, such as the module's name.  who: on whose behalf it acts."""

    def __init__(self, tag, who, path=SOCKET):
        self._tag, self._who, self._path = tag, who, path

    def note(self, what, why=""):
        """Write "tag[pid]: what, for who: why". Without a log nothing happens: no step fails because it cannot be told."""
        text = f"{what}, for {self._who}" + (f": {why}" if why else "")
        line = f"<{_PRIORITY}>{self._tag}[{os.getpid()}]: {' '.join(text.split())}"
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
                log.settimeout(_PATIENCE)
                log.connect(self._path)
                log.send(line.encode("utf-8", "replace")[:_LONGEST])
        except OSError:
            pass


def who(environment=None, uid=None):
    """The user the process runs as, who became that user, and where the connection came from, as far as they can be told."""
    environment = os.environ if environment is None else environment
    try:
        name = pwd.getpwuid(os.getuid() if uid is None else uid).pw_name
    except KeyError:
        name = f"uid {os.getuid() if uid is None else uid}"
    origin = environment.get("SUDO_USER") or environment.get("DOAS_USER")
    if origin and origin != name:
        name += f" (by {origin})"
    peer = environment.get("SSH_CONNECTION", "").split(" ")[0]
    return name + (f" from {peer}" if peer else "")
