# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three hypervisors in one run, of which one is frozen, its daemon, its sshd or the whole machine: the others go on as if it were not there."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from pathlib import Path

import pytest

from .conftest import ansible_environment, start

WELL, FROZEN = ("hv1", "hv2"), "hv3"
# What ssh and the modules take at most to see that nobody answers, and the work of the tasks before.
LONGEST = 120
# What a frozen host may cost the others under the strategy linear: ssh sees after 20 s that a connection is dead and has 10 s for another one. The
# rest is for a machine that has other work too.
PAUSE = 30 + 30
FLEET = Path(__file__).with_name("fleet.yml")
OPTIONS = {"connect_timeout": "5s", "keepalive_interval": "1s", "keepalive_count": 3, "timeout": "60s"}


@pytest.fixture(scope="module")
def three():
    return start(*WELL, FROZEN)


def play(strategy):
    """Each host works by itself, and leaves the time of its end."""
    defaults = {"group/egress.kvm2.kvm2": OPTIONS}
    image = {"key": "frozen", "url": "{{ nested_image.url }}", "checksum": "{{ nested_image.checksum }}"}
    tasks = [
        {"name": "Look", "egress.kvm2.kvm2_pool_check": {}},
        {"name": "Import", "egress.kvm2.kvm2_image": image},
        {"name": "Import again", "egress.kvm2.kvm2_image": image},
        {"name": "Retire", "egress.kvm2.kvm2_image": {"key": "frozen", "state": "absent"}},
        {"name": "Note the end", "delegate_to": "localhost", "ansible.builtin.file": {
            "path": "{{ ends }}/{{ inventory_hostname }}", "state": "touch", "mode": "0600"}}]
    return [{"hosts": "hypervisors", "gather_facts": False, "strategy": strategy, "module_defaults": defaults, "tasks": tasks}]


def provision(strategy):
    """What the playbook provision does, and each host leaves the time of its end."""
    note = {"delegate_to": "localhost", "ansible.builtin.file": {"path": "{{ ends }}/{{ inventory_hostname }}", "state": "touch", "mode": "0600"}}
    roles = [{"role": "egress.kvm2.proxy_fleet"}]
    return [{"hosts": "hypervisors", "gather_facts": False, "strategy": strategy, "roles": roles, "post_tasks": [{"name": "Note the end", **note}]}]


def environment():
    """For every run: a connection that persists keeps the options of the run that opened it."""
    return dict(ansible_environment(), ANSIBLE_SSH_ARGS="-o ServerAliveInterval=5 -o ServerAliveCountMax=3", ANSIBLE_TIMEOUT="10")


def run(three, folder, hosts, plays, *arguments):
    """({host: seconds until its end}, seconds until the end of all, the output)."""
    ends = folder / f"ends-{time.monotonic_ns()}"
    ends.mkdir()
    path = folder / "play.yml"
    path.write_text(json.dumps(plays), encoding="utf-8")
    began = time.time()
    done = three.playbook(
        path, "--limit", f"{','.join(hosts)},localhost", *arguments, "--extra-vars", json.dumps({"ends": str(ends)}), check=False,
        environment=environment())
    whole = time.time() - began
    return {file.name: file.stat().st_mtime - began for file in ends.iterdir()}, whole, done.stdout


@contextlib.contextmanager
def frozen_daemon(three):
    three.shell(FROZEN, "kill -STOP $(cat /run/libvirtd.pid)")
    try:
        yield
    finally:
        three.shell(FROZEN, "kill -CONT $(cat /run/libvirtd.pid)")


def container_of(three):
    facts = json.loads((Path(three.variables["ansible_ssh_private_key_file"]).parent / "state.json").read_text(encoding="utf-8"))
    return facts["hosts"][FROZEN]["container"]


