# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is in the micro guest's initramfs, collected from a folder of unpacked Debian packages."""

from __future__ import annotations

import lzma
import pathlib
import re

from cpio import Archive
from progress import Failure, answer
from state import HERE

# In the order they are loaded; what they need comes before them by itself.
MODULES = (
    "virtio_pci", "virtio_blk", "virtio_net", "virtio_console", "vfat", "nls_cp437", "nls_ascii", "nls_utf8", "isofs", "button", "evdev",
    "virtio_rng", "virtio_balloon",
)
PROGRAMS = ("usr/bin/tinyproxy", "usr/sbin/qemu-ga")
# Programs, further files and folders of the engines that a guest unpacks when its seed configures them.
ENGINES = {
    "squid": (
        ("usr/sbin/squid", "usr/lib/squid/basic_ncsa_auth", "usr/lib/squid/unlinkd"),
        (
            "etc/squid/errorpage.css", "usr/share/squid/mime.conf", "usr/share/squid/icons/**/*", "usr/share/squid/errors/en/*",
            "usr/share/squid/errors/templates/*",
        ),
        ("var/log/squid", "var/spool/squid"),
    ),
    "danted": (("usr/sbin/danted",), (), ()),
}
LIBRARIES = "usr/lib/x86_64-linux-gnu"
LOADER = "lib64/ld-linux-x86-64.so.2"
FOLDERS = (
    "dev", "etc/squid", "etc/tinyproxy", "media/boot", "media/seed", "proc", "root", "run/lock", "run/tinyproxy", "sys", "tmp", "var/log/tinyproxy",
)

