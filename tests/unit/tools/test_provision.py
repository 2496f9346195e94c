# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demo's report: what is said and what the exit code is, for proxies that answer and for those that do not."""

from __future__ import annotations

import json
import re

import environment
import nested
import provision
import pytest
from console import ToolError

_ENDPOINT = {"name": "proxy-01", "fleet": "demo", "hypervisor": "hv1", "url": "http://192.0.2.7:3128"}
_HOSTVARS = {"_meta": {"hostvars": {"hv1": {"nested_publish_url": "http://192.0.2.1:8000"}}}}


class _Stage:
    """An inventory, and stand-ins for Ansible's programs that say and write what a test wants."""

    def __init__(self, folder):
        self.venv, self.inventory, self.fleet = folder / "venv", folder / "inventory.yml", folder / "fleet.yml"
        (self.venv / "bin").mkdir(parents=True)
        self.inventory.touch()
        self.program("ansible-inventory", f"cat <<'END'\n{json.dumps(_HOSTVARS)}\nEND")
        self.playbook([_ENDPOINT], changed=3)

    def program(self, name, body):
        path = self.venv / "bin" / name
        path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def playbook(self, endpoints, changed, code=0):
        target = provision.CACHE / "demo" / "endpoints.json"
        recap = f"hv1                        : ok=9    changed={changed}    unreachable=0    failed=0    skipped=1"
        self.program("ansible-playbook", f"cat > '{target}' <<'END'\n{json.dumps(endpoints)}\nEND\necho '{recap}'\nexit {code}")

    def run(self):
        return provision.provision(self.inventory, self.fleet, [])


@pytest.fixture
def stage(monkeypatch, tmp_path):
    monkeypatch.setattr(provision, "CACHE", tmp_path / "cache")
    stage = _Stage(tmp_path)
    monkeypatch.setattr(environment, "ensure", lambda: stage.venv)
    monkeypatch.setattr(environment, "venv_env", lambda venv: {"PATH": "/usr/bin:/bin"})
    monkeypatch.setattr(nested, "ask", lambda host, script, seconds: (0, '{"address": "192.0.2.9"}'))
    return stage


def test_the_answers_and_the_changes_are_told(stage, capfd):
    assert stage.run() == 0
    out = capfd.readouterr().out
    assert 'proxy-01  http://192.0.2.7:3128  answered: {"address": "192.0.2.9"}' in out
    assert "changed=3" in out


def test_a_run_that_changed_nothing_says_so(stage, capfd):
    stage.playbook([_ENDPOINT], changed=0)
    assert stage.run() == 0
    assert "changed=0" in capfd.readouterr().out


def test_the_request_goes_through_the_proxy_from_its_hypervisor(stage, monkeypatch):
    asked = []
    monkeypatch.setattr(nested, "ask", lambda host, script, seconds: asked.append((host, script)) or (0, "{}"))
    stage.run()
    [(host, script)] = asked
    assert host == "hv1"
    assert script.endswith(" http://192.0.2.7:3128 http://192.0.2.1:8000/whoami")


def test_a_proxy_that_does_not_answer_fails_the_demo(stage, monkeypatch, capfd):
    monkeypatch.setattr(nested, "ask", lambda host, script, seconds: (1, "Traceback\nConnectionRefusedError: refused"))
    assert stage.run() == 1
    assert "proxy-01  http://192.0.2.7:3128  FAILED: ConnectionRefusedError: refused" in capfd.readouterr().out


def test_no_proxy_at_all_fails_the_demo(stage):
    stage.playbook([], changed=0)
    assert stage.run() == 1


def test_a_failed_playbook_fails_the_demo_even_with_old_endpoints(stage):
    stage.run()
    stage.playbook([_ENDPOINT], changed=0, code=2)
    with pytest.raises(ToolError, match="ended with 2"):
        stage.run()


def test_a_missing_inventory_is_named_with_the_fix(stage):
    stage.inventory.unlink()
    with pytest.raises(ToolError, match="make up"):
        stage.run()


def test_a_long_task_is_named_while_nothing_is_printed(stage, capfd, monkeypatch):
    monkeypatch.setattr(provision, "_SILENCE", 0.05)
    stage.program("ansible-playbook", f"""
echo 'TASK [egress.kvm2.proxy_fleet : Ask each proxy] ********'
until grep -q 'since: Ask each proxy' '{stage.venv}/seen'; do sleep 0.05; done
echo '[]' > '{provision.CACHE / "demo" / "endpoints.json"}'""")
    (stage.venv / "seen").touch()
    monkeypatch.setattr(provision, "say", lambda text, prefix: (stage.venv / "seen").write_text(text, encoding="utf-8"))
    stage.run()
    said = (stage.venv / "seen").read_text(encoding="utf-8")
    assert re.fullmatch(r"\d+ s since: Ask each proxy; the task after it is at work", said)
