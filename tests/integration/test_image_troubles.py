# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Imports that others get in the way of: the volume goes, or the daemon dies, under the upload."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from .serving import random_image, serving

SIZE = 6 * 1024 ** 2
HOLD = 3 * 1024 ** 2
KEY = "troubled"
OURS = f"cd /var/lib/libvirt/images && find . -name 'kvm2-base-{KEY}-*' -printf '%f\\n' | sort"
DAEMON = "cat /run/libvirtd.pid"


@pytest.fixture
def address(hv1):
    """Where to serve; afterwards nothing of the key is left, and the rest of the pool is as before."""
    listing = "virsh -q pool-refresh default >/dev/null; virsh -q vol-list default"
    before = hv1.shell("hv1", listing)
    yield urlsplit(hv1.variables["nested_publish_url"]).hostname
    hv1.shell("hv1", f"{OURS} | while read -r name; do virsh -q vol-delete \"$name\" default; done")
    assert hv1.shell("hv1", listing) == before


def image(served, **more):
    return {"egress.kvm2.kvm2_image": {"key": KEY, "url": served.url, "checksum": served.checksum, "format": "raw", "timeout": "5m", **more}}


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


def in_the_middle(hypervisors, folder, served, script):
    """Result of an import during whose upload the script was run on the hypervisor."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(results_of, hypervisors, folder, [image(served)])
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
