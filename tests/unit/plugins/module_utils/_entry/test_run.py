# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pipeline with a real AnsibleModule: what a module prints, in check mode and out of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import typing

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.egress.kvm2.plugins.module_utils._entry import run
from ansible_collections.egress.kvm2.plugins.module_utils._host import libvirt_connection, python_libraries
from ansible_collections.egress.kvm2.plugins.module_utils._host.deadline import DeadlinePassed
from ansible_collections.egress.kvm2.plugins.module_utils._policy import errors
from ansible_collections.egress.kvm2.plugins.module_utils._policy.plan import Action, Plan
from ansible_collections.egress.kvm2.plugins.module_utils._services.service import Service
from ansible_collections.egress.kvm2.tests.unit.fake.hypervisor import FakeHypervisor


class Sample(Service):
    """Creates what `names` lists; a name "bad" fails, "gone" fails as transient, "early" is refused before anything is read,
    "library" lacks one."""

    log: typing.ClassVar[list] = []

    def __init__(self, params, context):
        super().__init__(params, context)
        if "early" in params["names"]:
            raise errors.InvalidInput("names", "early is not allowed", "Leave it out.")
        if "library" in params["names"]:
            raise errors.MissingLibrary("yaml", "read", "meta_data of instance one")

    def observe(self, hypervisor):
        self.log.append("observe")
        if self.params["names"] == ["fault"]:
            self.context.did(Action("create", "volume", "half"))
            raise MemoryError
        if self.params["names"] == ["over"]:
            raise DeadlinePassed(errors.Kvm2Error("transient", "import", "base x", "it is not done after 1 s"))
        return hypervisor.pools() if hypervisor else ()

    def plan(self, seen):
        return Plan(tuple(Action("create", "volume", f"{name}-{self.context.nonce()}", instance=name) for name in self.params["names"]))

    def predict(self, seen, plan):
        return {"made": [action.name for action in plan.actions]}

    def apply(self, hypervisor, seen, plan):
        self.log.append("apply")
        for action in plan.actions:
            kind = {"bad": "permanent", "gone": "transient"}.get(action.instance)
            if kind:
                self.context.failed(action.instance, errors.Kvm2Error(kind, "create", action.name, "no"))
            else:
                self.context.did(action)
        return self.predict(seen, plan)


@pytest.fixture
def play(monkeypatch, capsys):
    opened = []

    def connect(uri, deadline, *times, **_named):
        opened.append(FakeHypervisor(uri=uri))
        return opened[-1]
    monkeypatch.setattr(run.libvirt_hypervisor, "LibvirtHypervisor", connect)
    Sample.log = []

    def call(check=False, diff=False, connect=True, **given):
        with patch_module_args(dict(given, _ansible_check_mode=check, _ansible_diff=diff)), pytest.raises(SystemExit) as ended:
            run.run_module(Sample, {"names": {"type": "list", "elements": "str", "required": True}}, connect=connect, longest_timeout=7200)
        result = json.loads(capsys.readouterr().out)
        assert bool(result.get("failed")) == (ended.value.code != 0)
        assert all(hypervisor.closed for hypervisor in opened)
        assert not any(thread.name == "kvm2-deadline" for thread in threading.enumerate())
        return result
    call.opened = opened
    return call


def test_check_mode_stops_before_apply_and_predicts_the_same(play):
    predicted = play(check=True, diff=True, names=["a"])
    assert Sample.log == ["observe"] and predicted["made"] == ["a-xxxxxx"] and predicted["changed"]
    assert predicted["diff"]["after"] == "create volume a-xxxxxx\n"
    done = play(names=["a"])
    assert Sample.log == ["observe", "observe", "apply"] and done["changed"] and "diff" not in done
    assert [action["act"] for action in done["actions"]] == [action["act"] for action in predicted["actions"]]
    assert done["made"][0] != "a-xxxxxx" and len(done["made"][0]) == len("a-xxxxxx")


def test_nothing_to_do_is_no_change(play):
    assert not play(names=[])["changed"]


def test_a_failed_item_fails_the_module_and_tells_what_was_done(play):
    result = play(names=["a", "bad", "gone"])
    assert result["failed"] and result["changed"] and [action["instance"] for action in result["actions"]] == ["a"]
    assert [error["item"] for error in result["errors"]] == ["bad", "gone"] and result["error"]["kind"] == "permanent"
    assert "2 failures" in result["msg"] and result["made"]


def test_only_transient_failures_are_transient(play):
    result = play(names=["gone"])
    assert result["error"]["kind"] == "transient" and not result["changed"] and result["actions"] == []


def test_wrong_input_opens_no_connection(play):
    for given in ({"names": ["early"]}, {"names": [], "timeout": "soon"}, {"names": [], "timeout": "3h"}, {"names": [], "uri": " "},
                  {"names": [], "connect_timeout": "0s"}, {"names": [], "keepalive_count": 0}):
        result = play(**given)
        assert result["failed"] and result["error"]["kind"] == "permanent" and result["error"]["message"] == result["msg"]
    assert play.opened == []


