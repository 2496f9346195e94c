# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: storage.py puts pools on storage that stops answering, a frozen filesystem and a dead folder of FUSE, and runs modules
there: how long each took to give up, and whether a quiet second run mends what was left once the storage is back."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time

import dead_folder
import ground
from bounded import call, quiet
from forwarder import Forwarder, Place, unix_listener
from table import UPLOAD

LOOP, DISK, LOOP_POOL = f"{ground.FOLDER}/loop", f"{ground.FOLDER}/loop.img", "faults-loop"
DEAD, DEAD_POOL = f"{ground.FOLDER}/dead", "faults-dead"
READY = 20
# An empty ext4, which comes with this program: a hypervisor has no tool that makes one.
FILESYSTEM = "filesystem.gz"


@contextlib.contextmanager
def pool(name, path):
    ground.shell("virsh", "-q", "pool-define-as", name, "dir", "--target", path)
    ground.shell("virsh", "-q", "pool-start", name)
    try:
        yield
    finally:
        ground.shell("virsh", "-q", "pool-destroy", name, check=False)
        ground.shell("virsh", "-q", "pool-undefine", name, check=False)


@contextlib.contextmanager
def small_filesystem():
    os.makedirs(LOOP)
    with gzip.open(os.path.join(os.path.dirname(__file__), FILESYSTEM)) as packed, open(DISK, "wb") as file:
        shutil.copyfileobj(packed, file)
    ground.shell("mount", "-o", "loop", DISK, LOOP)
    try:
        with pool(LOOP_POOL, LOOP):
            yield
    finally:
        ground.shell("umount", LOOP)


@contextlib.contextmanager
def dying_folder():
    """Gives what makes it stop answering. Its end aborts all that hangs there."""
    os.makedirs(DEAD)
    server = subprocess.Popen([sys.executable, dead_folder.__file__, DEAD])
    try:
        until = time.monotonic() + READY
        while not os.path.ismount(DEAD):
            if time.monotonic() > until or server.poll() is not None:
                raise OSError(f"nothing is mounted on {DEAD}")
            time.sleep(0.05)
        with pool(DEAD_POOL, DEAD):
            try:
                yield lambda: server.send_signal(signal.SIGUSR1)
            finally:
                server.kill()
                server.wait()
    finally:
        ground.shell("umount", "--lazy", DEAD, check=False)


def freeze():
    ground.shell("fsfreeze", "--freeze", LOOP)


def thaw():
    ground.shell("fsfreeze", "--unfreeze", LOOP, check=False)


def judge(case, ended, hung, problems):
    """hung: when the storage stopped answering. A worker that the storage holds cannot end; it holds nothing of the module's."""
    bound, took = ground.limits.bound(ground.limits.timeout), ended.ended - hung
    problems = [one for one in ended.problems() if not one.startswith("left running")] + problems
    if took > bound:
        problems.append(f"it took {took:.1f} s of {bound} s")
    if ended.failed and ended.kind != "transient":
        problems.append(f"its kind is {ended.kind}")
    ground.tell(
        case=case, gave_up=round(took, 2), bound=bound, failed=ended.failed, kind=ended.kind, held=ended.left, msg=(ended.result or {}).get("msg", ""),
        problems=problems)
    return problems


def frozen_before(case, module, options):
    freeze()
    hung = time.monotonic()
    try:
        ended = call(module, options)
    finally:
        thaw()
    return judge(case, ended, hung, [] if ended.failed else ["it succeeded on frozen storage"])


def frozen_in_the_upload():
    path = f"{ground.SOCKETS}/frozen.sock"
    module, options = ground.image("loop-b", f"qemu+unix:///system?socket={path}")
    with Forwarder(unix_listener(path), ground.SOCKET, Place("sent", UPLOAD, 2 * 1024 ** 2), freeze) as forwarder:
        try:
            ended = call(module, dict(options, pool=LOOP_POOL))
        finally:
            thaw()
    return judge("frozen in the middle of an upload", ended, forwarder.fired or ended.began, [] if ended.failed else ["it succeeded on frozen storage"])


def published(key):
    module, options = ground.image(key)
    result = quiet(module, dict(options, pool=LOOP_POOL))
    return [] if result["image"]["published"] else [f"a quiet second run does not publish {key}: {result}"]


def frozen():
    with small_filesystem():
        module, options = ground.image("loop-a")
        bad = frozen_before("frozen before an import", module, dict(options, pool=LOOP_POOL)) + published("loop-a")
        return bad + frozen_in_the_upload() + published("loop-b")


def sources():
    """Imports into a pool that is well, from a file that can be read up to its middle only, and with a temporary file of that kind."""
    bad, packed = [], f"{ground.FOLDER}/image.raw.gz"
    with open(ground.IMAGE, "rb") as image, gzip.open(packed, "wb", 1) as file:
        shutil.copyfileobj(image, file)
    digest = hashlib.sha256(dead_folder.content(0, dead_folder.SIZE)).hexdigest()
    there = {"src": f"{DEAD}/{dead_folder.NAME.decode()}"}
    for case, key, more in (
            ("dead source, in its digest", "source-a", there), ("dead source, in the upload", "source-b", dict(there, checksum=f"sha256:{digest}")),
            ("dead temporary file", "source-c", {"src": packed, "tmpdir": DEAD})):
        began, (module, options) = time.monotonic(), ground.image(key)
        ended = call(module, dict(options, **more))
        left = [name for name in ground.files() if key in name]
        bad += judge(case, ended, began, ([] if ended.failed else ["it succeeded"]) + [f"{name} is left" for name in left])
    return bad


def dead():
    look = ground.look()[1]
    with dying_folder() as stop_answering:
        there = dict(look, pool=DEAD_POOL, exclusive=True)
        quiet("kvm2_pool_check", there)
        bad = sources()
        stop_answering()
        for case, module, options in (
                ("dead folder, a look at it", "kvm2_pool_check", there),
                ("dead folder, an import into it", "kvm2_image", dict(ground.image("dead")[1], pool=DEAD_POOL, exclusive=True)),
                ("dead folder, a look at another pool", "kvm2_pool_check", look)):
            began = time.monotonic()
            bad += judge(case, call(module, options), began, [])
    # The storage is gone for good, and the daemon goes on.
    quiet("kvm2_pool_check", look)
    return bad


def main():
    ground.lay()
    try:
        bad = frozen() + dead()
    finally:
        ground.clear()
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
