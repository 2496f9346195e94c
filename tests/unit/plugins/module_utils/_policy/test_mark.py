# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mark, however it was reformatted: a value, or unreadable with the reason, and never a domain of somebody else's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy import mark, names
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import InvalidInput
from ansible_collections.egress.kvm2.plugins.module_utils._policy.mark import Mark, Unreadable
from ansible_collections.egress.kvm2.plugins.module_utils._policy.model import Domain
from ansible_collections.egress.kvm2.plugins.module_utils._policy.xml import etree, parse

UID = "bdcf2b7e-b780-5ade-85c5-cb0dd262285e"
OTHER = "11111111-2222-5333-8444-555555555555"
CREATED = 1764448000.0
MARK = Mark(fleet="edge", name="p1", uid=UID, created_at=CREATED)
CHILDREN = {"managed": "true", "fleet": "edge", "name": "p1", "uid": UID, "createdAt": "2025-11-29T20:26:40Z"}


def metadata(inner, uri=mark.URI, prefix="kvm2"):
    return f'<metadata><{prefix}:instance xmlns:{prefix}="{uri}">{inner}</{prefix}:instance></metadata>'


def children(**changes):
    """The mark's children as XML, with some replaced (None: left out); names with "_" are of no child."""
    return "".join(f"<kvm2:{tag}>{text}</kvm2:{tag}>" for tag, text in {**CHILDREN, **changes}.items() if text is not None)


def domain(inside, name="edge.p1", uuid=UID):
    xml = f"<domain type='qemu'><name>{name}</name><uuid>{uuid}</uuid>{inside}</domain>"
    return Domain(name=name, uuid=uuid, state="shutoff", xml=xml)


def read(**changes):
    return mark.of_domain(domain(metadata(children(**changes))))


def test_one_line_is_read():
    assert read() == MARK
    assert mark.why_not_ours(domain(metadata(children())), MARK) is None


@pytest.mark.parametrize("pad", [" ", "\t", "\n", "\n      ", "\r\n", " \t\n "])
@pytest.mark.parametrize("tag", sorted(CHILDREN))
def test_padding_of_any_child_is_trimmed(tag, pad):
    assert read(**{tag: f"{pad}{CHILDREN[tag]}{pad}"}) == MARK


def test_a_mark_that_was_indented_anew_is_read():
    tree = parse(domain(metadata(children())).xml)
    for space in ("  ", "\t"):
        etree.indent(tree, space=space)
        assert mark.of_tree(parse(etree.tostring(tree))) == MARK


def test_an_upper_case_uid_is_the_same_uid():
    found = read(uid=f"\n  {UID.upper()}  ")
    assert found == MARK
    assert mark.why_not_ours(domain(""), found) is None


def test_the_prefix_does_not_count_but_the_namespace_does():
    inner = children().replace("kvm2:", "x:")
    assert mark.of_domain(domain(metadata(inner, prefix="x"))) == MARK
    assert mark.of_domain(domain(metadata(children(), uri="urn:egress:kvm2:instance:2"))) is None
    assert mark.of_domain(domain(f"<metadata><instance xmlns='{mark.URI}'>{children().replace('kvm2:', '')}</instance></metadata>")) == MARK


def test_cdata_and_comments_inside_are_text_and_nothing():
    assert read(uid=f"<![CDATA[{UID}]]>") == MARK
    assert read(uid=f"<!-- a --><![CDATA[{UID[:8]}]]><!-- b -->{UID[8:]}") == MARK
    assert read(fleet="ed<!-- x -->ge<?pi y?>") == MARK


def test_unknown_children_and_those_of_other_namespaces_are_passed_over():
    inner = children() + "<kvm2:later>1</kvm2:later><x:uid xmlns:x='urn:x'>no</x:uid><uid>no</uid>"
    assert mark.of_domain(domain(metadata(inner))) == MARK


def test_foreign_metadata_beside_the_mark_is_passed_over():
    foreign = "<o:i xmlns:o='urn:libosinfo'><o:uid>1</o:uid></o:i><instance><managed>true</managed></instance>"
    inside = metadata(children()).replace("<metadata>", f"<metadata>{foreign}").replace("</metadata>", f"{foreign}</metadata>")
    assert mark.of_domain(domain(inside)) == MARK