@contextlib.contextmanager
def frozen_sshd(three):
    """The one that listens, and each that serves a connection."""
    container = container_of(three)

    def send(name):
        each = f"for one in /proc/[0-9]*; do case $(cat $one/comm) in sshd*) kill -{name} ${{one#/proc/}};; esac; done"
        subprocess.run(["podman", "exec", container, "sh", "-c", each], check=True, stdout=subprocess.DEVNULL)

    send("STOP")
    try:
        yield
    finally:
        send("CONT")


@contextlib.contextmanager
def frozen_machine(three):
    container = container_of(three)
    subprocess.run(["podman", "pause", container], check=True, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        subprocess.run(["podman", "unpause", container], check=True, stdout=subprocess.DEVNULL)


def recap_of(output):
    return {line.split()[0]: line for line in output.partition("PLAY RECAP")[2].splitlines() if " : ok=" in line}


@pytest.mark.extended
@pytest.mark.parametrize("frozen, said", [(frozen_daemon, "failed=1"), (frozen_machine, "unreachable=1")])
def test_the_others_go_on_beside_a_frozen_one(three, tmp_path, frozen, said):
    alone, _whole, output = run(three, tmp_path, WELL, play("free"))
    assert set(alone) == set(WELL), output
    with frozen(three):
        beside, whole, output = run(three, tmp_path, (*WELL, FROZEN), play("free"))
    for host in WELL:
        print(f"{frozen.__name__}: {host} ended after {alone[host]:.1f} s alone, {beside[host]:.1f} s beside it: {beside[host] / alone[host]:.2f}")
    print(f"{frozen.__name__}: the whole took {whole:.1f} s")
    assert set(beside) == set(WELL), output
    recap = recap_of(output)
    assert said in recap[FROZEN], output
    assert all("failed=0" in recap[host] and "unreachable=0" in recap[host] for host in WELL), output
    assert whole < LONGEST
    after, _whole, output = run(three, tmp_path, (*WELL, FROZEN), play("free"))
    assert set(after) == {*WELL, FROZEN}, output


@pytest.mark.extended
@pytest.mark.parametrize("strategy", ["linear", "free"])
@pytest.mark.parametrize("frozen, said", [(frozen_daemon, "failed=1"), (frozen_sshd, "unreachable=1")])
def test_a_fleet_is_provisioned_beside_a_frozen_hypervisor(three, tmp_path, frozen, said, strategy):
    everyone = (*WELL, FROZEN)
    change = {"hypervisors": everyone, "instances": {"count": len(everyone), "prefix": "proxy"}}
    fleet = ("-e", f"@{FLEET}", "-e", json.dumps({"test_change": change}))

    def remove():
        more = ("-e", "proxy_fleet_remove_image=true")
        three.playbook("egress.kvm2.decommission", "--limit", ",".join(everyone), *fleet, *more, environment=environment())

    try:
        alone, whole_alone, output = run(three, tmp_path, WELL, provision(strategy), *fleet)
        assert set(alone) == set(WELL), output
        remove()
        with frozen(three):
            beside, whole, output = run(three, tmp_path, everyone, provision(strategy), *fleet)
        for host in WELL:
            print(f"{frozen.__name__}, {strategy}: {host} ended after {alone[host]:.1f} s alone, {beside[host]:.1f} s beside it")
        print(f"{frozen.__name__}, {strategy}: the whole took {whole_alone:.1f} s alone, {whole:.1f} s beside it")
        recap = recap_of(output)
        assert set(beside) == set(WELL) and said in recap[FROZEN], output
        assert all("failed=0" in recap[host] and "unreachable=0" in recap[host] for host in WELL), output
        assert whole < 2 * whole_alone + PAUSE
        # What it missed is made up for, and the others have nothing to do.
        after, _whole, output = run(three, tmp_path, everyone, provision(strategy), *fleet)
        recap = recap_of(output)
        assert set(after) == set(everyone) and all("changed=1 " in recap[host] for host in WELL), output
    finally:
        remove()
