# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role over modules that only note how they were called: what it asks of them, how often, and what it makes of their answers."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[3]
MODULES = ("kvm2_pool_check", "kvm2_image", "kvm2_overlay", "kvm2_domain", "kvm2_proxy_check", "kvm2_gc")
FLEET = {
    "name": "edge", "image": {"key": "debian-12", "src": "/srv/a.qcow2"}, "hypervisors": ["hv1", "hv2"],
    "proxy": {"allow": ["192.168.122.0/24"]}, "instances": {"count": 3}}
BASE = "kvm2-base-debian-12-0123456789abcdef-aaaaaa.qcow2"

# Takes any argument, notes the call, and gives the next answer of those prepared for it (the last one again and again).
FAKE = """
import json, os, sys
from ansible.module_utils.basic import AnsibleModule

def main():
    with open({folder!r} + "/spec.json") as handle:
        spec = json.load(handle)[{name!r}]
    module = AnsibleModule(argument_spec={{key: {{"type": "raw"}} for key in spec["options"]}}, supports_check_mode=True)
    host = os.environ["KVM2_TEST_HOST"]
    calls = os.path.join({folder!r}, "calls-" + host)
    given = {{key: value for key, value in module.params.items() if value is not None}}
    with open(calls, "a+") as handle:
        handle.seek(0)
        number = sum(1 for line in handle if json.loads(line)["module"] == {name!r})
        handle.write(json.dumps({{"module": {name!r}, "check": module.check_mode, "given": given}}) + "\\n")
    answers = spec["answers"]
    answer = answers[min(number, len(answers) - 1)]
    if "instances" in given and "fill" in answer:
        template = answer.pop("fill")
        answer[template["key"]] = [dict(template["entry"], name=one["name"]) for one in given["instances"]]
    (module.fail_json if answer.get("failed") else module.exit_json)(**answer)

main()
"""
GOOD = {
    "kvm2_pool_check": [{}],
    "kvm2_image": [{"image": {"base": BASE}}],
    "kvm2_overlay": [{"fill": {"key": "overlays", "entry": {"overlay": "kvm2-o.qcow2"}}}],
    "kvm2_domain": [{"changed": True, "fill": {
        "key": "instances", "entry": {"state": "running", "primary_address": "192.168.122.7", "drift": [], "actions": []}}}],
    "kvm2_proxy_check": [{"proxies": [{"name": "proxy-01", "egress_address": "192.0.2.7"}]}],
    "kvm2_gc": [{
        "collected": [{"what": "domain", "name": "edge.proxy-09", "reason": "it is not live"}], "kept": [], "left_alone": [], "unreadable": [],
        "report": ["Fleet edge on hv1: 1 domain would go", "edge.proxy-09: it is not live"]}],
}
HERE = {"what": "domain", "name": "edge.proxy-02", "instance": "proxy-02", "state": "running", "state_reason": "", "base": BASE, "reason": "it is live"}
RETIRED = {"failed": True, "msg": "it was retired meanwhile", "error": {"kind": "transient"}}
BROKEN = {"failed": True, "msg": "it cannot be", "error": {"kind": "permanent"}}


class Run:
    """A finished run: its exit code, its output, and the calls of each host."""

    def __init__(self, done, folder):
        self.code, self.output = done.returncode, done.stdout
        self.calls = {
            path.name[len("calls-"):]: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            for path in folder.glob("calls-*")}

    def modules(self, host):
        return [call["module"] for call in self.calls.get(host, [])]

    def given(self, host, module):
        return next(call["given"] for call in self.calls[host] if call["module"] == module)


