# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""User data: what comes out is what went in, read by the YAML parser that cloud-init uses."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy.cloud_config import HEADER, render
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import InvalidInput

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=8)


class Text(str):
    """As templates hand it in: a subclass."""


class Mapping(dict):
    pass


@given(st.dictionaries(TEXT, VALUES))
def test_what_is_rendered_reads_back(config):
    text = render(config)
    assert text.startswith(HEADER)
    assert yaml.safe_load(text) == config


def test_keys_keep_their_order_and_long_values_their_line():
    text = render({"write_files": [{"path": "/etc/a", "content": "x" * 5000}], "bootcmd": ["a b"], "packages": []})
    assert text == f"#cloud-config\nwrite_files:\n- path: /etc/a\n  content: {'x' * 5000}\nbootcmd:\n- a b\npackages: []\n"


def test_text_of_several_lines_is_a_block():
    assert render({"content": "a\nb\n"}) == "#cloud-config\ncontent: |\n  a\n  b\n"


def test_an_octal_mode_stays_text():
    assert render({"permissions": "0644"}) == "#cloud-config\npermissions: '0644'\n"


def test_subclasses_are_written_as_what_they_are():
    assert render(Mapping({Text("a"): Text("b")})) == "#cloud-config\na: b\n"


def test_what_appears_twice_is_written_twice():
    user = {"name": "op"}
    assert render({"users": [user, user]}) == "#cloud-config\nusers:\n- name: op\n- name: op\n"


@pytest.mark.parametrize(("config", "names"), [
    (["a"], "the cloud-init configuration"),
    ("a: b", "the cloud-init configuration"),
    ({"a": [1, {"b": {1, 2}}]}, "cloud-config.a[1].b"),
    ({"a": {1: "b"}}, "cloud-config.a"),
])
def test_what_cannot_be_written_is_named(config, names):
    with pytest.raises(InvalidInput) as caught:
        render(config)
    assert caught.value.object == names
