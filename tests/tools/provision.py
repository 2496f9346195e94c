# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Provision a fleet on hypervisors that are up, send a request of our own through each proxy, and report what came back."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import environment
import nested
from console import Step, ToolError, say
from paths import CACHE, CHECKOUT

PLAYBOOK = CHECKOUT / "tests" / "demo" / "demo.yml"
FLEET = CHECKOUT / "tests" / "demo" / "fleet.yml"

# Runs on the hypervisor, beside the role's own check and without any of its code.
_REQUEST = """
import sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": sys.argv[1]}))
print(opener.open(sys.argv[2], timeout=20).read().decode().strip())
"""

# Fewer round trips, and the table as lines instead of one JSON string; the rest is Ansible as it comes.
_ANSIBLE = {"ANSIBLE_PIPELINING": "1", "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml", "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "0"}

_RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_TASK = re.compile(r"^TASK \[(?:\S+ : )?(.*)\] \**$")
_SILENCE = 20.0  # seconds without a line after which it is said what is waited for


@dataclass(frozen=True)
class Answer:
    """What one proxy gave: the endpoint as the role described it, the body that came back or why none did."""

    endpoint: dict
    ok: bool
    text: str


class _Silence:
    """Says after which task it takes so long, whenever no line has come for a while: Ansible names a task when its first result is there."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.task, self.since = "the start", time.monotonic()
        self._line = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Silence:
        self._thread.start()
        return self

    def __exit__(self, *_reason: object) -> None:
        with self._line:
            self._over = True
            self._line.notify()
        self._thread.join()

    def heard(self, line: str) -> None:
        """Take note of a line."""
        with self._line:
            found = _TASK.match(line)
            if found:
                self.task, self.since = found[1], time.monotonic()
            self._line.notify()

    def _watch(self) -> None:
        with self._line:
            while not self._over:
                if not self._line.wait(self.seconds):
                    say(f"{time.monotonic() - self.since:.0f} s since: {self.task}; the task after it is at work", "demo")


def _play(venv: Path, inventory: Path, fleet: Path, endpoints: Path, extra: list[str]) -> int:
    """Run the playbook, its lines on this terminal as they come; the number of changes that the recap counts. ToolError when it failed."""
    variables = json.dumps({"demo_endpoints_file": str(endpoints)})
    command = [venv / "bin" / "ansible-playbook", "-i", inventory, PLAYBOOK, "-e", f"@{fleet}", "-e", variables]
    env = environment.venv_env(venv) | _ANSIBLE
    if sys.stdout.isatty():
        env["ANSIBLE_FORCE_COLOR"] = "1"
    changed = 0
    with subprocess.Popen(
        [str(part) for part in [*command, *extra]], env=env, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as process, _Silence(_SILENCE) as silence:
        for line in process.stdout:
            print(line, end="", flush=True)
            plain = _COLOUR.sub("", line)
            silence.heard(plain.rstrip())
            counts = _RECAP.match(plain)
            changed += int(counts[2]) if counts else 0
    if process.returncode:
        raise ToolError(f"Failed to provision the fleet of {fleet}: ansible-playbook ended with {process.returncode}; its error is above")
    return changed


def _ask(endpoint: dict, url: str) -> Answer:
    script = shlex.join(["python3", "-c", _REQUEST, endpoint["url"], url])
    code, text = nested.ask(endpoint["hypervisor"], script, 60)
    return Answer(endpoint, code == 0, text if code == 0 else (text.splitlines() or ["no output"])[-1])


def _publish_url(venv: Path, inventory: Path) -> str:
    """Address of the small HTTP server outside the guests, as the inventory tells it."""
    done = subprocess.run(
        [str(venv / "bin" / "ansible-inventory"), "-i", str(inventory), "--list"],
        env=environment.venv_env(venv),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ToolError(f"Failed to read the inventory {inventory}: {done.stderr.strip()}. Run: make up")
    for variables in json.loads(done.stdout)["_meta"]["hostvars"].values():
        if "nested_publish_url" in variables:
            return variables["nested_publish_url"]
    raise ToolError(f"Failed to find nested_publish_url in the inventory {inventory}. Run: make up")


def provision(inventory: Path, fleet: Path, extra: list[str]) -> int:
    """Provision and report; 0 when every proxy answered, else 1. extra is handed on to ansible-playbook."""
    venv = environment.ensure()
    if not inventory.exists():
        raise ToolError(f"Failed to read the inventory {inventory}: it is not there. Run: make up")
    url = f"{_publish_url(venv, inventory)}/whoami"
    endpoints = CACHE / "demo" / "endpoints.json"
    endpoints.parent.mkdir(parents=True, exist_ok=True)
    endpoints.unlink(missing_ok=True)
    with Step(f"ansible-playbook with {fleet}", "demo"):
        started = time.monotonic()
        changed = _play(venv, inventory, fleet, endpoints, extra)
        seconds = time.monotonic() - started
    answers = [_ask(endpoint, url) for endpoint in json.loads(endpoints.read_text(encoding="utf-8"))]
    _report(answers, url, changed, seconds)
    return 0 if answers and all(answer.ok for answer in answers) else 1


def _report(answers: list[Answer], url: str, changed: int, seconds: float) -> None:
    print(f"\nWhat each proxy answered to GET {url}, asked from its hypervisor:", flush=True)
    if not answers:
        print("  the role named no proxy, so there is nothing that could answer")
    for answer in answers:
        print(f"  {answer.endpoint['name']}  {answer.endpoint['url']}  {'answered' if answer.ok else 'FAILED'}: {answer.text}")
    meaning = "the fleet was already as declared" if changed == 0 else "run it again to see changed=0"
    print(f"\nchanged={changed} in {seconds:.0f} s: {meaning}")
    if answers:
        endpoint = answers[0].endpoint
        host = endpoint["hypervisor"]
        request = f"from urllib.request import urlopen; print(urlopen(\\\"{url}\\\").read().decode())"
        print("\nTo look further:")
        print(f"  python3 tests/nested ssh {host}                                a shell on the hypervisor")
        print(f"  python3 tests/nested ssh {host} virsh list --all               its guests")
        print(f"  python3 tests/nested ssh {host} virsh dumpxml {endpoint['fleet']}.{endpoint['name']}    one of them, with its mark")
        print(f"  python3 tests/nested ssh {host} \"http_proxy={endpoint['url']} python3 -c '{request}'\"")
        print("  make down                                                take all of it away", flush=True)