@pytest.mark.parametrize("tag", sorted(CHILDREN))
@pytest.mark.parametrize(("text", "why"), [(None, "missing"), ("", "empty"), ("  \n\t ", "empty"), ("<!-- x -->", "empty")])
def test_a_required_child_that_is_not_there_or_empty_is_unreadable(tag, text, why):
    assert read(**{tag: text}) == Unreadable(f"<{tag}> is {why}")


@pytest.mark.parametrize("tag", ["host", "deleting", "hold", "generation", "base", "seed", "run"])
@pytest.mark.parametrize("text", ["", "  \n\t ", "<!-- x -->"])
def test_an_optional_child_that_is_empty_is_one_that_is_not_there(tag, text):
    assert read(**{tag: text}) == MARK


@pytest.mark.parametrize("tag", [*sorted(CHILDREN), "host", "deleting"])
def test_a_doubled_child_is_unreadable(tag):
    text = CHILDREN.get(tag, "2025-11-29T20:26:40Z")
    inner = children(**{tag: text}) + f"<kvm2:{tag}>{text}</kvm2:{tag}>"
    assert mark.of_domain(domain(metadata(inner))) == Unreadable(f"<{tag}> appears more than once")


def test_two_marks_are_unreadable():
    one = metadata(children())
    two = one.replace("</metadata>", "") + one.replace("<metadata>", "")
    assert mark.of_domain(domain(two)) == Unreadable("there are 2 marks")
    assert mark.of_domain(domain(one + one)) == Unreadable("there are 2 marks")


@pytest.mark.parametrize(("changes", "part"), [
    ({"managed": "false"}, "<managed> is 'false'"), ({"managed": "True"}, "<managed> is 'True'"), ({"managed": "1"}, "<managed>"),
    ({"uid": "p1"}, "<uid> 'p1' is not a UUID"), ({"uid": UID[:-1]}, "is not a UUID"), ({"uid": f"{UID} {UID}"}, "is not a UUID"),
    ({"fleet": "Edge"}, "<fleet> 'Edge' is not a label"), ({"name": "p1."}, "<name> 'p1.' is not a label"),
    ({"name": "a" * 33}, "is not a label"), ({"deleting": "soon"}, "<deleting> 'soon'")])
def test_a_value_that_cannot_be_believed_is_unreadable(changes, part):
    found = read(**changes)
    assert isinstance(found, Unreadable)
    assert part in found.why


