# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ansible shows of kvm2_domain: no secret of a seed at any verbosity, and no other word masked."""

from __future__ import annotations

import re

from .conftest import CHECKOUT, ansible_environment

PLAYBOOK = CHECKOUT / "tests" / "integration" / "instances_words.yml"
SEED_OPTIONS = ("user_data", "meta_data", "network_config")
MASK = "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"


def test_no_secret_is_shown_and_no_word_masked(hv1):
    shown = hv1.playbook(
        PLAYBOOK, "--limit", "hv1", "-vvv", "--diff", environment=dict(ansible_environment(), ANSIBLE_INJECT_INVOCATION="1")).stdout
    assert "s3cret" not in shown
    # The values of the options, in the invocation, the result, the actions and the diff.
    plain = re.sub("[\"']", "", shown)
    for wanted in (
            "fleet: words", "host: hv-words", "memory: 64MiB", "vcpus: 3", "network: default", "mac: 52:54:00:77:88:99", "model: virtio",
            "state: defined", "domain: words.one", "name: one", "memory: 67108864", "memory: 100663296"):
        assert wanted in plain, wanted
    # The options that make the seed are masked as a whole where they were given, and nothing else is.
    for option in SEED_OPTIONS:
        rest = re.sub(rf"\b{option}: {MASK}", "", plain)
        assert rest != plain, option
        plain = rest
    assert MASK not in plain
    assert [line for line in plain.splitlines() if "****" in line and not re.match(r"TASK|PLAY", line)] == []
    # A seed shows as its hash.
    assert re.search(r"hash: [0-9a-f]{64}", shown)
