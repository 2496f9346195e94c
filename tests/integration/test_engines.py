# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Six proxies of three engines on hypervisors of three releases, from one run: whom they serve, whom they refuse, and who sees the password."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from nested import HOSTS, command

from .conftest import CASE_TIMEOUT, ansible_environment, start

HERE = Path(__file__).parent
PASSWORD = "Only.for-this_test.7"
LISTING = "virsh -q list --all --name | sort; virsh -q vol-list default | awk '{ print $1 }' | sort"
SHARES = {"hv-bookworm": ["squid-02", "tinyproxy-01"], "hv-forky": ["dante-02", "squid-01"], "hv1": ["dante-01", "tinyproxy-02"]}
WAYS = ("from another network", "with a wrong password", "as another user", "without a login")


@pytest.fixture(scope="module")
def three():
    return start(*HOSTS.values(), release=",".join(f"{host}={release}" for release, host in HOSTS.items()))


@pytest.fixture
def run(three, tmp_path):
    """run(playbook, *arguments) with the fleet of engines.yml and its password out of a vault; the fleet is gone afterwards."""
    key, vault = tmp_path / "vault-key", tmp_path / "vault.yml"
    key.write_text("of the vault\n", encoding="utf-8")
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-vault"), "encrypt_string", "--vault-password-file", key, "--stdin-name", "test_password"],
        input=PASSWORD, stdout=subprocess.PIPE, text=True, env=ansible_environment(), timeout=60, check=True)
    vault.write_text(done.stdout, encoding="utf-8")

    def play(playbook, *arguments, check=True, timeout=CASE_TIMEOUT):
        return three.playbook(
            playbook, "--vault-password-file", str(key), "-e", f"@{vault}", "-e", f"@{HERE / 'engines.yml'}", "-e", f"test_folder={tmp_path}",
            "--limit", ",".join(HOSTS.values()), *arguments, check=check, timeout=timeout)

    yield play
    play("egress.kvm2.decommission", "-e", "proxy_fleet_remove_image=true")


def changes(done):
    return {host: int(count) for host, count in re.findall(r"^(\S+) .*changed=(\d+)", done.stdout, re.MULTILINE)}


def listings(three):
    return {host: three.shell(host, LISTING).splitlines() for host in HOSTS.values()}


def same(number):
    return dict.fromkeys(HOSTS.values(), number)


@pytest.mark.extended
def test_three_engines_on_three_releases(three, run, tmp_path):
    before = listings(three)
    predicted = run("egress.kvm2.provision", "--check")
    assert listings(three) == before

    made = run("egress.kvm2.provision", "-vvvv", "--diff")
    assert changes(predicted) == changes(made) == same(3)
    rows = re.findall(r"^ +- (\S+) +(\S+) +(\S+) +(\S+) +(\S+) +running$", made.stdout, re.MULTILINE)
    assert sorted((host, name) for name, host, *rest in rows) == sorted((host, name) for host, names in SHARES.items() for name in names)
    assert sorted(url for *rest, url in rows) == sorted([
        "http://192.168.122.201:3128", "http://192.168.122.202:3128", "socks5://192.168.122.203:1080", "http://192.168.122.204:8080",
        "socks5://192.168.122.205:1080", "http://192.168.122.206:3128"])

    assert changes(run("egress.kvm2.check")) == same(0)
    again = run(str(HERE / "engines_refuse.yml"), "--diff")
    assert changes(again) == same(0)
    for host, names in SHARES.items():
        found = json.loads((tmp_path / f"{host}.json").read_text(encoding="utf-8"))
        assert sorted(one["name"] for one in found) == sorted(WAYS * len(names))
        assert all(one["ok"] and one["refused"] for one in found), found
        for way in (one for one in found if one["name"] == "from another network"):
            assert way["refused"] in ("status 403", "it closed the connection")

    files = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.vars")}
    assert set(files) == {f"{host}.vars" for host in SHARES}
    assert all("kvm2_fleet_endpoints" in text for text in files.values())
    seen = {"output": predicted.stdout + made.stdout + again.stdout, **files}
    for host in SHARES:
        seen[f"domains of {host}"] = three.shell(host, "for name in $(virsh -q list --all --name); do virsh dumpxml --security-info $name; done")
        seen[f"logs of {host}"] = three.shell(host, "cat /var/log/libvirt/qemu/*.log")
    assert [where for where, text in seen.items() if PASSWORD in text] == []


@pytest.mark.extended
def test_debian_guests_of_three_engines_serve_and_refuse(three, run, tmp_path):
    """The same on Debian guests, which cloud-init sets up and systemd runs."""
    image = {
        "key": "debian-12", "url": "{{ nested_publish_url }}/debian-12.qcow2", "checksum": "sha256:{{ nested_publish_url }}/SHA256SUMS"}
    subprocess.run([str(part) for part in command("guest", "--kind", "debian")], stdin=subprocess.DEVNULL, timeout=1800, check=True)
    slow = {"test_image": image, "test_sizing": {"memory": "512MiB", "disk": "4GiB"}, "proxy_fleet_check_wait": "20m"}
    extra = ("-e", json.dumps(slow))
    assert changes(run(str(HERE / "engines_refuse.yml"), *extra, timeout=3600)) == same(3)
    for host, names in SHARES.items():
        found = json.loads((tmp_path / f"{host}.json").read_text(encoding="utf-8"))
        assert sorted(one["name"] for one in found) == sorted(WAYS * len(names))
        assert all(one["ok"] and one["refused"] for one in found), found
    assert changes(run("egress.kvm2.provision", *extra)) == same(0)


@pytest.mark.extended
def test_a_limited_run_touches_its_hypervisor_only(three, run):
    before = listings(three)
    run("egress.kvm2.provision", "--limit", "hv-forky")
    after = listings(three)
    assert {host for host in before if before[host] != after[host]} == {"hv-forky"}
    domains = [line.partition(".")[2] for line in after["hv-forky"] if line.startswith("engines.")]
    assert sorted(domains) == SHARES["hv-forky"]


@pytest.mark.extended
def test_a_failing_run_shows_no_password(three, run):
    for more in (
            {"proxy_fleet_max_clients": "many"}, {"proxy_fleet_wait_timeout": "soon"},
            {"proxy_fleet_check_url": "http://192.0.2.1/", "proxy_fleet_check_wait": "0", "proxy_fleet_check_timeout": "1s"}):
        failed = run("egress.kvm2.provision", "--limit", "hv1", "-vvvv", "-e", json.dumps(more), check=False)
        assert failed.returncode != 0
        assert PASSWORD not in failed.stdout