BAD_TIMES = [
    "yesterday", "0", "1764448000", "2025-11-29", "2025-11-29T20:26:40", "2025-13-29T20:26:40Z", "2025-02-30T20:26:40Z",
    "2025-11-29T24:26:40Z", "2025-W48-6T20:26:40Z", "20251129T202640Z", "2025-11-29T20:26:40,5Z", "2025-11-29T20:26:40+01",
    "2025-11-29T20:26:40+24:00", "2025-11-29T20:26:40+01:60", "٢٠٢٥-11-29T20:26:40Z", "2025-11-29T20:26:40ZZ", "0000-01-01T00:00:00Z",
    # What programs write for "no time".
    "1970-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "1970-01-01T01:00:00+01:00"]


@pytest.mark.parametrize("text", BAD_TIMES)
def test_a_bad_or_zero_time_of_creation_is_unreadable(text):
    assert mark.parse_time(text) is None
    assert "<createdAt>" in read(createdAt=text).why


@pytest.mark.parametrize("text", [
    "2025-11-29T20:26:40Z", "2025-11-29t20:26:40z", "2025-11-29T20:26:40.000Z", "2025-11-29T21:26:40+01:00", "2025-11-29T14:56:40-05:30",
    "2025-11-29T20:26:40.000000000-00:00", " 2025-11-29T20:26:40Z\n"])
def test_every_form_of_rfc_3339_is_read(text):
    assert mark.parse_time(text) == CREATED
    assert read(createdAt=text) == MARK


def test_a_time_in_the_future_is_read_as_it_is():
    # That it lies ahead of the clock is for the collector to report.
    assert read(createdAt="2999-01-01T00:00:00Z").created_at > CREATED + mark.CLOCK_SKEW


@given(st.integers(1, 253402300799))
def test_times_come_back_to_the_second(seconds):
    assert mark.parse_time(mark.format_time(seconds)) == seconds


@given(st.text(max_size=40))
@example("2025-11-29T20:26:60Z")
@example("0001-01-01T00:00:00+23:59")
@example("9999-12-31T23:59:59-23:59")
def test_no_text_breaks_the_reading_of_times(text):
    seconds = mark.parse_time(text)
    assert seconds is None or seconds > 0


def test_without_a_mark_or_xml():
    assert mark.of_domain(domain("")) is None
    assert mark.of_domain(domain("<metadata/>")) is None
    gone = Domain(name="edge.p1", uuid=UID, state="nostate", unreadable="permission denied")
    assert mark.of_domain(gone) == Unreadable("the domain's XML cannot be read: permission denied")
    broken = Domain(name="edge.p1", uuid=UID, state="nostate", xml="<domain>")
    assert mark.of_domain(broken).why.startswith("the domain's XML cannot be read: ")


def test_the_persistent_definition_counts_before_the_running_one():
    marked, bare = domain(metadata(children())).xml, domain("").xml
    both = Domain(name="edge.p1", uuid=UID, state="running", active=True, xml=bare, live_xml=marked)
    assert mark.of_domain(both) is None
    transient = Domain(name="edge.p1", uuid=UID, state="running", active=True, persistent=False, live_xml=marked)
    assert mark.of_domain(transient) == MARK


@pytest.mark.parametrize(("name", "uuid", "part"), [
    ("edge.p1", OTHER, f"its mark has the uid {UID} but the domain's UUID is {OTHER}"),
    ("edge.p2", UID, "its mark names edge.p1 but the domain is named edge.p2"),
    ("other.p1", UID, "its mark names edge.p1 but the domain is named other.p1"),
    ("edge.p1-copy", OTHER, "UUID"), ("edge.p", UID, "named edge.p"), ("edge.p11", UID, "named edge.p11")])
def test_a_copied_mark_makes_no_domain_ours(name, uuid, part):
    copied = domain(metadata(children()), name=name, uuid=uuid)
    assert part in mark.why_not_ours(copied, mark.of_domain(copied))


def test_without_a_readable_mark_nothing_is_ours():
    assert "no mark" in mark.why_not_ours(domain(""), None)
    assert "unreadable: <uid> is empty" in mark.why_not_ours(domain(""), read(uid=""))


# What XML can carry, without blanks at the ends, which are trimmed.
texts = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff"), max_size=40).map(str.strip)
label_texts = st.from_regex(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?", fullmatch=True)
times = st.integers(1, 253402300799).map(float)
marks = st.builds(
    Mark, fleet=label_texts, name=label_texts, uid=st.uuids().map(str), created_at=times, host=texts, generation=texts, base=texts,
    seed=texts, deleting=st.none() | times, hold=texts, run=texts)


@given(marks, st.sampled_from((None, "  ", "\t")))
def test_a_mark_comes_back_from_its_xml(value, space):
    tree = parse(f"<domain><name>x</name><uuid>{value.uid}</uuid><metadata><y xmlns='urn:y'/></metadata></domain>")
    tree.find("metadata").append(mark.to_element(value))
    if space is not None:
        etree.indent(tree, space=space)
    assert mark.of_tree(parse(etree.tostring(tree))) == value


@given(marks)
def test_a_domain_made_from_a_mark_is_ours_and_no_other_is(value):
    name = names.domain_name(value.fleet, value.name)
    assert mark.why_not_ours(Domain(name=name, uuid=value.uid, state="shutoff"), value) is None
    assert mark.why_not_ours(Domain(name=name + "0", uuid=value.uid, state="shutoff"), value) is not None
    assert mark.why_not_ours(Domain(name=name, uuid=OTHER, state="shutoff"), value) is not None


@given(st.dictionaries(st.sampled_from([*CHILDREN, "host", "deleting", "hold", "later"]), st.text(
    st.characters(codec="ascii", exclude_characters="<&\0", exclude_categories=("Cc",)), max_size=40)))
def test_any_children_are_a_mark_or_unreadable(found):
    value = read(**found)
    assert isinstance(value, (Mark, Unreadable))
    if isinstance(value, Mark):
        assert names.is_label(value.fleet) and names.is_label(value.name) and names.parse_uid(value.uid) == value.uid


def test_a_text_that_xml_cannot_carry_is_refused_by_name():
    with pytest.raises(InvalidInput, match=r"hold .* of instance edge\.p1"):
        mark.to_element(replace(MARK, hold="no\0"))


def test_optional_children_that_are_empty_are_left_out():
    assert [etree.QName(child).localname for child in mark.to_element(MARK)] == ["managed", "fleet", "name", "uid", "createdAt"]
    assert mark.parse_element(mark.to_element(replace(MARK, seed="abc"))).seed == "abc"
