# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ways to a real hypervisor: through a jump host, with known hosts of its own, to a user's own daemon; and what is wrong on the way."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import ansible_environment

pytestmark = pytest.mark.extended
LOCALHOST = {"hosts": "localhost", "gather_facts": False, "vars": {"ansible_python_interpreter": sys.executable}}


@pytest.fixture
def run(tmp_path, hv1):
    """Run tasks; the result of the last one, a failure too."""
    count = iter(range(100))

    def call(*tasks, play=None, environment=None):
        path, result = tmp_path / f"play{next(count)}.yml", tmp_path / "result"
        *before, last = tasks
        keep = {"ansible.builtin.copy": {"content": "{{ r | to_json }}", "dest": str(result)}, "delegate_to": "localhost", "become": False}
        path.write_text(json.dumps([dict(play or LOCALHOST, tasks=[*before, dict(last, register="r", ignore_errors=True), keep])]), encoding="utf-8")
        hv1.playbook(path, "--limit", "hv1,localhost", environment=environment)
        return json.loads(result.read_text(encoding="utf-8"))
    return call


@pytest.fixture
def remote(hv1):
    """(address, options of a module that goes to hv1 through hv1 over ssh)."""
    options, address = hv1.variables, hv1.hosts["hv1"]["ansible_host"]
    key = options["ansible_ssh_private_key_file"]
    return address, {
        "uri": f"qemu+ssh://root@{address}/system?keyfile={key}", "ssh_known_hosts": str(Path(key).with_name("known_hosts")),
        "ssh_jump_host": f"root@{address}:22"}


def look(**options):
    return {"egress.kvm2.kvm2_pool_check": {"fail": False, **options}}


def test_through_a_jump_host_with_known_hosts_of_its_own(run, remote):
    _address, options = remote
    found = run(look(**options))
    assert not found.get("failed"), found["msg"]
    assert any(check["name"] == "space in pool default" and check["status"] != "fail" for check in found["checks"])


@pytest.mark.parametrize("wrong, hint", [
    ("known_hosts", "ssh_known_hosts"), ("key", "Check user and keyfile"), ("jump", "sshd answers there"), ("name", "look it up")])
def test_what_is_wrong_on_the_way_is_said(run, remote, tmp_path, wrong, hint):
    address, options = remote
    if wrong == "known_hosts":
        (tmp_path / "none").write_text("", encoding="ascii")
        options["ssh_known_hosts"] = str(tmp_path / "none")
    elif wrong == "key":
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
        options["uri"] = options["uri"].partition("?")[0] + f"?keyfile={tmp_path / 'key'}"
    elif wrong == "jump":
        options["ssh_jump_host"] = f"root@{address}:1"
    else:
        options["uri"] = options["uri"].replace(address, "no-such-host.invalid")
        del options["ssh_jump_host"]
    began = time.monotonic()
    found = run(look(**options), environment=dict(ansible_environment(), SSH_AUTH_SOCK=""))
    print(f"{wrong}: {time.monotonic() - began:.1f} s, {found['msg']}")
    assert found["failed"] and hint in found["error"]["hint"]
    assert found["error"]["kind"] == ("transient" if wrong == "jump" else "permanent")


def test_the_daemon_of_a_user(run, hv1):
    hv1.shell("hv1", "id kvm2user >/dev/null 2>&1 || useradd --create-home kvm2user")
    pool = "mkdir -p ~/pool && virsh -q -c qemu:///session pool-create-as default dir --target ~/pool"
    try:
        hv1.shell("hv1", f"runuser -l kvm2user -c '{pool}'")
        play = {"hosts": "hv1", "gather_facts": False, "become": True, "become_method": "su", "become_user": "kvm2user",
                "vars": {"ansible_pipelining": True}}
        found = run(look(uri="qemu:///session"), play=play)
        assert not found.get("failed"), found["msg"]
        assert any(check["name"] == "space in pool default" for check in found["checks"])
    finally:
        hv1.shell("hv1", "pkill -u kvm2user; for i in $(seq 50); do pgrep -u kvm2user >/dev/null || break; sleep 0.1; done; userdel -r kvm2user 2>&1")
