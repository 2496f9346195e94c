# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The XML of volumes, to the letter."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._policy import volume_xml
from ansible_collections.egress.kvm2.plugins.module_utils._policy.xml import parse

GOLDEN = Path(__file__).parent / "golden"
NAME = "kvm2-edge.p1-bdcf2b7e-b780-5ade-85c5-cb0dd262285e-abcdef"
CASES = {
    "volume-base": lambda: volume_xml.raw_volume("kvm2-base-debian-12-0123456789abcdef-abcdef.qcow2", 170131456),
    "volume-record": lambda: volume_xml.raw_volume("kvm2-base-debian-12-0123456789abcdef-abcdef.qcow2.json", 512, mode="0644"),
    "volume-seed": lambda: volume_xml.seed_volume(f"{NAME}.iso", 69632),
    "volume-overlay": lambda: volume_xml.overlay_volume(f"{NAME}.qcow2", 4294967296, "/p/kvm2-base-a-0123456789abcdef-abcdef.raw", "raw"),
    "volume-overlay-mode": lambda: volume_xml.overlay_volume(f"{NAME}.qcow2", 1, "/p/<&>\"'.qcow2", "qcow2", mode="0660"),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_xml_is_the_golden_one(case):
    assert CASES[case]() == (GOLDEN / f"{case}.xml").read_text(encoding="utf-8")


@pytest.mark.parametrize("length", [1, 512, 2 ** 40 + 1])
def test_what_is_uploaded_into_is_fully_allocated_and_exactly_as_long(length):
    for text in (volume_xml.raw_volume("a", length), volume_xml.seed_volume("a", length)):
        tree = parse(text)
        assert tree.findtext("capacity") == tree.findtext("allocation") == str(length)
        assert {tree.find("capacity").get("unit"), tree.find("allocation").get("unit")} == {"bytes"}
        assert tree.find("target/format").get("type") == "raw"


def test_modes():
    assert parse(volume_xml.raw_volume("a", 1)).findtext("target/permissions/mode") == "0444"
    assert parse(volume_xml.seed_volume("a", 1)).findtext("target/permissions/mode") == "0600"
    assert parse(volume_xml.overlay_volume("a", 1, "/b", "raw")).findtext("target/permissions/mode") == "0600"


def test_owners():
    plain, given = parse(volume_xml.raw_volume("a", 1)), parse(volume_xml.raw_volume("a", 1, "0440", 0, 64055))
    assert [child.tag for child in plain.find("target/permissions")] == ["mode"]
    assert [(child.tag, child.text) for child in given.find("target/permissions")] == [("mode", "0440"), ("owner", "0"), ("group", "64055")]
