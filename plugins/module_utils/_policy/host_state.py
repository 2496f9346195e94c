# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module that runs on the hypervisor itself can see there besides libvirt: plain frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import FrozenSet, Mapping, Optional, Tuple

from .model import Node


@dataclass(frozen=True)
class User:
    """The user that QEMU runs as. name: empty where it has none."""

    uid: int
    gid: int
    groups: FrozenSet[int] = frozenset()
    name: str = ""

    def __str__(self):
        return self.name or f"uid {self.uid}"


@dataclass(frozen=True)
class Kvm:
    """node: /dev/kvm, None where it is missing.  problem: why it cannot be used, as far as this process can tell.  flags: of vmx and svm, those
    that the processor shows."""

    node: Optional[Node]
    problem: str = ""
    flags: FrozenSet[str] = frozenset()


@dataclass(frozen=True)
class GuestsService:
    """libvirt-guests, which stops guests at shutdown and may start them again at boot. file: where its settings belong."""

    enabled: bool
    on_boot: str
    on_shutdown: str
    file: str


@dataclass(frozen=True)
class Limits:
    """Of the daemon: how many clients it takes and has (None: not told), and how many of them may be waiting for their authentication.

    source: where that was read.  file: the daemon's settings.  daemon: its name.
    """

    daemon: str
    source: str
    file: str
    max_clients: int
    clients: Optional[int] = None
    max_unauthenticated: Optional[int] = None
    unauthenticated: Optional[int] = None


@dataclass(frozen=True)
class Library:
    """A Python library where the module runs. version: None where it is missing, empty where it does not tell."""

    name: str
    version: Optional[str]


@dataclass(frozen=True)
class Runtime:
    """Where the module runs. families: what its distribution calls itself and what it is like, the closest first."""

    interpreter: str
    python: str
    families: Tuple[str, ...] = ()
    libraries: Tuple[Library, ...] = ()


@dataclass(frozen=True)
class HostState:
    """bridges: name → is it up.  folders: the pool's folder and all above it.  memory_available: bytes that can be had without swapping,
    None where it cannot be told.  limits: None where they cannot be told."""

    bridges: Mapping[str, bool] = field(default_factory=dict)
    kvm: Kvm = Kvm(None)
    folders: Tuple[Node, ...] = ()
    user: Optional[User] = None
    guests: Optional[GuestsService] = None
    memory_available: Optional[int] = None
    selinux_enforcing: bool = False
