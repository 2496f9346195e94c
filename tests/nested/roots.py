# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hypervisor's root file system: a bare Debian by mmdebstrap, the packages by the role hypervisor; kept as a tar file, imported into podman."""

from __future__ import annotations

import os
import pathlib
import threading

import access
import containers
import role
from progress import Failure, Step, answer, logged, step, wait_until
from releases import BARE, RELEASES, Release
from state import State, digest_of, remove

# Only what nobody reads in a hypervisor that lives for an afternoon.
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*")
OPTIONS = ("--mode=root", "--variant=apt", '--aptopt=Acquire::Languages "none"', "--dpkgopt=force-unsafe-io")
IN_MEMORY = 6 * 1024**3  # bytes of free memory from which on the root is unpacked in memory: that takes two thirds of the time
STRIP = "rm -rf /root/.ssh /root/.ansible /etc/ssh/ssh_host_* && find /var/lib/apt/lists /var/cache/apt -type f -delete"
_reachable = threading.Lock()  # roots are built at the same time; keys and network are made once


def key_of(release: Release) -> str:
    """Return the key of a release's root: other packages, another role or another way to build gives another one."""
    return digest_of(release.name, BARE, release.extra, release.apt_options, LEFT_OUT, OPTIONS, STRIP, role.packages_key())


def image_of(state: State, release: Release) -> str:
    """Return the podman image's name."""
    return f"localhost/{state.prefix}-root:{release.name}-{key_of(release)}"


def ensure(state: State, release: Release) -> str:
    """Build and import what is missing; return the podman image's name."""
    image = image_of(state, release)
    if answer(["podman", "image", "inspect", "--format", "{{.Id}}", image], check=False):
        return image
    tar = state.roots / f"{release.name}-{key_of(release)}.tar"
    if not tar.exists():
        _build(state, release, tar)
    with step(f"root {release.name}: import") as this:
        _import(state, this, tar, image, release)
        for other in answer(["podman", "images", "--format", "{{.Repository}}:{{.Tag}}"]).split():
            if other != image and other.startswith(f"localhost/{state.prefix}-root:{release.name}-"):
                answer(["podman", "rmi", other], check=False)  # one that a hypervisor still uses stays until the next time
    return image


def find(name: str) -> Release:
    """Return the release of that name."""
    if name not in RELEASES:
        raise Failure(f"Failed to find a release named {name!r}: hypervisors are made of {', '.join(RELEASES)}. Name one of these.")
    return RELEASES[name]


def _import(state: State, this: Step, tar: pathlib.Path, image: str, release: Release) -> None:
    this.detail = "podman takes it over"
    logged(this, ["podman", "import", "--quiet", str(tar), image], state.logs / f"import-{release.name}.log", fenced=False)


def _build(state: State, release: Release, tar: pathlib.Path) -> None:
    bare = state.roots / f"{release.name}-bare.tar.part"
    part = tar.with_name(tar.name + ".part")
    command = ["mmdebstrap", *OPTIONS, f"--include={','.join(BARE)}", "--format=tar"]
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    command += [f"--aptopt={option}" for option in release.apt_options]
    with step(f"root {release.name}: a bare Debian") as this:
        unpacked(state, this, [*command, release.name, str(bare)], f"root-{release.name}")
    with step(f"root {release.name}: the role hypervisor installs its packages") as this:
        _prepare(state, this, release, bare, part)
        part.replace(tar)
        for other in state.roots.glob(f"{release.name}-*.tar"):
            if other != tar:
                remove(other)


def _prepare(state: State, this: Step, release: Release, bare: pathlib.Path, part: pathlib.Path) -> None:
    """Turn the tar file of a bare Debian into that of a hypervisor, in a container that may reach the package archive but not this machine."""
    image = f"localhost/{state.prefix}-bare:{release.name}"
    name = f"build-{release.name}"
    with _reachable:
        access.ensure(state)
        containers.network(state)
    _forget(state, name, image)
    _import(state, this, bare, image, release)
    remove(bare)
    try:
        address = containers.run(state, name, image, [], "bare")
        try:
            wait_until(lambda: access.says(state, address, "echo here") == "here", 60, f"{name} answer on {address}")
        except Failure as reason:
            raise Failure(f"{reason} The end of its output:\n{containers.log_of(f'{state.prefix}-{name}')}") from reason
        role.apply(state, this, {name: {"address": address, "extra": release.extra}}, "packages", f"role-{release.name}.log")
        this.detail = "keeping it"
        answer(["podman", "exec", f"{state.prefix}-{name}", "sh", "-c", STRIP], timeout=300)
        answer(["podman", "export", "--output", str(part), f"{state.prefix}-{name}"], timeout=300)
    finally:
        _forget(state, name, image)


def _forget(state: State, name: str, image: str) -> None:
    """Remove the container and the image of a build, also those of one that was killed."""
    for one in containers.listed(state):
        if one["container"] == f"{state.prefix}-{name}":
            containers.drop(state, one)
    answer(["podman", "rmi", "--ignore", image], check=False)


def unpacked(state: State, this, command: list[str], name: str) -> None:
    """Run mmdebstrap with its temporary folder in memory where there is enough of it, else in the state folder."""
    folder = state.roots / f"{name}.part"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    if _free_memory() > IN_MEMORY:
        # The mount lives in the command's own namespace, and goes with it.
        command = ["sh", "-c", 'mount -t tmpfs -o mode=755,size=90% tmpfs "$TMPDIR" && exec "$@"', "sh", *command]
    logged(this, command, state.logs / f"{name}.log", describe=_doing, env=dict(os.environ, TMPDIR=str(folder)))
    folder.rmdir()


def _free_memory() -> int:
    """Return the bytes of memory that programs can have without swapping."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)


def _doing(line: str) -> str | None:
    """Return what mmdebstrap says it does, in a line of its log."""
    return line[3:].rstrip(". ") if line.startswith("I: ") else None
