# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the micro guest reads in a seed, by the awk of this machine: what the collection renders comes out as it went in."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._policy import cloud_config

READER = Path(__file__).resolve().parents[2] / "nested" / "guest" / "usr" / "share" / "micro" / "seed.awk"
AWK = [name for name in ("mawk", "gawk") if shutil.which(name)] or ["awk"]


@pytest.fixture(params=AWK)
def read(request, tmp_path):
    """A function that reads a text and returns {path of a written file: its content}."""
    def reader(text):
        subprocess.run([request.param, "-f", READER, "-v", f"out={tmp_path}"], input=text.encode(), check=True)
        return {str(path.relative_to(tmp_path)): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*") if path.is_file()}
    return reader


NETWORK = {"version": 2, "ethernets": {"eth0": {
    "match": {"macaddress": "52:54:00:12:34:56"}, "set-name": "eth0", "dhcp4": False, "addresses": ["192.0.2.7/24", "2001:db8::7/64"],
    "routes": [{"to": "0.0.0.0/0", "via": "192.0.2.1"}], "nameservers": {"addresses": ["192.0.2.53"], "search": ["example.org"]}}}}
LINES = [
    "eth0/match/macaddress 52:54:00:12:34:56", "eth0/set-name eth0", "eth0/dhcp4 false", "eth0/addresses/0 192.0.2.7/24",
    "eth0/addresses/1 2001:db8::7/64", "eth0/routes/0/to 0.0.0.0/0", "eth0/routes/0/via 192.0.2.1",
    "eth0/nameservers/addresses/0 192.0.2.53", "eth0/nameservers/search/0 example.org"]


@pytest.mark.parametrize("text", [
    cloud_config.render(NETWORK), json.dumps(NETWORK), json.dumps({"network": NETWORK}), cloud_config.render({"network": NETWORK})])
def test_a_network_configuration_becomes_lines(read, text):
    assert read(text)["network"].splitlines() == LINES


def test_accounts_and_owners(read):
    hashed = "$6$salt./x$abc./DEF"
    seen = read(cloud_config.render({
        "users": ["default", {"name": "alice", "gecos": "client of the proxy", "lock_passwd": False, "passwd": hashed}],
        "write_files": [{"path": "/etc/a", "owner": "proxy:proxy", "permissions": "0600", "content": "one\n two\n"}]}))
    assert seen == {
        "user.1/name": "alice", "user.1/lock_passwd": "false", "user.1/passwd": hashed,
        "file.0/path": "/etc/a", "file.0/owner": "proxy:proxy", "file.0/permissions": "0600", "file.0/content": "one\n two\n"}


def test_a_hash_by_its_newer_name(read):
    assert read('users: [{name: bob, hashed_passwd: "$6$a$b"}]\n') == {"user.0/name": "bob", "user.0/passwd": "$6$a$b"}
