# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A record is believed only when it is complete and fits its base."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy import names, record
from ansible_collections.egress.kvm2.plugins.module_utils._policy.record import Record, Unreadable

DIGEST = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4
LONG = "00112233445566778899aabbccddeeff" * 4
URL = "https://images.example/debian-12.qcow2"
PINNED = Record(
    key="debian-12", format="qcow2", size=1000, digest=DIGEST, fetched=f"sha256:{DIGEST}", source=URL, checksum=f"sha256:{DIGEST}",
    checksum_url="https://images.example/SHA256SUMS", virtual_size=2 ** 31, published_at=1_800_000_000.5, durable=True)
NAME = names.BaseName("debian-12", DIGEST[:16], "00ff00", "qcow2")
URL_NAME = names.BaseName("debian-12", names.id16_of_url(URL), "00ff00", "qcow2")
UNPINNED = replace(PINNED, checksum="", checksum_url="", etag='"x"', last_modified="Sun, 29 Nov 2026 10:00:00 GMT")

hexes = st.text("0123456789abcdef", min_size=64, max_size=64)
lines = st.text(st.characters(codec="utf-8"), max_size=40).filter(str.isprintable)


@st.composite
def records(draw):
    digest = draw(hexes)
    pinned = draw(st.booleans())
    built = Record(
        key=draw(st.from_regex(names.LABEL, fullmatch=True).filter(names.is_label)), format=draw(st.sampled_from(names.FORMATS)),
        size=draw(st.integers(1, 2 ** 62)), digest=digest, fetched=f"sha256:{digest}", source=draw(lines.filter(bool)),
        checksum=f"sha256:{digest}" if pinned else "", checksum_url=draw(lines), virtual_size=draw(st.integers(1, 2 ** 62)),
        published_at=draw(st.one_of(st.integers(1, 2 ** 33), st.floats(1, 2 ** 33))), durable=draw(st.booleans()), etag=draw(lines))
    id16 = names.id16_of_digest(digest) if pinned else names.id16_of_url(built.source)
    return built, names.BaseName(built.key, id16, "abcdef", built.format)


@given(records())
def test_what_is_rendered_parses_back(pair):
    built, name = pair
    assert record.parse(record.render(built), name) == built


@given(records(), st.data())
def test_a_truncated_record_is_unreadable(pair, data):
    built, name = pair
    whole = record.render(built)
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert isinstance(record.parse(whole[:cut], name), Unreadable)
    assert isinstance(record.parse(whole[:cut] + bytes(len(whole) - cut), name), Unreadable)


@given(st.binary(max_size=300))
def test_any_bytes_give_an_answer(data):
    assert isinstance(record.parse(data, NAME), Unreadable)


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


@given(st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_any_json_gives_an_answer(value):
    assert isinstance(record.parse(json.dumps(value).encode() + b"\n", NAME), Unreadable)


def test_rendering_is_stable():
    text = record.render(PINNED).decode()
    assert text.endswith("}\n")
    assert list(json.loads(text)) == sorted(json.loads(text))
    assert record.render(PINNED) == record.render(replace(PINNED))


WRONG = {
    "version": (None, 0, 2, "1", True, 1.5),
    "key": (None, "", "debian-13", 1, "Debian-12"),
    "format": (None, "raw", "vmdk", 1),
    "size": (None, 0, -1, 1.5, "1000", True, 2 ** 63),
    "digest": (None, "", DIGEST[:-1], DIGEST.upper(), f"sha256:{DIGEST}", 5),
    "fetched": (None, "", DIGEST, f"sha512:{DIGEST}", f"md5:{DIGEST}", f"sha256:{OTHER}", f"sha256:{DIGEST}\n"),
    "source": (None, "", 5, "a\nb", ["x"]),
    "checksum": (None, DIGEST, "sha256:", f"sha256:{OTHER}", "sha256:zz"),
    "checksum_url": (None, 5),
    "virtual_size": (None, 0, "1", False),
    "published_at": (None, 0, -5, "2026", True, 1e300),
    "durable": (None, "true", 1, 0),
    "etag": (5, {}),
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in WRONG.items() for value in values])
def test_each_field_of_a_wrong_kind(field, value):
    values = json.loads(record.render(PINNED))
    assert isinstance(record.parse(json.dumps(values).encode() + b"\n", NAME), Record)
    if value is None:
        del values[field]
    else:
        values[field] = value
    answer = record.parse(json.dumps(values).encode() + b"\n", NAME)
    assert isinstance(answer, Unreadable)
    assert field in answer.why or "fetched" in answer.why


