# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real module runs on a nested hypervisor, ended by SIGKILL at a step of one's choice. The modules know nothing of it.

    with Runs(hypervisors, "hv1") as runs:
        whole, = runs.play(Module("kvm2_image", options))
        for at in changing(whole.steps):                       # before and after each call that changes something
            dead, next_run = runs.play(Module("kvm2_image", options, at=at), Module("kvm2_image", options))

`at` is described in sitecustomize.py, which goes to the hypervisor and is loaded there through PYTHONPATH in the task's environment.
All tasks of one play() run in one ansible-playbook. A run that should have been killed and was not fails the test.
"""

from __future__ import annotations

import json
import secrets
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from ..conftest import ansible_environment
from .steps import changing

__all__ = ["Module", "Outcome", "Runs", "Shell", "changing"]


@dataclass(frozen=True)
class Module:
    """A call of a module of this collection; with `at` it is ended there. variables are those of the task, such as its connection's."""

    name: str
    options: dict
    at: str = ""
    check: bool = False
    variables: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Shell:
    """A command on the hypervisor, which must succeed."""

    script: str


@dataclass(frozen=True)
class Outcome:
    """result as Ansible registers it; of a module also its steps ("virStorageVol.delete 1") in order, and where it was killed."""

    result: dict
    steps: tuple[str, ...] = ()
    killed: str = ""

    @property
    def output(self):
        return self.result["stdout"]


class Runs:
    """Module runs on one hypervisor. pipelining says how Ansible hands the module over."""

    def __init__(self, hypervisors, host, pipelining=True):
        self._hypervisors, self._host = hypervisors, host
        self._folder = f"/root/kill-{secrets.token_hex(4)}"
        self._environment = dict(ansible_environment(), ANSIBLE_PIPELINING=str(int(pipelining)))

    def __enter__(self):
        source = Path(__file__).with_name("sitecustomize.py").read_text(encoding="utf-8")
        self._hypervisors.shell(self._host, f"mkdir {self._folder} && cat > {self._folder}/sitecustomize.py << 'END'\n{source}\nEND\n")
        return self

    def __exit__(self, *_error):
        self._hypervisors.shell(self._host, f"rm -rf {self._folder}")

    def _task(self, number, job):
        task = {"name": f"Task {number}", "register": f"task_{number}"}
        if isinstance(job, Shell):
            return dict(task, **{"ansible.builtin.shell": {"cmd": job.script, "executable": "/bin/bash"}})
        environment = {"PYTHONPATH": self._folder, "KVM2_KILL_LOG": f"{self._folder}/{number}.log", "KVM2_KILL_AT": job.at}
        return dict(task, environment=environment, ignore_errors=True, check_mode=job.check, vars=job.variables, **{f"egress.kvm2.{job.name}": job.options})

    def play(self, *jobs):
        """Do the jobs one after the other; an Outcome for each."""
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder, "results.json")
            tasks = [self._task(number, job) for number, job in enumerate(jobs)]
            names = ", ".join(f"task_{number}" for number in range(len(jobs)))
            tasks.append({
                "name": "Hand over", "delegate_to": "localhost",
                "ansible.builtin.copy": {"content": "{{ [" + names + "] | to_json }}", "dest": str(results), "mode": "0600"}})
            playbook = Path(folder, "runs.yml")
            playbook.write_text(json.dumps([{"hosts": self._host, "gather_facts": False, "tasks": tasks}]), encoding="utf-8")
            done = self._hypervisors.playbook(playbook, "--limit", f"{self._host},localhost", environment=self._environment)
            found = json.loads(results.read_text(encoding="utf-8"))
        return [self._outcome(number, job, result, done) for number, (job, result) in enumerate(zip(jobs, found, strict=True))]

    def _outcome(self, number, job, result, done):
        if isinstance(job, Shell):
            return Outcome(result)
        log = self._hypervisors.shell(self._host, f"cat {self._folder}/{number}.log && rm {self._folder}/{number}.log").splitlines()
        killed = next((line.partition(" ")[2] for line in log if line.startswith("KILLED ")), "")
        assert bool(killed) == bool(job.at), f"{job.name} was to be killed {job.at or 'nowhere'} and was killed {killed or 'nowhere'}:\n{done.stdout}"
        assert not killed or "failed" in result
        return Outcome(result, tuple(line for line in log if not line.startswith("KILLED ")), killed)
