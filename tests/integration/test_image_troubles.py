# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Imports that others get in the way of: the volume goes, the daemon dies or the pool fills up under the upload, and several want the same at once."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import secrets
import subprocess
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from .serving import random_image, serving

SIZE = 6 * 1024 ** 2
HOLD = 3 * 1024 ** 2
KEY = "troubled"
OURS = f"cd /var/lib/libvirt/images && find . -name 'kvm2-base-{KEY}-*' -printf '%f\\n' | sort"
DAEMON = "cat /run/libvirtd.pid"
SMALL = "/srv/kvm2-troubled"


@pytest.fixture
def address(hv1):
    """Where to serve; afterwards nothing of the key is left, and the rest of the pool is as before."""
    listing = "virsh -q pool-refresh default >/dev/null; virsh -q vol-list default"
    before = hv1.shell("hv1", listing)
    yield urlsplit(hv1.variables["nested_publish_url"]).hostname
    hv1.shell("hv1", f"{OURS} | while read -r name; do virsh -q vol-delete \"$name\" default; done")
    assert hv1.shell("hv1", listing) == before


def image(served, **more):
    """A server holds a transfer until all are there, on a busy machine longer than they would wait for it."""
    patience = {"timeout": "5m", "fetch_timeout": "5m"}
    return {"egress.kvm2.kvm2_image": {"key": KEY, "url": served.url, "checksum": served.checksum, "format": "raw", **patience, **more}}


def results_of(hypervisors, folder, tasks):
    """What the tasks, which have to register task_<number>, registered; in one playbook."""
    results = folder / "results.json"
    names = ", ".join(f"task_{number}" for number in range(len(tasks)))
    tasks = [dict(task, register=f"task_{number}", ignore_errors=True) for number, task in enumerate(tasks)]
    tasks.append({
        "delegate_to": "localhost",
        "ansible.builtin.copy": {"content": "{{ [" + names + "] | to_json }}", "dest": str(results), "mode": "0600"}})
    path = folder / "play.yml"
    path.write_text(json.dumps([{"hosts": "hv1", "gather_facts": False, "tasks": tasks}]), encoding="utf-8")
    hypervisors.playbook(path, "--limit", "hv1,localhost")
    return json.loads(results.read_text(encoding="utf-8"))