def test_the_uri_may_come_from_the_environment(play, monkeypatch):
    monkeypatch.setenv("KVM2_URI", "qemu+ssh://root@elsewhere/system")
    play(names=[])
    assert play.opened[0].uri == "qemu+ssh://root@elsewhere/system"


def test_a_missing_library_is_named_with_its_package_and_interpreter(play, monkeypatch):
    monkeypatch.setattr(libvirt_connection, "LIBVIRT_IMPORT_ERROR", "Traceback\nModuleNotFoundError: No module named 'libvirt'\n")
    result = play(names=[])
    assert "python3-libvirt" in result["msg"] and "python" in result["msg"] and "No module named" in result["msg"]
    monkeypatch.setattr(run, "LXML_IMPORT_ERROR", "Traceback\nModuleNotFoundError: No module named 'lxml'\n")
    both = play(names=[])["error"]
    assert both["object"] == "the Python libraries libvirt and lxml" and "'libvirt'; ModuleNotFoundError: No module named 'lxml'" in both["message"]
    assert "python3-lxml" in both["hint"] and both["kind"] == "permanent"


def test_a_library_that_only_some_inputs_need_is_told_in_the_same_way(play, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    monkeypatch.setattr(python_libraries, "families", lambda: ("fedora",))
    result = play(names=["library"])
    assert result["msg"] == (
        "Failed to read meta_data of instance one: the Python library yaml is not installed where the module runs. "
        "Install what is missing for /usr/bin/python3: dnf install python3-pyyaml.")
    assert result["error"]["hint"] == result["msg"].partition("runs. ")[2] and play.opened == []


def test_a_module_without_a_hypervisor_opens_none(play):
    assert play(connect=False, names=["a"])["changed"] and play.opened == []


def test_what_nobody_expected_is_a_result_too(play):
    result = play(names=["fault"])
    assert result["error"]["kind"] == "permanent" and "MemoryError" in result["msg"] and "report it" in result["error"]["hint"]
    assert [action["name"] for action in result["actions"]] == ["half"]


def test_the_end_of_the_time_is_a_result_with_what_was_done(play):
    result = play(names=["over"])
    assert result["error"]["kind"] == "transient" and result["msg"] == "Failed to import base x: it is not done after 1 s."


def test_uris_and_options_that_cannot_be_used_are_refused(play, tmp_path):
    for given in ({"uri": "vbox:///session"}, {"uri": "qemu+ssh:///system"}, {"ssh_jump_host": "bastion"},
                  {"uri": "qemu+ssh://h/system", "ssh_known_hosts": str(tmp_path / "none")}):
        result = play(names=[], **given)
        assert result["error"]["kind"] == "permanent" and result["error"]["hint"]
    assert play.opened == []
    (tmp_path / "known").write_text("")
    assert not play(names=[], uri="qemu+ssh://h/system", ssh_known_hosts=str(tmp_path / "known"), ssh_jump_host="ops@bastion")["changed"]


ENDING = """
import os, sys, threading
sys.path[:0] = {path!r}
from ansible.module_utils.testing import patch_module_args
from ansible_collections.egress.kvm2.plugins.module_utils._entry import run
from ansible_collections.egress.kvm2.plugins.module_utils._policy.plan import Plan
from ansible_collections.egress.kvm2.plugins.module_utils._services.service import Service

class Hypervisor:
    why = ""
    def close(self):
        return {clean}

class Quiet(Service):
    def observe(self, hypervisor): {observe}
    def plan(self, seen): return Plan()
    def predict(self, seen, plan): return {{"done": True}}
    def apply(self, hypervisor, seen, plan): return self.predict(seen, plan)

run.libvirt_hypervisor.LibvirtHypervisor = lambda *given, **named: Hypervisor()
# As a call into libvirt that never returns: the interpreter waits for it when it ends.
threading.Thread(target=threading.Event().wait, daemon={clean}).start()
with patch_module_args({{"timeout": "1s"}}):
    run.run_module(Quiet, {{}})
"""


def ending(observe="pass", clean=True, **how):
    program = ENDING.format(path=sys.path, observe=observe, clean=clean)
    return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **how)


def test_a_connection_that_cannot_be_closed_does_not_change_the_result_nor_keep_the_process():
    with ending(clean=False, stdout=subprocess.PIPE) as process:
        output, _errors = process.communicate(timeout=60)
    assert process.returncode == 0 and json.loads(output)["done"] is True


def test_where_nobody_reads_the_result_it_ends_without_a_fault():
    reader, writer = os.pipe()
    with ending(stdout=writer) as process:
        os.close(writer)
        os.close(reader)
        errors_said = process.communicate(timeout=60)[1]
    assert process.returncode == 1 and "Traceback" not in errors_said and "BrokenPipe" not in errors_said


def test_work_that_is_blocked_ends_with_a_result_when_the_time_is_over():
    blocked = "lock = threading.Lock(); lock.acquire(); lock.acquire()"
    with ending(blocked, stdout=subprocess.PIPE) as process:
        output, _errors = process.communicate(timeout=120)
    result = json.loads(output)
    assert process.returncode == 1 and result["failed"] and result["error"]["kind"] == "transient" and "not done after 1 s" in result["msg"]
