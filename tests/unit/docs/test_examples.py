# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every fleet definition that the documents show is valid, and can be written out for the guests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.egress.kvm2.plugins.filter.fleet import find_problems, fleet_filter
from ansible_collections.egress.kvm2.plugins.filter.fleet_guests import guests_filter

CHECKOUT = Path(__file__).resolve().parents[3]
DOCUMENTS = ("README.md", "docs/fleet.md", "docs/getting-started.md", "roles/proxy_fleet/README.md")
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples():
    for name in DOCUMENTS:
        for number, block in enumerate(BLOCK.findall((CHECKOUT / name).read_text(encoding="utf-8")), 1):
            yield pytest.param(block, id=f"{name}-{number}")


def definitions(node):
    """Every value of a key kvm2_fleet, at any depth."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from [value] if key == "kvm2_fleet" else definitions(value)
    elif isinstance(node, list):
        for value in node:
            yield from definitions(value)


@pytest.mark.parametrize("block", list(examples()))
def test_example_is_yaml_and_its_definitions_are_valid(block):
    for definition in definitions(yaml.safe_load(block)):
        assert find_problems(definition) == []
        complete = fleet_filter(definition)
        found = [guest["name"] for hypervisor in complete["hypervisors"] for guest in guests_filter(definition, hypervisor)]
        assert sorted(found) == sorted(one["name"] for one in complete["instances"])


def test_documents_that_should_show_a_definition_do():
    shown = {
        name: sum(len(list(definitions(yaml.safe_load(block)))) for block in BLOCK.findall((CHECKOUT / name).read_text(encoding="utf-8")))
        for name in DOCUMENTS}
    assert all(shown.values()), shown
    assert shown["docs/fleet.md"] >= 6


def test_the_table_of_keys_is_complete():
    """Each key of the schema, of the fleet itself and of what it holds, is in the document."""
    text = (CHECKOUT / "docs" / "fleet.md").read_text(encoding="utf-8")
    schema = yaml.safe_load((CHECKOUT / "schemas" / "fleet.schema.json").read_text(encoding="utf-8"))["definitions"]
    keys = set(schema["fleet"]["properties"])
    for name in ("image", "sizing", "proxy", "dns"):
        keys |= {f"{name}.{key}" for key in schema[name]["properties"]}
    keys |= {f"networks[].{key}" for key in ("subnet", "gateway", "first")}
    keys |= set(schema["instances"]["items"]["properties"])
    assert {key for key in keys if f"`{key}" not in text} == set()
