# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metadata of an instance: what cloud-init reads of it is what was meant, or it is refused."""

from __future__ import annotations

import sys

import pytest
import yaml

from ansible_collections.egress.kvm2.plugins.module_utils._policy import meta_data, seed
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import InvalidInput, MissingLibrary

UID = "bdcf2b7e-b780-5ade-85c5-cb0dd262285e"


def test_what_is_always_set():
    text = meta_data.default(UID, "p1")
    assert text == f"instance-id: {UID}\nlocal-hostname: p1\n" and seed.render("#cloud-config\n", text)


@pytest.mark.parametrize("name", ["p1", "1", "007", "0x1f", "1e3", "2026-01-01", "no", "y", "null", "true", "on", "nova", "a-1"])
@pytest.mark.parametrize("more", ["", "foo: b\n"])
def test_every_name_is_read_as_that_text(name, more):
    text = meta_data.with_more(UID, name, more, "meta_data") if more else meta_data.default(UID, name)
    assert yaml.safe_load(text)["local-hostname"] == name
    assert yaml.safe_load(seed.of_generation(text, "0a1b2c"))["instance-id"] == f"{UID}-0a1b2c"


@pytest.mark.parametrize("more", [
    "foo: b", "foo: b\n", "foo:\n  - a\n  - b: c\n", "# a comment\nfoo: {a: 1}\n", "foo: |\n  instance-id: x\n", "foo: {instance-id: x}", "'a b': c",
    "foo: &x 1\nbar: *x", "\nfoo: b"])
def test_more_goes_behind_it_as_it_is(more):
    text = meta_data.with_more(UID, "p1", more, "meta_data")
    assert text.startswith(meta_data.default(UID, "p1") + more) and text.endswith("\n")
    assert yaml.safe_load(text)["instance-id"] == UID


@pytest.mark.parametrize("more", [
    "---\nfoo: b", "--- {}", "  foo: a", "- aaa", "\tfoo: b", 'foo: "unclosed', "foo: {a: 1", "foo: *x", "%YAML 1.2", "[1", "[]", "{}", "x", "foo: 2026-99-99",
    "foo: !!python/object:os.system 1", "foo: \x01", "foo: " + "[" * 20000])
def test_what_makes_the_whole_no_mapping_is_refused_and_not_shown(more):
    with pytest.raises(InvalidInput) as caught:
        meta_data.with_more(UID, "p1", more, "meta_data of instance p1")
    assert caught.value.object == "meta_data of instance p1" and more not in caught.value.message


@pytest.mark.parametrize("key", ["instance-id", "local-hostname"])
@pytest.mark.parametrize("more", [
    "{key}: x", "'{key}': x", '"{key}" : x', "? {key}\n: x", "!!str {key}: x", "&a {key}: x", "foo: b\r{key}: x", "foo: b\u2028{key}: x",
    "foo: b\x85{key}: x", "foo: b\n{key}: " + UID, "foo: b\n{key}: p1"])
def test_what_is_always_set_is_set_by_nobody_else(key, more):
    with pytest.raises(InvalidInput, match=f"it sets {key}, which is always set by the module"):
        meta_data.with_more(UID, "p1", more.replace("{key}", key), "meta_data")


def test_escapes_do_not_hide_it():
    with pytest.raises(InvalidInput, match="it sets instance-id"):
        meta_data.with_more(UID, "p1", '"in\\x73tance-id": x', "meta_data")


def test_the_line_is_told():
    with pytest.raises(InvalidInput, match=r"no YAML \(line 2\)"):
        meta_data.with_more(UID, "p1", "foo: b\n\tbar: c", "meta_data")


def test_without_yaml_the_error_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingLibrary, match="meta_data of instance p1: the Python library yaml is not installed") as caught:
        meta_data.with_more(UID, "p1", "foo: b", "meta_data of instance p1")
    assert caught.value.kind == "permanent" and caught.value.library == "yaml" and meta_data.default(UID, "p1")
