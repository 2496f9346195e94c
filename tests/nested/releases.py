# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs between the Debian releases a hypervisor can be made of: all of it is in this table."""

from __future__ import annotations

import dataclasses

# A bare host as the role hypervisor expects it, which then installs the rest; and tools that tests call on it.
BARE = ("iproute2", "openssh-server", "procps", "python3")


@dataclasses.dataclass(frozen=True)
class Release:
    """One Debian release as a hypervisor: packages that only the tests need there, and apt options."""

    name: str
    version: str
    libvirt: str  # the version it comes with, as far as tests may count on it
    extra: tuple[str, ...] = ()
    apt_options: tuple[str, ...] = ()


RELEASES = {
    release.name: release
    for release in (
        # Its virt-xml-validate calls xmllint, which its package only suggests.
        Release("bookworm", "12", libvirt="9.0", extra=("libxml2-utils",)),
        Release("trixie", "13", libvirt="11.3"),
        # The Release file of a release in the making can be past its date. Its openssh-server brings no client, which qemu+ssh needs.
        Release("forky", "14", libvirt="12", extra=("openssh-client",), apt_options=('Acquire::Check-Valid-Until "false"',)),
    )
}
DEFAULT = "trixie"
