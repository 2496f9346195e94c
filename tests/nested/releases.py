# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs between the Debian releases a hypervisor can be made of: all of it is in this table."""

from __future__ import annotations

import dataclasses

COMMON = (
    "dnsmasq-base",
    "iproute2",
    "iptables",
    "libvirt-clients",
    "libvirt-daemon-system",
    "nftables",
    "openssh-server",
    "procps",
    "python3",
    "python3-libvirt",
    "python3-lxml",
    "python3-pycdlib",
    "qemu-system-x86",
    "qemu-utils",
)


@dataclasses.dataclass(frozen=True)
class Release:
    """One Debian release as a hypervisor: packages beside the common ones, and apt options while it is built."""

    name: str
    version: str
    extra: tuple[str, ...] = ()
    apt_options: tuple[str, ...] = ()

    @property
    def packages(self) -> tuple[str, ...]:
        """Return every package asked for."""
        return COMMON + self.extra


RELEASES = {
    release.name: release
    for release in (
        # Its virt-xml-validate calls xmllint, which its package only suggests.
        Release("bookworm", "12", extra=("libxml2-utils",)),
        Release("trixie", "13"),
        # The Release file of a release in the making can be past its date.
        Release("forky", "14", apt_options=('Acquire::Check-Valid-Until "false"',)),
    )
}
DEFAULT = "trixie"