TEXTS = {
    "etc/passwd": "root::0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\ntinyproxy:x:100:100::/run/tinyproxy:/bin/false\n"
    "proxy:x:13:13::/var/spool/squid:/bin/false\n",
    "etc/shadow": "root::0:0:99999:7:::\n",
    "etc/group": "root:x:0:\nproxy:x:13:\ntinyproxy:x:100:\nnobody:x:65533:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}


def kernel_of(root: pathlib.Path) -> bytes:
    """Return the kernel."""
    return _one(root, "boot/vmlinuz-*").read_bytes()


def initramfs(root: pathlib.Path) -> bytes:
    """Return the initramfs, not compressed."""
    archive = Archive()
    for folder in FOLDERS:
        archive.folder(folder)
    archive.device("dev/console", 5, 1)
    for name in ("lib", "bin", "sbin"):
        archive.link(name, f"usr/{name}")
    archive.link("var/run", "../run")
    archive.link("init", "bin/busybox")
    _busybox(archive, root)
    _programs(archive, root)
    _modules(archive, root)
    for path in sorted((root / "usr/share/tinyproxy").glob("*.html")):
        archive.file(str(path.relative_to(root)), path.read_bytes())
    for name, text in TEXTS.items():
        archive.file(name, text.encode(), 0o600 if name == "etc/shadow" else 0o644)
    ours = HERE / "guest"
    for path in sorted(p for p in ours.rglob("*") if p.is_file()):
        script = path.read_bytes().startswith(b"#!")
        archive.file(str(path.relative_to(ours)), path.read_bytes(), 0o755 if script else 0o644)
    return archive.render()


def _one(root: pathlib.Path, pattern: str) -> pathlib.Path:
    found = sorted(root.glob(pattern))
    if not found:
        raise Failure(f"Failed to find {pattern} in {root}: a package has changed. Look at the package list in guest.py.")
    return found[-1]


def _busybox(archive: Archive, root: pathlib.Path) -> None:
    program = _one(root, "usr/bin/busybox")
    archive.file("usr/bin/busybox", program.read_bytes(), 0o755)
    for applet in answer([str(program), "--list-full"]).split():
        name = applet.rpartition("/")[2]
        if name != "busybox":
            archive.link(f"usr/bin/{name}", "busybox")
    archive.folder("usr/sbin")


def _programs(archive: Archive, root: pathlib.Path) -> None:
    """Add the programs and the loader with the libraries that it lists."""
    libraries = _with_libraries(archive, root, PROGRAMS)
    _add_libraries(archive, root, libraries)
    archive.file(f"usr/{LOADER}", _loader(root).read_bytes(), 0o755)
    archive.link("lib64", "usr/lib64")


def _loader(root: pathlib.Path) -> pathlib.Path:
    return (root / "usr" / LOADER) if (root / "usr" / LOADER).exists() else _one(root, f"{LIBRARIES}/ld-linux-x86-64.so.2")


def _with_libraries(archive: Archive, root: pathlib.Path, programs: tuple[str, ...]) -> set[str]:
    """Add programs; return the libraries that they need."""
    libraries: set[str] = set()
    for program in programs:
        archive.file(program, (root / program).read_bytes(), 0o755)
        listed = answer([str(_loader(root)), "--library-path", str(root / LIBRARIES), "--list", str(root / program)])
        if "not found" in listed:
            raise Failure(f"Failed to collect the libraries of {program}:\n{listed}")
        libraries |= {pathlib.Path(name).name for name in re.findall(r"^\s*(\S+\.so\S*) => ", listed, re.MULTILINE)}
    return libraries - {"linux-vdso.so.1"}


def _add_libraries(archive: Archive, root: pathlib.Path, libraries: set[str]) -> None:
    for library in sorted(libraries):
        archive.file(f"{LIBRARIES}/{library}", (root / LIBRARIES / library).read_bytes(), 0o755)


def engine(root: pathlib.Path, name: str) -> bytes:
    """Return the archive of an engine that is unpacked over the initramfs: its programs, their further libraries, its files."""
    programs, patterns, folders = ENGINES[name]
    archive = Archive()
    for folder in folders:
        archive.folder(folder)
    there = _with_libraries(Archive(), root, PROGRAMS)
    _add_libraries(archive, root, _with_libraries(archive, root, programs) - there)
    for pattern in patterns:
        for path in sorted(root.glob(pattern)):
            if path.is_file():
                archive.file(str(path.relative_to(root)), path.read_bytes())
    return archive.render()


def _modules(archive: Archive, root: pathlib.Path) -> None:
    """Add the modules, not compressed, and the list of them in the order to load them."""
    tree = _one(root, "usr/lib/modules/*/kernel").parent
    files = {path.name.split(".ko")[0].replace("-", "_"): path for path in tree.rglob("*.ko*")}
    builtin = {pathlib.Path(line).name.split(".ko")[0].replace("-", "_") for line in (tree / "modules.builtin").read_text().splitlines()}
    order: list[str] = []

    def take(name: str) -> None:
        if name in order or name in builtin:
            return
        if name not in files:
            raise Failure(f"Failed to find the kernel module {name}: it is neither in {tree} nor built into the kernel.")
        data = files[name].read_bytes()
        if files[name].suffix == ".xz":
            data = lzma.decompress(data)
        elif files[name].suffix != ".ko":
            raise Failure(f"Failed to read the kernel module {files[name]}: only .ko and .ko.xz can be read here.")
        needs = re.search(rb"(?:^|\0)depends=([^\0]*)\0", data)
        for other in needs.group(1).decode().split(",") if needs else []:
            if other:
                take(other.replace("-", "_"))
        order.append(name)
        archive.file(f"lib-modules/{name}.ko", _unsigned(data))

    for module in MODULES:
        take(module)
    archive.file("lib-modules/order", "".join(f"{name}\n" for name in order).encode())


def _unsigned(module: bytes) -> bytes:
    """Return a module without its signature, which costs the guest more to check than the rest of loading it."""
    mark = b"~Module signature appended~\n"
    if not module.endswith(mark):
        return module
    # The length of the signature is the last thing before the mark, and ends a block of 12 bytes.
    length = int.from_bytes(module[-len(mark) - 4 : -len(mark)], "big")
    return module[: -len(mark) - 12 - length]