@pytest.fixture
def play(tmp_path):
    """play(fleet, answers, playbook=…, hosts=…, variables=…) runs a playbook of the collection; on hv1 where nothing else is said."""
    root = tmp_path / "ansible_collections" / "egress" / "kvm2"
    (root / "plugins" / "modules").mkdir(parents=True)
    for name in ("roles", "playbooks", "schemas", "meta", "galaxy.yml"):
        (root / name).symlink_to(CHECKOUT / name)
    for name in ("filter", "test", "module_utils", "doc_fragments"):
        (root / "plugins" / name).symlink_to(CHECKOUT / "plugins" / name)
    for name in MODULES:
        (root / "plugins" / "modules" / f"{name}.py").write_text(FAKE.format(folder=str(tmp_path), name=name), encoding="utf-8")
    hosts = {}
    for name in ("hv1", "hv2"):
        interpreter = tmp_path / f"python-{name}"
        interpreter.write_text(f'#!/bin/sh\nKVM2_TEST_HOST={name} exec {sys.executable} "$@"\n', encoding="utf-8")
        interpreter.chmod(0o755)
        hosts[name] = {"ansible_connection": "local", "ansible_python_interpreter": str(interpreter)}
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump({"hypervisors": {"hosts": hosts}}), encoding="utf-8")

    def options(name):
        path = CHECKOUT / "plugins" / "modules" / f"{name}.py"
        text = path.read_text(encoding="utf-8")
        own = yaml.safe_load(text.split('DOCUMENTATION = r"""')[1].split('"""')[0])
        connects = "egress.kvm2.connection" in own["extends_documentation_fragment"]
        return [*own["options"], *(("uri", "exclusive", "timeout") if connects else ())]

    def run(fleet=None, answers=None, playbook="provision", hosts="hv1", variables=None, arguments=()):
        for path in tmp_path.glob("calls-*"):
            path.unlink()
        answered = dict(GOOD, **(answers or {}))
        spec = {name: {"options": options(name), "answers": answered[name]} for name in MODULES}
        (tmp_path / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
        given = dict({"kvm2_fleet": fleet or FLEET, "proxy_fleet_check_url": "http://egress.example/"}, **(variables or {}))
        done = subprocess.run(
            [Path(sys.executable).with_name("ansible-playbook"), "-i", tmp_path / "inventory.yml", root / "playbooks" / f"{playbook}.yml",
             "-e", json.dumps(given), "--limit", hosts, *arguments],
            env=dict(
                os.environ, ANSIBLE_COLLECTIONS_PATH=str(tmp_path), ANSIBLE_NOCOLOR="1", ANSIBLE_FORCE_COLOR="0",
                ANSIBLE_CALLBACK_RESULT_FORMAT="yaml", ANSIBLE_PIPELINING="1", ANSIBLE_HOME=str(tmp_path / "home")),
            cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
        return Run(done, tmp_path)

    yield run
    shutil.rmtree(tmp_path / "home", ignore_errors=True)


STEPS = ["kvm2_pool_check", "kvm2_image", "kvm2_overlay", "kvm2_domain", "kvm2_proxy_check"]


def test_each_host_gets_its_share_in_five_calls(play):
    run = play(hosts="hv1,hv2")
    assert run.code == 0, run.output
    assert (run.modules("hv1"), run.modules("hv2")) == (STEPS, STEPS)
    assert [one["name"] for one in run.given("hv1", "kvm2_domain")["instances"]] == ["proxy-01", "proxy-03"]
    assert [one["name"] for one in run.given("hv2", "kvm2_domain")["instances"]] == ["proxy-02"]
    assert [one["overlay"] for one in run.given("hv1", "kvm2_domain")["instances"]] == ["kvm2-o.qcow2"] * 2
    assert run.given("hv1", "kvm2_overlay")["base"] == BASE
    assert run.given("hv1", "kvm2_domain")["host"] == "hv1"
    assert run.given("hv1", "kvm2_proxy_check")["proxies"][0] == {
        "name": "proxy-01", "address": "192.168.122.7", "port": 3128, "scheme": "http"}
    need = run.given("hv1", "kvm2_pool_check")["need"]
    assert [one["capacity"] for one in need["overlays"]] == ["4GiB", "4GiB"]
    assert run.given("hv1", "kvm2_pool_check")["require"]["memory"] == f"{2 * 512 * 1024 ** 2}B"
    table = [line.strip() for line in run.output.splitlines() if "http://192.168.122.7:3128" in line]
    assert table == [
        "- proxy-01  hv1         tinyproxy  192.168.122.7  http://192.168.122.7:3128  running",
        "- proxy-02  hv2         tinyproxy  192.168.122.7  http://192.168.122.7:3128  running",
        "- proxy-03  hv1         tinyproxy  192.168.122.7  http://192.168.122.7:3128  running"]


def test_the_seed_holds_the_proxy_and_what_the_operator_adds(play):
    run = play(dict(FLEET, proxy={"port": 8080, "allow": []}), variables={
        "proxy_fleet_cloud_config": {"packages": ["curl"], "users": ["default"]}, "proxy_fleet_connect_ports": []})
    assert run.code == 0, run.output
    config = yaml.safe_load(run.given("hv1", "kvm2_domain")["instances"][0]["user_data"])
    assert config["packages"] == ["tinyproxy", "curl"]
    assert config["users"] == ["default"]
    file = config["write_files"][0]
    lines = base64.b64decode(file["content"]).decode().splitlines()
    assert (file["path"], file["permissions"], file["encoding"]) == ("/etc/tinyproxy/tinyproxy.conf", "0600", "b64")
    assert "Port 8080" in lines
    # No Allow line at all would allow everybody.
    assert [line for line in lines if line.startswith("Allow")] == ["Allow 127.0.0.1", "Allow ::1"]
    assert [line for line in lines if line.startswith("ConnectPort")] == ["ConnectPort 0"]
    # Nobody is allowed, so there is nothing to ask, and the run says so.
    assert run.modules("hv1") == STEPS[:-1]
    assert "serve nobody" in run.output


STATIC = dict(
    FLEET, networks=[{"network": "default", "subnet": "192.168.122.0/24", "gateway": "192.168.122.1"}], dns={"servers": ["192.168.122.1"]},
    proxy={"allow": ["192.168.122.0/24"], "user": "op", "password": "hunter2-of-this-test"},
    instances=[{"name": "a", "address": "192.168.122.50"}, {"name": "b", "address": "192.168.122.51"},
               {"name": "c", "address": "192.168.122.52", "proxy": {"engine": "dante"}}])


def test_guests_with_their_own_addresses_are_asked_there_with_their_login_and_a_wrong_one(play):
    answers = {"fill": {"key": "instances", "entry": {"state": "provisioning", "primary_address": None, "drift": [], "actions": []}}}
    run = play(STATIC, {"kvm2_domain": [answers], "kvm2_proxy_check": [{"proxies": [{"name": "a", "ok": True}, {"name": "c", "ok": True}]}]})
    assert run.code == 0, run.output
    given = run.given("hv1", "kvm2_domain")
    assert given["wait"]["for"] == "running"
    assert given["networks"] == [{"network": "default"}]
    assert [yaml.safe_load(one["network_config"])["ethernets"]["eth0"]["addresses"] for one in given["instances"]] == [
        ["192.168.122.50/24"], ["192.168.122.52/24"]]
    asked = run.given("hv1", "kvm2_proxy_check")["proxies"]
    assert [(one["name"], one["scheme"], one["address"], one["port"], one.get("expect")) for one in asked] == [
        ("a", "http", "192.168.122.50", 3128, None), ("a with a wrong password", "http", "192.168.122.50", 3128, "refused"),
        ("c", "socks5", "192.168.122.52", 1080, None), ("c with a wrong password", "socks5", "192.168.122.52", 1080, "refused")]
    assert [one["password"] == "hunter2-of-this-test" for one in asked] == [True, False, True, False]
    assert "- c         hv1         dante      192.168.122.52  socks5://192.168.122.52:1080  running" in run.output


def test_no_fact_and_no_message_holds_a_password(play):
    # -v shows what every task sets.
    run = play(STATIC, arguments=["-v", "--diff"])
    assert run.code == 0, run.output
    assert "__proxy_fleet_definition" in run.output
    assert "hunter2" not in run.output
    wrong = dict(STATIC, proxy=dict(STATIC["proxy"], password="hunter2\n"))
    run = play(wrong, arguments=["-v"])
    assert "kvm2_fleet.proxy.password: tinyproxy reads" in run.output
    assert "hunter2" not in run.output


def test_what_is_only_predicted_is_not_asked(play):
    entry = {"state": "provisioning", "primary_address": None, "drift": [], "actions": [{"act": "define"}]}
    run = play(STATIC, {"kvm2_domain": [{"fill": {"key": "instances", "entry": entry}}]}, playbook="check")
    assert run.code == 0, run.output
    assert run.given("hv1", "kvm2_proxy_check")["proxies"] == []


def test_a_host_without_a_share_is_left_alone(play):
    run = play(dict(FLEET, hypervisors=["hv2", "hv9"]), hosts="hv1,hv2")
    assert run.code == 0, run.output
    assert (run.modules("hv1"), run.modules("hv2")) == ([], STEPS)
    assert "Fleet edge gives no instance to hv1. Its hypervisors are hv2, hv9." in run.output


def test_a_limited_run_places_as_the_whole_run_does(play):
    run = play(hosts="hv2")
    assert (run.modules("hv1"), run.modules("hv2")) == ([], STEPS)
    assert [one["name"] for one in run.given("hv2", "kvm2_domain")["instances"]] == ["proxy-02"]


@pytest.mark.parametrize(("fleet", "variables", "text"), [
    (dict(FLEET, name="Edge"), {}, "kvm2_fleet.name: 'Edge' is not a label"),
    (FLEET, {"proxy_fleet_check_url": ""}, "proxy_fleet_check_url is \"\"; it has to be an http URL"),
    (FLEET, {"proxy_fleet_virt_type": "xen"}, "proxy_fleet_virt_type must be one of: auto, kvm, qemu"),
])
def test_bad_input_stops_before_any_host_is_touched(play, fleet, variables, text):
    run = play(fleet, hosts="hv1,hv2", variables=variables)
    assert run.code != 0
    assert text in run.output
    assert run.calls == {}


def test_image_and_overlays_are_done_again_together(play):
    run = play(FLEET, {"kvm2_overlay": [RETIRED, *GOOD["kvm2_overlay"]]})
    assert run.code == 0, run.output
    assert run.modules("hv1") == ["kvm2_pool_check", "kvm2_image", "kvm2_overlay", *STEPS[1:]]


@pytest.mark.parametrize(("answer", "tries"), [(RETIRED, 3), (BROKEN, 1)])
def test_overlays_are_tried_a_bounded_number_of_times_and_only_where_it_can_help(play, answer, tries):
    run = play(FLEET, {"kvm2_overlay": [answer]})
    assert run.code != 0
    assert run.modules("hv1") == ["kvm2_pool_check", *(["kvm2_image", "kvm2_overlay"] * tries)]


@pytest.mark.parametrize(("answer", "tries"), [(RETIRED, 3), (BROKEN, 1)])
def test_the_image_is_tried_a_bounded_number_of_times_and_only_where_it_can_help(play, answer, tries):
    run = play(FLEET, {"kvm2_image": [answer]}, variables={"proxy_fleet_retry_delay": 0})
    assert run.code != 0
    assert run.modules("hv1") == ["kvm2_pool_check", *(["kvm2_image"] * tries)]


@pytest.mark.parametrize(("answer", "tries"), [
    (RETIRED, 3), (BROKEN, 1),
    # Once more would only wait as long once more.
    (dict(RETIRED, errors=[{"kind": "transient", "act": "start"}, {"kind": "transient", "act": "wait for"}]), 1)])
def test_the_domains_are_tried_a_bounded_number_of_times_and_only_where_it_can_help(play, answer, tries):
    run = play(FLEET, {"kvm2_domain": [answer]}, variables={"proxy_fleet_retry_delay": 0})
    assert run.code != 0
    assert run.modules("hv1") == ["kvm2_pool_check", "kvm2_image", "kvm2_overlay", *(["kvm2_domain"] * tries)]


@pytest.mark.parametrize("playbook", ["provision", "check", "start"])
def test_an_instance_that_runs_where_it_does_not_belong_stops_the_run_before_anything_is_changed(play, playbook):
    seen = {"instances": [{"name": "proxy-02", "state": "running"}, {"name": "proxy-09", "state": "running"}]}
    # To hv2 the same answer says nothing of others: proxy-02 is its own and proxy-09 is nobody's.
    run = play(FLEET, {"kvm2_pool_check": [seen]}, playbook=playbook, hosts="hv1,hv2")
    assert run.code != 0
    assert (run.modules("hv1"), run.modules("hv2")) == (["kvm2_pool_check"], ["kvm2_pool_check"])
    shown = " ".join(run.output.split())
    assert "proxy-02 (declared for hv2). Pin each" in shown
    assert "({name: proxy-02, hypervisor: hv1}), or stop it here (virsh shutdown edge.proxy-02)" in shown


def test_a_misplaced_instance_that_is_off_and_those_that_belong_here_stop_nothing(play):
    run = play(FLEET, {"kvm2_pool_check": [{"instances": [{"name": "proxy-01", "state": "running"}, {"name": "proxy-02", "state": "shutoff"}]}]})
    assert run.code == 0, run.output
    assert run.modules("hv1") == STEPS


def test_check_mode_reaches_every_module(play):
    run = play(playbook="check")
    assert run.code == 0, run.output
    assert run.modules("hv1") == STEPS
    assert all(call["check"] for call in run.calls["hv1"])


def test_decommissioning_removes_this_hosts_share_and_keeps_the_image(play):
    run = play(playbook="decommission")
    assert run.code == 0, run.output
    assert run.modules("hv1") == ["kvm2_domain", "kvm2_gc"]
    assert [call["check"] for call in run.calls["hv1"]] == [False, True]
    assert "these instances of fleet" not in run.output
    given = run.given("hv1", "kvm2_domain")
    assert (given["state"], [one["name"] for one in given["instances"]]) == ("absent", ["proxy-01", "proxy-03"])


def test_decommissioning_takes_the_image_where_it_is_told_to(play):
    # As -e name=value gives it: text.
    run = play(playbook="decommission", variables={"proxy_fleet_remove_image": "true"})
    assert run.modules("hv1") == ["kvm2_domain", "kvm2_image", "kvm2_gc"]
    assert run.given("hv1", "kvm2_image")["state"] == "absent"


@pytest.mark.parametrize(("fleet", "names", "modules"), [
    (FLEET, "proxy-02, proxy-08", ["kvm2_domain", "kvm2_gc"]),
    (dict(FLEET, hypervisors=["hv2"]), "proxy-01, proxy-02, proxy-08", ["kvm2_gc"])])
def test_decommissioning_names_what_it_left(play, fleet, names, modules):
    here = [dict(HERE, instance=name, name=f"edge.{name}") for name in ("proxy-08", "proxy-02", "proxy-01")]
    seen = dict(GOOD["kvm2_gc"][0], kept=[*here, {"what": "overlay", "name": "o.qcow2"}], left_alone=[{"what": "domain", "name": "web"}])
    run = play(fleet, {"kvm2_gc": [seen]}, playbook="decommission")
    assert run.code == 0, run.output
    assert run.modules("hv1") == modules
    assert f"since the definition does not have them here: {names}." in " ".join(run.output.split())


def test_decommissioning_goes_without_what_was_left(play):
    run = play(playbook="decommission", answers={"kvm2_gc": [BROKEN]})
    assert run.code == 0, run.output
    assert "these instances of fleet" not in run.output


def test_collection_knows_every_instance_of_the_definition(play):
    run = play(playbook="gc")
    assert run.code == 0, run.output
    given = run.given("hv1", "kvm2_gc")
    assert (given["fleet"], given["host"], given["live"]) == ("edge", "hv1", ["proxy-01", "proxy-02", "proxy-03"])
    assert "edge.proxy-09: it is not live" in run.output


def test_what_was_left_as_it_is_is_said(play):
    found = [{"field": "memory", "have": 1, "want": 2, "needs": "restart", "pending": True}]
    entry = dict(GOOD["kvm2_domain"][0]["fill"]["entry"], drift=found)
    run = play(FLEET, {"kvm2_domain": [{"fill": {"key": "instances", "entry": entry}}]})
    assert "proxy-01: memory is 1 where 2 is declared; its restart is needed" in run.output


def test_a_rolling_update_replaces_host_by_host_and_stops_at_a_failure(play):
    run = play(playbook="rolling_update", hosts="hv1,hv2")
    assert run.code == 0, run.output
    assert (run.modules("hv1"), run.modules("hv2")) == (STEPS, STEPS)
    assert run.given("hv1", "kvm2_overlay")["replace"] is True
    given = run.given("hv2", "kvm2_domain")
    assert (given["on_change"], given["max_parallel"], given["wait"]["for"]) == ("replace", "1", "address")
    failed = play(playbook="rolling_update", hosts="hv1,hv2", answers={"kvm2_proxy_check": [BROKEN]})
    assert failed.code != 0
    assert (failed.modules("hv1"), failed.modules("hv2")) == (STEPS, [])


def test_stop_and_start_change_nothing_but_power(play):
    run = play(playbook="stop")
    assert run.code == 0, run.output
    assert run.modules("hv1") == ["kvm2_domain"] * 2
    looked, stopped = run.calls["hv1"]
    assert (looked["check"], stopped["check"]) == (True, False)
    for given in (looked["given"], stopped["given"]):
        assert (given["on_change"], [one["name"] for one in given["instances"]]) == ("report", ["proxy-01", "proxy-03"])
    assert stopped["given"]["state"] == "stopped"
    assert play(playbook="stop", answers={"kvm2_domain": [BROKEN]}).code != 0
    started = play(playbook="start")
    assert started.code == 0, started.output
    assert started.given("hv1", "kvm2_domain")["on_change"] == "report"


def test_what_is_not_there_is_not_stopped(play):
    seen = {"instances": [{"name": "proxy-01", "actions": []}, {"name": "proxy-03", "actions": [{"act": "define"}]}]}
    run = play(playbook="stop", answers={"kvm2_domain": [seen, {}]})
    assert run.code == 0, run.output
    assert [one["name"] for one in run.calls["hv1"][1]["given"]["instances"]] == ["proxy-01"]


@pytest.mark.parametrize("playbook", ["rolling_update", "stop", "decommission"])
def test_the_time_limit_grows_with_the_instances_unless_it_is_given(play, playbook):
    for variables, expected in (({}, 3600 + 2 * 600), ({"proxy_fleet_timeout": "9h"}, "9h")):
        run = play(playbook=playbook, variables=variables)
        assert run.code == 0, run.output
        limits = {str(call["given"]["timeout"]) for call in run.calls["hv1"] if call["module"] == "kvm2_domain"}
        assert limits == {str(expected)}


# -- the report


def test_the_report_is_all_check_mode_and_shows_what_is_there(play):
    run = play(playbook="report", answers={
        "kvm2_gc": [dict(GOOD["kvm2_gc"][0], kept=[HERE])], "kvm2_pool_check": [{"instances": [{"name": "proxy-02", "state": "running"}]}]})
    assert run.code == 0, run.output
    assert run.modules("hv1") == ["kvm2_gc", "kvm2_pool_check", "kvm2_image", "kvm2_overlay", "kvm2_domain"]
    assert all(call["check"] for call in run.calls["hv1"])
    # Long lines are folded in the output.
    shown = " ".join(run.output.split())
    assert "misplaced, declared for hv2" in shown
    assert "0 of 2 declared instances are there, 1 misplaced" in shown
    assert "edge.proxy-09: it is not live" in shown


def test_the_report_of_a_host_of_another_name(play):
    run = play(playbook="report", variables={"fleet_report_hypervisor": "hv2"})
    assert run.code == 0, run.output
    assert all(call["check"] for call in run.calls["hv1"])
    assert [one["name"] for one in run.given("hv1", "kvm2_domain")["instances"]] == ["proxy-02"]


def test_a_report_without_what_provisioning_would_change(play):
    run = play(playbook="report", answers={"kvm2_pool_check": [BROKEN]})
    assert run.code == 0, run.output
    assert "could not be told: it cannot be" in run.output
    assert "edge.proxy-09: it is not live" in run.output
    quick = play(playbook="report", variables={"fleet_report_drift": False})
    assert quick.modules("hv1") == ["kvm2_gc"]


def test_a_collection_that_fails_shows_its_report_all_the_same(play):
    run = play(playbook="gc", answers={"kvm2_gc": [dict(BROKEN, report=["Failed:", "  - Failed to delete instance edge.x"])]})
    assert run.code != 0
    assert "Failed to delete instance edge.x" in run.output