def in_the_middle(hypervisors, folder, served, script, task=None):
    """Result of an import during whose upload the script was run on the hypervisor."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(results_of, hypervisors, folder, [task or image(served)])
        try:
            served.wait_until_held(400)
            hypervisors.shell("hv1", script)
        finally:
            served.release()
        return running.result()[0]


def converges(hypervisors, folder, served):
    """The next run fetches the image and publishes it, and the one after that has nothing to do."""
    again, cached = results_of(hypervisors, folder, [image(served), image(served, verify="always")])
    assert again.get("changed") and again["image"]["published"] and again["image"]["digest"] == served.checksum, again
    assert not cached["changed"] and cached["image"] == dict(again["image"], fetched=False), cached
    return again["image"]["base"]


def test_the_volume_is_deleted_under_the_upload(hv1, address, tmp_path):
    with serving(address, random_image(SIZE, KEY), hold_at=HOLD) as served:
        result = in_the_middle(hv1, tmp_path, served, f"{OURS} | xargs -I NAME virsh -q vol-delete NAME default")
        assert result["failed"] and result["error"]["kind"] == "transient", result
        assert hv1.shell("hv1", OURS) == ""
        base = converges(hv1, tmp_path, served)
    assert hv1.shell("hv1", OURS).split() == [base, f"{base}.json"]


def test_the_daemon_dies_in_the_middle_of_the_upload(hv1, address, tmp_path):
    with serving(address, random_image(SIZE, KEY), hold_at=HOLD) as served:
        result = in_the_middle(
            hv1, tmp_path, served,
            f"old=$({DAEMON}); kill -KILL $old; until new=$({DAEMON}) && [ $new != $old ] && virsh -q list >/dev/null 2>&1; do sleep 0.2; done")
        assert result["failed"] and result["error"]["kind"] == "transient", result
        left = hv1.shell("hv1", OURS).split()
        assert len(left) <= 1 and not any(name.endswith(".json") for name in left), left
        base = converges(hv1, tmp_path, served)
    assert hv1.shell("hv1", OURS).split() == sorted([*left, base, f"{base}.json"])


@pytest.fixture
def small_pool(hv1, tmp_path):
    """A pool on a filesystem of its own, on a loop device of 16 MiB, with somebody's volume in it."""
    disk = tmp_path / "disk"
    tools = dict(os.environ, PATH=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-m", "0", disk, "16M"], env=tools, check=True)
    packed = base64.b64encode(gzip.compress(disk.read_bytes())).decode()
    # A container has nodes for the first loop devices only.
    hv1.shell("hv1", f"""set -e
mkdir -p {SMALL}/pool
echo {packed} | base64 -d | gzip -d > {SMALL}/disk
device=$(losetup -f)
test -e $device || mknod $device b 7 ${{device#/dev/loop}}
losetup $device {SMALL}/disk
mount $device {SMALL}/pool
virsh -q pool-define-as {KEY} dir --target {SMALL}/pool
virsh -q pool-start {KEY}
virsh -q vol-create-as {KEY} base-{KEY}.raw 4096""")
    try:
        yield KEY
    finally:
        hv1.shell("hv1", f"""virsh -q pool-destroy {KEY}; virsh -q pool-undefine {KEY}; device=$(findmnt -no SOURCE {SMALL}/pool)
umount {SMALL}/pool; losetup -d $device; rm -rf {SMALL}""")


@pytest.mark.extended
def test_the_pool_fills_up_under_the_upload(hv1, address, small_pool, tmp_path):
    """The base has its room already; its record has none, and so nothing is published and all the room is given back."""
    listing, daemon = f"ls {SMALL}/pool; virsh -q vol-list {small_pool}", hv1.shell("hv1", DAEMON)
    before = hv1.shell("hv1", listing)
    with serving(address, random_image(SIZE, KEY), hold_at=HOLD) as served:
        task = image(served, pool=small_pool)
        fill = f"! dd if=/dev/zero of={SMALL}/pool/somebody bs=1k; sync; [ $(stat -f -c %a {SMALL}/pool) = 0 ]"
        result = in_the_middle(hv1, tmp_path, served, fill, task)
        assert result["failed"] and result["error"]["kind"] == "quota", result
        hv1.shell("hv1", f"rm {SMALL}/pool/somebody; virsh -q pool-refresh {small_pool}")
        assert hv1.shell("hv1", listing) == before and hv1.shell("hv1", DAEMON) == daemon
        again, = results_of(hv1, tmp_path, [task])
        assert again.get("changed") and again["image"]["digest"] == served.checksum, again


class Together:
    """Imports that run beside each other; results() once they have ended."""

    def __init__(self, hypervisors, folder, *wanted):
        self._hypervisors = hypervisors
        self.tokens = [secrets.token_hex(16) for _served in wanted]
        started = [
            dict(image(served), environment={"KVM2_PROGRESS": token}, **{"async": 600, "poll": 0})
            for served, token in zip(wanted, self.tokens, strict=True)]
        count = len(wanted)
        ended = [{
            "ansible.builtin.async_status": {"jid": f"{{{{ task_{number}.ansible_job_id }}}}"}, "until": f"task_{count + number} is finished",
            "retries": 600, "delay": 1} for number in range(count)]
        self._pool = ThreadPoolExecutor(1)
        self._running = self._pool.submit(results_of, hypervisors, folder, [*started, *ended])
        self._count = count

    def wait_until_waiting(self, count):
        """So many of them say, where their progress is read, that they wait for another one."""
        files = " ".join(f"/tmp/kvm2-progress-{token}/status" for token in self.tokens)
        self._hypervisors.shell(
            "hv1", f"for _ in $(seq 110); do [ $(cat {files} 2> /dev/null | grep -c '\"wait\"') -ge {count} ] && exit 0; sleep 1; done; exit 1")

    def results(self):
        with self._pool:
            results = self._running.result()[self._count:]
        for result in results:
            assert not result.get("failed") and result["image"]["published"], result
        return results


@pytest.mark.parametrize("count", [2, pytest.param(5, marks=pytest.mark.extended)])
def test_several_want_the_same(hv1, address, tmp_path, count):
    with serving(address, random_image(SIZE, KEY), hold_at=HOLD) as served:
        imports = Together(hv1, tmp_path, *[served] * count)
        try:
            served.wait_until_held(400)
            imports.wait_until_waiting(count - 1)
        finally:
            served.release()
        results = imports.results()
    assert served.requests == 1 and [result["image"]["fetched"] for result in results].count(True) == 1
    assert len({result["image"]["base"] for result in results}) == 1
    assert hv1.shell("hv1", OURS).split() == [results[0]["image"]["base"], f"{results[0]['image']['base']}.json"]


@contextlib.contextmanager
def no_lock(hypervisors):
    """A folder that others can write to is not used for locks."""
    hypervisors.shell("hv1", "mkdir -p /run/egress-kvm2 && chmod 0777 /run/egress-kvm2")
    try:
        yield
    finally:
        hypervisors.shell("hv1", "chmod 0700 /run/egress-kvm2")


@pytest.mark.extended
@pytest.mark.parametrize("count", [2, 5])
def test_several_want_the_same_where_no_lock_can_tell(hv1, address, tmp_path, count):
    with no_lock(hv1), serving(address, random_image(SIZE, KEY), hold_at=HOLD) as served:
        imports = Together(hv1, tmp_path, *[served] * count)
        try:
            served.wait_until_held_by(count, 400)
        finally:
            served.release()
        results = imports.results()
        assert all(result["image"]["fetched"] and result["image"]["digest"] == served.checksum for result in results)
        bases = sorted({result["image"]["base"] for result in results})
        assert len(bases) == count and served.requests == count
        assert hv1.shell("hv1", OURS).split() == sorted([*bases, *(f"{base}.json" for base in bases)])
        # Any of them may be used, and stays.
        later, = results_of(hv1, tmp_path, [image(served, verify="always")])
        assert not later["changed"] and later["image"]["base"] in bases, later


@pytest.mark.extended
@pytest.mark.parametrize("count", [2, 5])
def test_two_digests_under_one_key_at_once(hv1, address, tmp_path, count):
    with serving(address, random_image(SIZE, KEY), hold_at=HOLD) as one, serving(address, random_image(SIZE, "other"), hold_at=HOLD) as other:
        wanted = [(one, other)[number % 2] for number in range(count)]
        imports = Together(hv1, tmp_path, *wanted)
        try:
            # Both are in the middle of their upload, and who wants the same waits.
            one.wait_until_held(400)
            other.wait_until_held(400)
            imports.wait_until_waiting(count - 2)
        finally:
            one.release()
            other.release()
        results = imports.results()
    assert [result["image"]["digest"] for result in results] == [served.checksum for served in wanted]
    bases = sorted({result["image"]["base"] for result in results})
    assert len(bases) == 2 and one.requests == other.requests == 1
    assert hv1.shell("hv1", OURS).split() == sorted([*bases, *(f"{base}.json" for base in bases)])
