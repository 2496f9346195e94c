# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Debian packages that the harness needs on the machine it runs on."""

from __future__ import annotations

import os

from progress import Failure, answer, logged, say, step

NEEDED = {
    "mmdebstrap": "mmdebstrap",
    "debian-archive-keyring": "/usr/share/keyrings/debian-archive-keyring.gpg",
    "podman": "podman",
    "runc": "runc",
    "catatonit": "catatonit",
    "netavark": "/usr/lib/podman/netavark",
    "iptables": "iptables",  # what netavark makes its rules with
    "iproute2": "ip",
    "util-linux": "setpriv",
    "fdisk": "sfdisk",
    "mtools": "mcopy",
    "syslinux": "syslinux",
    "syslinux-common": "/usr/lib/syslinux/mbr/gptmbr.bin",
    "qemu-utils": "qemu-img",
    "openssh-client": "ssh-keygen",
}


def missing() -> list[str]:
    """Return the packages of which the program or file that we use is not there."""
    folders = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

    def there(wanted: str) -> bool:
        places = [wanted] if wanted.startswith("/") else [f"{folder}/{wanted}" for folder in folders]
        return any(os.path.exists(place) for place in places)

    return [package for package, wanted in NEEDED.items() if not there(wanted)]


def ensure(state) -> None:
    """Install what is missing; say nothing when nothing is."""
    wanted = missing()
    if not wanted:
        return
    if not os.path.exists("/usr/bin/apt-get"):
        raise Failure(f"Failed to install {', '.join(wanted)}: this is no Debian system. The nested hypervisors need Debian 12 or newer.")
    state.make_folders()
    say(f"packages: missing here: {', '.join(wanted)}")
    with step("packages") as this:
        env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        options = ["-q", "-o", "DPkg::Lock::Timeout=300"]
        this.detail = "reading package lists"
        logged(this, ["apt-get", *options, "update"], state.logs / "packages-update.log", env=env, fenced=False)
        this.detail = "installing"
        # Not fenced: dpkg, cut off in the middle, would leave the machine's packages half configured.
        logged(
            this, ["apt-get", *options, "install", "-y", "--no-install-recommends", *wanted], state.logs / "packages.log",
            describe=lambda line: line if line.startswith(("Unpacking", "Setting up")) else None, env=env, fenced=False,
        )
    left = missing()
    if left:
        raise Failure(f"Failed to install {', '.join(left)}: apt-get says it did, but their programs are not there.")
    answer(["podman", "--version"])
