# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sizes, durations and shares as operators write them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import InvalidInput
from ansible_collections.egress.kvm2.plugins.module_utils._policy.units import (
    format_size,
    parse_amount,
    parse_count,
    parse_duration,
    parse_size,
)

UNITS = {
    "B": 1, "KiB": 2 ** 10, "MiB": 2 ** 20, "GiB": 2 ** 30, "TiB": 2 ** 40, "PiB": 2 ** 50,
    "kB": 10 ** 3, "KB": 10 ** 3, "MB": 10 ** 6, "GB": 10 ** 9, "TB": 10 ** 12, "PB": 10 ** 15}


@pytest.mark.parametrize(("text", "size"), [
    ("10GiB", 10737418240), ("512MiB", 536870912), ("10GB", 10000000000), ("1.5GiB", 1610612736), ("4096B", 4096), ("1 KiB", 1024),
    (" 2MiB\n", 2097152), ("0.1KiB", 102), ("007B", 7), ("8191PiB", 8191 * 2 ** 50)])
def test_sizes(text, size):
    assert parse_size(text, "capacity") == size


@given(st.integers(1, 8000), st.sampled_from(sorted(UNITS)))
def test_whole_numbers_of_every_unit_are_exact(number, unit):
    assert parse_size(f"{number}{unit}", "capacity") == number * UNITS[unit]


@pytest.mark.parametrize("value", ["10", "4096", " 5 ", "1.5", 10, 1.5, 0])
def test_a_number_without_a_unit_names_the_option_and_the_units(value):
    with pytest.raises(InvalidInput, match="has no unit") as caught:
        parse_size(value, "capacity of proxy-01")
    assert caught.value.object == f"capacity of proxy-01 {value!r}"
    assert "GiB" in caught.value.hint


@pytest.mark.parametrize(("value", "cause"), [
    ("10G", "G is not a known unit"), ("10gib", "gib is not"), ("10Mb", "Mb is not"), ("5EiB", "EiB is not"), ("-1GiB", "not a size"),
    ("", "not a size"), (None, "not a size"), (True, "not a size"), ([], "not a size"), ("GiB", "not a size"), ("1e3GiB", "not a size"),
    ("1,5GiB", "not a size"), ("1_0GiB", "not a size"), (".5GiB", "not a size"), ("1.GiB", "not a size"), ("\u0661GiB", "not a size"),
    ("nanGiB", "not a size"), ("10 GiB x", "not a size"), (float("inf"), "not a size"), (-5, "not a size"), ("1" * 21 + "B", "not a size"),
    ("0B", "less than one byte"), ("0.0001B", "less than one byte"), ("8192PiB", "more than libvirt"), ("9" * 20 + "TB", "more than")])
def test_what_is_no_size(value, cause):
    with pytest.raises(InvalidInput, match=cause) as caught:
        parse_size(value, "memory")
    assert caught.value.object.startswith("memory ") and caught.value.hint


def test_zero_where_it_is_allowed():
    assert parse_size("0B", "reserve", allow_zero=True) == 0
    assert parse_size("0GiB", "reserve", allow_zero=True) == 0


@pytest.mark.parametrize(("value", "seconds"), [
    ("10m", 600.0), ("90s", 90.0), ("1h", 3600.0), ("2h30m", 9000.0), ("1d", 86400.0), ("1d2h3m4s", 93784.0), ("1.5h", 5400.0),
    ("90", 90.0), (90, 90.0), (0, 0.0), ("0", 0.0), ("0s", 0.0), (1.5, 1.5), ("0.25", 0.25), (" 5m ", 300.0)])
def test_durations(value, seconds):
    assert parse_duration(value, "timeout") == seconds


@pytest.mark.parametrize("value", [
    "", " ", "m", "10x", "10 m", "30m2h", "1h1h", "-5s", -5, "1:30", "1e3", "10min", "10M", None, True, {}, float("nan"), float("inf"),
    "\u0661s", "s10", "1h 30m", "99999999999999999999s", 10 ** 12, "40000d"])
def test_what_is_no_duration(value):
    with pytest.raises(InvalidInput) as caught:
        parse_duration(value, "wait.timeout")
    assert caught.value.object.startswith("wait.timeout ") and caught.value.hint


@given(st.integers(0, 300), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_the_parts_of_a_duration_add_up(days, hours, minutes, seconds):
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert parse_duration(f"{days}d{hours}h{minutes}m{seconds}s", "timeout") == total
    assert parse_duration(str(total), "timeout") == total


@pytest.mark.parametrize(("value", "amount"), [
    ("5%", ("percent", 5.0)), ("0%", ("percent", 0.0)), ("100 %", ("percent", 100.0)), ("2.5%", ("percent", 2.5)),
    ("1GiB", ("bytes", 2 ** 30)),
    ("0B", ("bytes", 0))])
def test_amounts(value, amount):
    assert parse_amount(value, "reserve") == amount


@pytest.mark.parametrize(("value", "count"), [
    ("25%", ("percent", 25.0)), (3, ("count", 3)), ("3", ("count", 3)), (0, ("count", 0)), ("0%", ("percent", 0.0))])
def test_counts(value, count):
    assert parse_count(value, "max_delete") == count


@pytest.mark.parametrize("parse", [parse_amount, parse_count])
@pytest.mark.parametrize("value", ["101%", "-1%", "%", "5%%", "x%", "100.1%", "", None, "5 percent", 2.5, "-3", False])
def test_what_is_neither_an_amount_nor_a_count(parse, value):
    with pytest.raises(InvalidInput) as caught:
        parse(value, "max_delete")
    assert caught.value.object.startswith("max_delete ") and caught.value.hint


@given(st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.binary(), st.text("0123456789.%dhmsKMGTPiB ", max_size=30)))
@example("9" * 1000000)
@example("9" * 20 + "." + "9" * 20 + "PiB")
def test_any_value_is_read_or_refused(value):
    for parse in (parse_size, parse_duration, parse_amount, parse_count):
        try:
            found = parse(value, "option")
        except InvalidInput as error:
            assert len(str(error)) < 400
        else:
            assert (found[1] if isinstance(found, tuple) else found) >= 0


@pytest.mark.parametrize(("size", "text"), [
    (0, "0 B"), (17, "17 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (2 ** 32, "4.0 GiB"), (2 ** 29, "512.0 MiB"), (2 ** 20 - 1, "1.0 MiB"),
    (-(2 ** 31), "-2.0 GiB"), (2 ** 62, "4096.0 PiB")])
def test_sizes_for_people(size, text):
    assert format_size(size) == text


@given(st.integers(1, 2 ** 60))
def test_a_size_for_people_is_near_and_reads_back(size):
    text = format_size(size)
    assert abs(parse_size(text, "size") - size) <= max(size * 0.05, 0)
    assert float(text.split()[0]) < 1024 or text.endswith("PiB")
