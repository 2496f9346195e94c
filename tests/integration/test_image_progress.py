# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person sees of a long fetch, and what becomes of it when that person goes away."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from .conftest import CHECKOUT, INVENTORY, ansible_environment
from .serving import random_image, serving

SIZE = 12 * 1024 ** 2
LISTING = "virsh -q pool-refresh default >/dev/null; virsh -q vol-list default; find /tmp -name 'kvm2-progress-*'"
LINE = r"^{host}: {key}: fetching \d+ % of 12\.0 MiB.*$"


def address_of(hypervisors):
    return urlsplit(hypervisors.variables["nested_publish_url"]).hostname


@pytest.fixture
def pool(hv1):
    """After the test pool and temporary folder must be as they were."""
    before = hv1.shell("hv1", LISTING)
    yield before
    after = hv1.shell("hv1", LISTING)
    new = [line.split()[0] for line in after.splitlines() if line not in before.splitlines()]
    hv1.shell("hv1", "".join(f"rm -rf {name}\n" if name.startswith("/tmp/") else f"virsh -q vol-delete {name} default\n" for name in new))
    assert after == before


def image_task(served, key, **keywords):
    return {"egress.kvm2.kvm2_image": {"key": key, "url": served.url, "checksum": served.checksum, "format": "raw"}, **keywords}


def absent(*keys):
    return [{"egress.kvm2.kvm2_image": {"key": key, "format": "raw", "state": "absent"}} for key in keys]


def write_playbook(folder, tasks, hosts="hv1"):
    path = folder / "play.yml"
    path.write_text(json.dumps([{"hosts": hosts, "gather_facts": False, "tasks": tasks}]), encoding="utf-8")
    return path


def lines(output, key, host="hv1"):
    return re.findall(LINE.format(host=re.escape(host), key=key), output, re.MULTILINE)


