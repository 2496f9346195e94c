# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy.console import LINES, LONGEST_LINE, last_lines, log_path


@pytest.mark.parametrize(("devices", "path"), [
    ("<serial type='pty'><log file='/var/log/a' append='on'/></serial><console type='pty'><log file='/var/log/b'/></console>", "/var/log/a"),
    ("<serial type='pty'/><console type='pty'><log file='/var/log/b'/></console>", "/var/log/b"),
    ("<serial type='pty'/><serial type='pty'><log file='/var/log/c'/></serial>", "/var/log/c"),
    ("<serial type='pty'/>", None), ("<serial type='pty'><log/></serial>", None), ("", None)])
def test_the_log_is_where_the_definition_says(devices, path):
    assert log_path(f"<domain><devices>{devices}</devices></domain>") == path


@pytest.mark.parametrize(("data", "lines"), [
    (b"", []),
    (b"\n\r\n \t \n", []),
    (b"one\r\ntwo\nthree", ["one", "two", "three"]),
    (b"\x1b[1;31mred\x1b[0m and \x1b]0;title\x07plain\x1b(B\n", ["red and plain"]),
    (b"bell\x07 nul\x00 delete\x7f\n", ["bell nul delete"]),
    (b"  10 %\r  50 %\r 100 %\r\n", ["100 %"]),
    (b"caf\xc3\xa9 \xff\xfe broken\n", ["café \ufffd\ufffd broken"]),
    ("ltr \u202edesrever\u202c \ufeffend\n".encode(), ["ltr desrever end"]),
    (b"a\tb\n", ["a b"]),
    (b"\x9b31mC1\n", ["\ufffd31mC1"]),
    (b"unfinished \x1b[", ["unfinished"]),
])
def test_what_is_shown(data, lines):
    assert last_lines(data, whole=True) == lines


def test_the_first_line_of_a_part_is_left_out():
    assert last_lines(b"f a line\nnext\n") == ["next"]
    assert last_lines(b"one line without an end") == ["one line without an end"]


def test_no_more_than_twenty_and_none_without_bounds():
    lines = last_lines("\n".join(f"line {number}" for number in range(50)).encode(), whole=True)
    assert lines == [f"line {number}" for number in range(50 - LINES, 50)] and LINES == 20
    long, = last_lines(b"x" * 5000, whole=True)
    assert len(long) == LONGEST_LINE and long.endswith("x…")


@given(st.binary(max_size=400))
def test_any_bytes_are_shown_safely(data):
    for line in last_lines(data):
        assert line == line.strip() != ""
        assert not any(unicodedata.category(char).startswith("C") for char in line)