def test_a_later_version_may_add_fields():
    values = dict(json.loads(record.render(PINNED)), more=[1])
    assert record.parse(json.dumps(values).encode() + b"\n", NAME) == PINNED


@pytest.mark.parametrize(("data", "words"), [
    (b"", "empty"), (bytes(400), "empty"), (b"{}", "incomplete"), (b"[{}\n", "JSON"), (b"[{}]\n", "incomplete"),
    (b"{" + b" " * record.LIMIT + b"}\n", "larger"), (b'{"a": 1, "a": 2}\n', "more than once"), (b'{"a": NaN}\n', "NaN"),
    (b"\xff{}\n", "JSON"), (b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"\n", "")])
def test_what_is_no_record(data, words):
    answer = record.parse(data, NAME)
    assert isinstance(answer, Unreadable)
    assert words in answer.why


@pytest.mark.parametrize("name", [
    replace(NAME, key="debian-13"), replace(NAME, format="raw"), replace(NAME, id16=OTHER[:16]), replace(NAME, id16="u" + DIGEST[:15])])
def test_a_record_under_the_name_of_another_base(name):
    assert isinstance(record.parse(record.render(PINNED), name), Unreadable)


def test_the_name_may_carry_any_of_its_digests():
    compressed = replace(PINNED, fetched=f"sha512:{LONG}", checksum=f"sha512:{LONG}")
    for id16 in (DIGEST[:16], LONG[:16]):
        assert record.parse(record.render(compressed), replace(NAME, id16=id16)) == compressed
    assert record.parse(record.render(UNPINNED), URL_NAME) == UNPINNED


# -- identity


def test_a_pinned_base_is_told_by_its_digest():
    wanted = record.identity("debian-12", "qcow2", f"sha256:{DIGEST}", None)
    assert record.matches(wanted, NAME, PINNED)
    assert record.matches(wanted, NAME, replace(PINNED, source="https://elsewhere.example/x"))
    assert record.matches(record.identity("debian-12", "qcow2", f"sha256:{DIGEST.upper()}", None), NAME, PINNED)
    assert record.matches(wanted, URL_NAME, UNPINNED)
    stored = replace(PINNED, fetched=f"sha512:{LONG}", checksum=f"sha512:{LONG}")
    assert record.matches(wanted, NAME, stored)
    assert record.matches(record.identity("debian-12", "qcow2", f"sha512:{LONG}", None), NAME, stored)
    for other in (
            record.identity("debian-12", "qcow2", f"sha256:{OTHER}", None), record.identity("debian-13", "qcow2", f"sha256:{DIGEST}", None),
            record.identity("debian-12", "raw", f"sha256:{DIGEST}", None)):
        assert not record.matches(other, NAME, PINNED)


def test_an_unpinned_base_is_told_by_its_source():
    wanted = record.identity("debian-12", "qcow2", None, URL)
    assert record.matches(wanted, URL_NAME, UNPINNED)
    assert not record.matches(wanted, URL_NAME, replace(UNPINNED, source=URL + "?x"))


@pytest.mark.parametrize(("checksum", "source"), [(None, None), (f"sha256:{DIGEST}", URL)])
def test_an_identity_is_one_or_the_other(checksum, source):
    with pytest.raises(ValueError, match="either"):
        record.identity("debian-12", "qcow2", checksum, source)


class Candidate(NamedTuple):
    name: names.BaseName
    record: Record


def test_the_newest_is_chosen():
    candidates = [
        Candidate(replace(NAME, nonce=f"00000{number}"), replace(PINNED, published_at=at)) for number, at in enumerate((5, 9, 9, 1))]
    assert record.choose(candidates) is candidates[2]
    assert record.choose(reversed(candidates)) is candidates[2]
    assert record.choose([]) is None


def test_nothing_of_the_record_is_lost():
    assert set(json.loads(record.render(PINNED))) == {"version", *asdict(PINNED)}
