# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The micro guest's image: Debian's cloud kernel, a busybox initramfs and tinyproxy behind a BIOS boot loader."""

from __future__ import annotations

import pathlib

import disk
import images
from disk import MIB, SECTOR, START
from guestfs import ENGINES, engine, initramfs, kernel_of
from progress import step
from roots import OPTIONS, unpacked
from state import HERE, State, digest_of, remove

RELEASE = "bookworm"  # its kernel needs little more than half the processor time of trixie's until it runs a program under emulation
PACKAGES = ("busybox-static", "dante-server", "linux-image-cloud-amd64", "qemu-guest-agent", "squid", "tinyproxy-bin")
MERGED = "/usr/share/mmdebstrap/hooks/merged-usr"
NAME = "micro.qcow2"
SIZE = 64 * MIB
TABLE = """label: gpt
label-id: 6D696372-6F20-4775-8573-740000000000
start={start}, size={size}, type=EBD0A0A2-B9E5-4433-87C0-68B6B72699C7, uuid=6D696372-6F20-4775-8573-740000000001, name=micro,\
 attrs=LegacyBIOSBootable
"""
COMMAND_LINE = "console=ttyS0 quiet loglevel=4 panic=5 no_timer_check noreplace-smp mitigations=off tsc=reliable random.trust_cpu=on"
LOADER = f"DEFAULT micro\nPROMPT 0\nTIMEOUT 0\nLABEL micro\n  LINUX /vmlinuz\n  INITRD /initrd\n  APPEND {COMMAND_LINE}\n"


def key() -> str:
    """Return the key of the image: whatever goes into it gives another one."""
    sources = [HERE / name for name in ("guest.py", "guestfs.py", "cpio.py", "disk.py", "guest")]
    return digest_of(RELEASE, PACKAGES, OPTIONS, *sources)


def ensure(state: State) -> pathlib.Path:
    """Build and publish what is missing; return the image's path."""
    if images.current(state, "micro", key()):
        return images.path_of(state, "micro")
    root = _packages(state)
    with step("guest image") as this:
        raw = state.images / f"{NAME}.raw.part"
        this.detail = "collecting the initramfs"
        # Nothing is compressed: unpacking it costs the guest more than reading it.
        _disk(raw, {"vmlinuz": kernel_of(root), "initrd": initramfs(root), **{f"{name}.cpio": engine(root, name) for name in ENGINES}})
        this.detail = "converting"
        return images.publish(state, "micro", key(), raw)


def _packages(state: State) -> pathlib.Path:
    """Return a folder that holds the packages, unpacked and not set up."""
    root = state.roots / f"guest-{digest_of(RELEASE, PACKAGES, OPTIONS)}"
    if root.exists():
        return root
    part = root.with_name(root.name + ".tree.part")
    remove(part)
    with step("guest packages") as this:
        command = ["mmdebstrap", *OPTIONS, "--variant=extract", f"--hook-dir={MERGED}", "--format=directory"]
        command.append(f"--include={','.join(PACKAGES)}")
        unpacked(state, this, [*command, RELEASE, str(part)], "guest")
        part.replace(root)
        for other in state.roots.glob("guest-*"):
            if other != root:
                remove(other)
    return root


def _disk(raw: pathlib.Path, files: dict[str, bytes]) -> None:
    """Write the disk: GPT, boot code, and one FAT partition with boot loader, kernel, initramfs and engines."""
    size = SIZE - MIB - START
    disk.partitioned(raw, SIZE, TABLE.format(start=START // SECTOR, size=size // SECTOR))
    disk.fat(raw, size, "MICRO", "6d696372", {**files, "syslinux.cfg": LOADER.encode()})
