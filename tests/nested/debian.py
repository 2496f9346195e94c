# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Debian guest's image: cloud-init and the three engines, booted by BIOS (syslinux) and by UEFI (systemd-boot)."""

from __future__ import annotations

import pathlib

import disk
import images
from disk import MIB, SECTOR, START
from progress import step
from roots import LEFT_OUT, OPTIONS, unpacked
from state import HERE, State, digest_of, remove

RELEASE = "bookworm"
NAME = "debian-12"
PACKAGES = (
    "ca-certificates", "cloud-guest-utils", "cloud-init", "dante-server", "dbus", "e2fsprogs", "fdisk", "iproute2", "libpam-systemd",
    "linux-image-cloud-amd64", "lz4", "netplan.io", "openssh-server", "qemu-guest-agent", "squid", "sudo", "systemd-boot-efi",
    "systemd-resolved", "systemd-sysv", "tinyproxy", "udev",
)
SIZE = 1536 * MIB
BOOT = 64 * MIB  # the partition of the boot loaders, with the kernel and the initramfs that both of them load
ROOT = START + BOOT
BLOCK = 4096
ROOT_PART = "64656269-616e-4775-8573-740000000002"  # /etc/fstab has it too
TABLE = """label: gpt
label-id: 64656269-616e-4775-8573-740000000000
start={start}, size={boot}, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, uuid=64656269-616e-4775-8573-740000000001, name=boot,\
 attrs=LegacyBIOSBootable
start={root}, size={rest}, type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709, uuid={root_part}, name=root
"""
# The guest of tests is emulated and alone on its processor: what guards one process from another costs it a third of its speed.
COMMAND_LINE = (
    f"root=PARTUUID={ROOT_PART} rw console=tty0 console=ttyS0,115200 quiet loglevel=4 panic=5 no_timer_check mitigations=off"
    " random.trust_cpu=on systemd.show_status=0"
)
SYSLINUX = f"DEFAULT debian\nPROMPT 0\nTIMEOUT 0\nLABEL debian\n  LINUX /vmlinuz\n  INITRD /initrd\n  APPEND {COMMAND_LINE}\n"
ENTRY = f"title Debian\nlinux /vmlinuz\ninitrd /initrd\noptions {COMMAND_LINE}\n"


def key() -> str:
    """Return the key of the image: whatever goes into it gives another one."""
    return digest_of(RELEASE, PACKAGES, LEFT_OUT, OPTIONS, *(HERE / name for name in ("debian.py", "disk.py", "debian")))


def ensure(state: State) -> pathlib.Path:
    """Build and publish what is missing; return the image's path."""
    if images.current(state, NAME, key()):
        return images.path_of(state, NAME)
    raw = state.images / f"{NAME}.raw.part"
    folder = state.images / f"{NAME}.boot.part"
    remove(folder)
    folder.mkdir()
    with step("Debian guest image") as this:
        this.detail = "making the disk"
        rest = SIZE - MIB - ROOT
        sectors = {"start": START, "boot": BOOT, "root": ROOT, "rest": rest}
        disk.partitioned(raw, SIZE, TABLE.format(root_part=ROOT_PART, **{name: size // SECTOR for name, size in sectors.items()}))
        _root(state, this, raw, folder, rest)
        this.detail = "writing the boot loaders"
        kernel, initrd, efi = ((folder / name).read_bytes() for name in ("vmlinuz", "initrd", "boot.efi"))
        disk.fat(raw, BOOT, "BOOT", "64656269", {
            "vmlinuz": kernel, "initrd": initrd, "syslinux.cfg": SYSLINUX.encode(), "EFI/BOOT/BOOTX64.EFI": efi,
            "loader/loader.conf": b"default debian\ntimeout 0\n", "loader/entries/debian.conf": ENTRY.encode(),
        })
        remove(folder)
        this.detail = "compressing"
        return images.publish(state, NAME, key(), raw, compress=True)


def _root(state: State, this, raw: pathlib.Path, folder: pathlib.Path, size: int) -> None:
    """Build the root and write its file system (size in bytes) to its place on the disk; kernel and initramfs go into the folder."""
    ours = HERE / "debian"
    hooks = [f"--essential-hook=sync-in {ours / 'root'} /", f"--customize-hook={ours / 'customize.sh'}"]
    debstrap = ["mmdebstrap", *OPTIONS, *hooks, "--format=directory", f"--include={','.join(PACKAGES)}"]
    debstrap += [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    script = ["sh", str(ours / "build.sh"), str(raw), str(ROOT), str(size // BLOCK), str(folder)]
    unpacked(state, this, [*script, *debstrap, RELEASE], NAME)