def output_of(path, served, pipelining=True, arguments=("--limit", "hv1")):
    """Output of a playbook whose fetches are held by the server until a line about them is seen: however slow the machine is, there is one."""
    command = [Path(sys.executable).with_name("ansible-playbook"), "-i", INVENTORY, *arguments, path]
    environment = dict(ansible_environment(), ANSIBLE_PIPELINING=str(int(pipelining)))
    output = []
    with subprocess.Popen(
            command, cwd=CHECKOUT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as playbook:
        for line in playbook.stdout:
            output.append(line)
            for key in served:
                if f": {key}: fetching" in line:
                    served[key].release()
    assert playbook.returncode == 0, "".join(output)
    return "".join(output)


@contextlib.contextmanager
def held(hypervisors, *keys):
    """A Served for each key, all of the same image."""
    with contextlib.ExitStack() as stack:
        content = random_image(SIZE, "progress")
        yield {key: stack.enter_context(serving(address_of(hypervisors), content, hold_at=8 * 1024 ** 2, rate=3e6)) for key in keys}


def test_a_long_fetch_is_shown_whoever_runs_it(hv1, pool, tmp_path):
    user, password = "fetcher", secrets.token_hex(8)
    hv1.shell("hv1", f"id {user} 2>/dev/null || useradd --create-home --shell /bin/sh {user}; cp -r /root/.ssh /home/{user}/; chown -R {user}: /home/{user}")
    hv1.shell("hv1", f"echo root:{password} | chpasswd")
    login = {"ansible_user": user, "ansible_become_password": password}
    with held(hv1, "plain", "become", "elsewhere") as served:
        tasks = [
            image_task(served["plain"], "plain", register="plain"),
            image_task(served["become"], "become", become=True, become_method="su", vars=login, register="become"),
            image_task(served["elsewhere"], "elsewhere", delegate_to="hv1"),
            {"ansible.builtin.assert": {"that": ["become is changed", "become.image.digest == plain.image.digest"]}},
            *absent(*served)]
        output = output_of(write_playbook(tmp_path, tasks), served)
    assert lines(output, "plain") and lines(output, "become") and lines(output, "elsewhere", "hv1 -> hv1"), output


def test_without_pipelining_too(hv1, pool, tmp_path):
    with held(hv1, "slow") as served:
        output = output_of(write_playbook(tmp_path, [image_task(served["slow"], "slow"), *absent("slow")]), served, pipelining=False)
    assert lines(output, "slow"), output


@pytest.mark.extended
def test_each_host_shows_each_item_of_a_loop(hv1, pool, tmp_path):
    """The hypervisor under two names stands for two of them."""
    keys = {host: [f"{name}-{host}" for name in ("first", "second")] for host in ("hv1", "twin")}
    inventory = tmp_path / "twin.json"
    inventory.write_text(json.dumps({"hypervisors": {"hosts": {"twin": hv1.hosts["hv1"]}}}), encoding="utf-8")
    with held(hv1, *keys["hv1"], *keys["twin"]) as served:
        loop = {host: [{"key": key, "url": served[key].url} for key in keys[host]] for host in keys}
        task = image_task(served[keys["hv1"][0]], "{{ item.key }}", loop="{{ images[inventory_hostname] }}", vars={"images": loop})
        task["egress.kvm2.kvm2_image"]["url"] = "{{ item.url }}"
        remove = dict(absent("{{ item }}")[0], loop="{{ keys[inventory_hostname] }}", vars={"keys": keys})
        output = output_of(write_playbook(tmp_path, [task, remove], "hv1,twin"), served, arguments=("-i", inventory, "--limit", "hv1,twin"))
    assert all(lines(output, key, host) for host, each in keys.items() for key in each), output


def test_nothing_is_shown_where_it_must_not_be_or_cannot(hv1, pool, tmp_path):
    with serving(address_of(hv1), random_image(SIZE, "progress"), rate=1.8e6) as served:
        tasks = [
            image_task(served, "checked", check_mode=True),
            image_task(served, "secret", no_log=True),
            image_task(served, "background", **{"async": 120, "poll": 2, "register": "background"}),
            {"ansible.builtin.assert": {"that": ["background.image.fetched"]}},
            *absent("checked", "secret", "background")]
        output = hv1.playbook(write_playbook(tmp_path, tasks), "--limit", "hv1").stdout
    assert "fetching" not in output, output


def test_a_failure_is_the_modules_own(hv1, pool, tmp_path):
    with held(hv1, "wrong") as served:
        task = image_task(served["wrong"], "wrong", register="wrong", ignore_errors=True)
        task["egress.kvm2.kvm2_image"]["checksum"] = "sha256:" + "0" * 64
        check = {"ansible.builtin.assert": {"that": ["wrong is failed", "wrong.error.kind == 'permanent'", "'was asked for' in wrong.msg"]}}
        output = output_of(write_playbook(tmp_path, [task, check]), served)
    assert lines(output, "wrong"), output


MARK = "KVM2_TEST_MARK"


def processes(hypervisors, mark):
    found = hypervisors.shell("hv1", f"grep -lsz '^{MARK}={mark}$' /proc/[0-9]*/environ || true").split()
    return [path for path in found if "/self/" not in path]


def until_gone(hypervisors, mark, seconds):
    """Seconds until no process of that run is left."""
    began = time.monotonic()
    while processes(hypervisors, mark):
        assert time.monotonic() - began < seconds, f"the module still runs {seconds} s after its controller went"
        threading.Event().wait(1)
    return time.monotonic() - began


def killed_in_the_middle(hypervisors, served, folder, mark, pipelining=True):
    """Start a fetch, and kill ansible-playbook and its ssh once the server holds."""
    path = write_playbook(folder, [image_task(served, "left", environment={MARK: mark})])
    command = [Path(sys.executable).with_name("ansible-playbook"), "-i", INVENTORY, "--limit", "hv1", path]
    environment = dict(ansible_environment(), ANSIBLE_PIPELINING=str(int(pipelining)))
    with subprocess.Popen(
            command, cwd=CHECKOUT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True) as victim:
        try:
            served.wait_until_held(400)
            assert processes(hypervisors, mark)
        finally:
            # Its workers are leaders of sessions of their own: all that descends from it.
            for pid in [*descendants(victim.pid), victim.pid]:
                os.kill(pid, signal.SIGKILL)


def descendants(pid):
    """Process ids of all that this process has started, and so on."""
    children = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


@pytest.mark.parametrize("pipelining", [True, False], ids=["pipelined", "terminal"])
def test_a_module_without_its_controller_ends_and_cleans_up(hv1, pool, tmp_path, pipelining):
    mark = f"gone-{int(pipelining)}"
    with serving(address_of(hv1), random_image(SIZE, "gone"), hold_at=4 * 1024 ** 2, rate=1e5) as served:
        killed_in_the_middle(hv1, served, tmp_path, mark, pipelining)
        served.release()
        # At this pace the rest of the image would take 80 s more.
        until_gone(hv1, mark, 60)


@pytest.mark.extended
def test_a_module_without_its_controller_that_waits_for_the_server_is_cut_off(hv1, tmp_path):
    with serving(address_of(hv1), random_image(SIZE, "gone"), hold_at=4 * 1024 ** 2) as served:
        before = hv1.shell("hv1", LISTING)
        killed_in_the_middle(hv1, served, tmp_path, "held")
        until_gone(hv1, "held", 60)
        left = [line for line in hv1.shell("hv1", LISTING).splitlines() if line not in before.splitlines()]
        names = [line.split()[0] for line in left]
        assert all(re.fullmatch(r"kvm2-base-left-[0-9a-f]{16}-[0-9a-f]{6}\.raw", name) for name in names), "something beside a base without a record"
        hv1.shell("hv1", "".join(f"virsh -q vol-delete {name} default\n" for name in names))
        assert hv1.shell("hv1", LISTING) == before
