# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the harness keeps its files, what its things on this machine are called, and the lock around them."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil

from progress import say

HERE = pathlib.Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent


class State:
    """The state folder and the names derived from it.

    The tag is a hash of the folder's path: two checkouts on one machine never share a container, a network or an image.
    """

    def __init__(self) -> None:
        given = os.environ.get("KVM2_CACHE")
        self.folder = pathlib.Path(os.path.realpath(given if given else CHECKOUT / ".cache"))
        self.tag = hashlib.sha256(str(self.folder).encode()).hexdigest()[:6]
        self.prefix = f"kvm2-{self.tag}"
        self.label = f"egress.kvm2.nested={self.tag}"
        self.roots = self.folder / "roots"
        self.images = self.folder / "images"
        self.nested = self.folder / "nested"
        self.shared = self.nested / "host"  # mounted read-only into every hypervisor
        self.logs = self.nested / "logs"
        self.private_key = self.nested / "id_ed25519"
        self.known_hosts = self.nested / "known_hosts"
        self.inventory = self.nested / "inventory.yml"
        self.facts = self.nested / "state.json"
        self.publish = self.nested / "publish.json"

    def own_images(self, names: list[str]) -> list[str]:
        """Return those of the images' names that are ours: podman's filter also answers with the other names of an image that has one of them."""
        return [name for name in names if name.startswith(f"localhost/{self.prefix}-")]

    def make_folders(self) -> None:
        """Create the folders that are missing."""
        for folder in (self.roots, self.images, self.nested, self.shared, self.logs):
            folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def locked(self):
        """Hold the state folder's lock; a second command waits and says so. The kernel drops it when the holder dies."""
        self.make_folders()
        with open(self.folder / "lock", "a+", encoding="utf-8") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                handle.seek(0)
                say(f"waiting for process {handle.read().strip() or '?'}, which works on {self.folder}")
                fcntl.flock(handle, fcntl.LOCK_EX)
            handle.truncate(0)
            handle.write(f"{os.getpid()}\n")
            handle.flush()
            self._sweep()
            yield

    def _sweep(self) -> None:
        """Remove what a killed command left half-made: only the lock's holder makes such files, so none is in use."""
        for folder in (self.roots, self.images, self.nested):
            for left in folder.glob("*.part"):
                remove(left)

    def hand_over(self) -> None:
        """Under sudo, give the files a user needs (key, inventory) to the user who called."""
        uid, gid = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
        if os.geteuid() != 0 or uid is None or gid is None:
            return
        for path in (self.folder, self.nested, *self.nested.iterdir(), self.images, *self.images.iterdir()):
            if path != self.shared:
                os.chown(path, int(uid), int(gid))


def remove(path: pathlib.Path) -> None:
    """Remove a file or a folder with all in it; nothing there is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_whole(path: pathlib.Path, text: str, mode: int = 0o644) -> bool:
    """Write a small file by rename, so that no reader ever sees half of it; return whether the content changed."""
    try:
        if path.read_text(encoding="utf-8") == text and path.stat().st_mode & 0o777 == mode:
            return False
    except FileNotFoundError:
        pass
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.chmod(mode)
    part.replace(path)
    return True


def digest_of(*parts: object) -> str:
    """Return a short hash of texts, files and folders of files: the key under which a built thing is cached."""
    total = hashlib.sha256()
    for part in parts:
        files = [part] if not isinstance(part, pathlib.Path) or part.is_file() else sorted(p for p in part.rglob("*") if p.is_file())
        for one in files:
            data = one.read_bytes() if isinstance(one, pathlib.Path) else str(one).encode()
            total.update(len(data).to_bytes(8, "big") + data)
    return total.hexdigest()[:12]
