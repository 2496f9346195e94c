# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every task of this collection that the documents show has options that its module takes, and every URI is one that can be used."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.egress.kvm2.plugins.module_utils._entry.args import connection_arguments, parse_connection
from ansible_collections.egress.kvm2.plugins.module_utils._policy import connection_uri
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import KINDS

CHECKOUT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted(str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / "docs").glob("*.md"))
CONNECTIONS = "docs/connections.md"
MODULE = re.compile(r"egress\.kvm2\.(kvm2_\w+)")


def text_of(name):
    return (CHECKOUT / name).read_text(encoding="utf-8")


def blocks(name, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```$", text_of(name), re.MULTILINE | re.DOTALL)


def tasks(node):
    """(module, options) of every task, at any depth."""
    if isinstance(node, dict):
        for key, value in node.items():
            match = MODULE.fullmatch(str(key))
            yield from [(match[1], value)] if match else tasks(value)
    elif isinstance(node, list):
        for value in node:
            yield from tasks(value)


SHOWN = [
    pytest.param(module, options, id=f"{name}-{number}-{module}")
    for name in DOCUMENTS for number, block in enumerate(blocks(name, "yaml"), 1) for module, options in tasks(yaml.safe_load(block))]


@pytest.mark.parametrize("module, options", SHOWN)
def test_the_module_takes_these_options(module, options):
    arguments = importlib.import_module(f"ansible_collections.egress.kvm2.plugins.modules.{module}").ARGUMENTS
    validated = ArgumentSpecValidator(dict(arguments, **connection_arguments("1h"))).validate(options)
    assert validated.error_messages == []
    if "ssh_known_hosts" not in options:
        assert parse_connection(validated.validated_parameters).timeout > 0


def test_connections_are_shown():
    names = [module for block in blocks(CONNECTIONS, "yaml") for module, _options in tasks(yaml.safe_load(block))]
    assert {"kvm2_image", "kvm2_pool_check"} <= set(names)
    error = json.loads(blocks(CONNECTIONS, "json")[0])["error"]
    assert set(error) == {"kind", "code", "act", "object", "hint", "message"}
    assert {kind for kind in KINDS if f"| `{kind}` |" not in text_of(CONNECTIONS)} == set()


def test_every_uri_can_be_used():
    found = re.findall(r"qemu(?:\+\w+)?://[^\s`\"':…]*(?::\d+)?[^\s`\"':…]*", text_of(CONNECTIONS))
    transports = {connection_uri.parse(uri).transport for uri in found}
    assert transports == {"unix", "ssh", "tls", "tcp"}


def test_the_defaults_are_those_of_the_options():
    arguments, text = connection_arguments("1h"), text_of(CONNECTIONS)
    for row in ("| `connect_timeout` | `{connect_timeout}` |", "| `keepalive_interval`, `keepalive_count` | `{keepalive_interval}`, `{keepalive_count}` |",
                "| `timeout` | `{timeout}` "):
        assert row.format(**{name: option.get("default") for name, option in arguments.items()}) in text
