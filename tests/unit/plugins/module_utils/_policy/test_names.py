# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names: what we render parses back to itself, and nothing else parses."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy import names
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import PERMANENT, InvalidInput

LABEL_CHARACTERS = string.ascii_lowercase + string.digits + "-"
UID = "bdcf2b7e-b780-5ade-85c5-cb0dd262285e"

# Labels that look like the other parts of a name: digests, nonces, UUIDs, prefixes, formats.
TRICKY_LABELS = (
    "a", "0", "a-b", "a--b", "kvm2", "kvm2-base", "base", "qcow2", "json", "iso", "xxxxxx", "abcdef",
    "0123456789abcdef", "u0123456789abcde",
    "a-0123456789abcdef-abcdef", "a-u0123456789abcde-xxxxxx", "00000000-0000-0000-0000-00000000", "z" * 32, "a" + "-" * 30 + "b")
labels = st.one_of(
    st.sampled_from(TRICKY_LABELS),
    st.text(LABEL_CHARACTERS, min_size=1, max_size=32).filter(lambda text: text[0] != "-" and text[-1] != "-"))
hexes = "0123456789abcdef"
nonces = st.one_of(st.text(hexes, min_size=6, max_size=6), st.just(names.PREDICTED_NONCE))
id16s = st.one_of(st.text(hexes, min_size=16, max_size=16), st.text(hexes, min_size=15, max_size=15).map(lambda text: "u" + text))
bases = st.builds(names.BaseName, labels, id16s, nonces, st.sampled_from(names.FORMATS))
instance_volumes = st.builds(
    names.InstanceVolumeName, st.sampled_from(("overlay", "seed")), labels, labels, st.uuids().map(str), nonces)


@given(labels)
def test_every_label_is_accepted_as_it_is(label):
    assert names.is_label(label)
    assert names.check_label(label, "fleet") == label


@pytest.mark.parametrize("text", [
    "", "-", "-a", "a-", "a-b-", "A", "aB", "a.b", "a_b", "a b", " a", "a ", "a\n",
    "é", "\u0661", "a/b", "a" * 33, "kvm2-", None, 1.5, True])
def test_everything_else_is_refused_with_its_name(text):
    assert not names.is_label(text)
    with pytest.raises(InvalidInput) as caught:
        names.check_label(text, "fleet")
    assert caught.value.kind == PERMANENT
    assert caught.value.object.startswith("fleet ")
    assert caught.value.hint


def test_a_label_that_is_too_long_is_told_its_length():
    with pytest.raises(InvalidInput, match="33 characters, at most 32"):
        names.check_label("a" * 33, "key")


@given(st.text(max_size=40))
@example("a\n")
@example("a" * 33)
def test_a_label_is_what_the_design_says(text):
    by_hand = (
        0 < len(text) <= 32 and all(character in LABEL_CHARACTERS for character in text) and text[0] != "-" and text[-1] != "-")
    assert names.is_label(text) == by_hand


@given(bases)
def test_a_base_parses_back(name):
    assert names.parse_base(str(name)) == name
    assert names.parse_record(name.record) == name


@given(instance_volumes)
def test_an_instance_volume_parses_back(name):
    assert names.parse_instance_volume(str(name)) == name


@given(labels, labels)
def test_a_domain_name_parses_back(fleet, name):
    assert names.parse_domain_name(names.domain_name(fleet, name)) == (fleet, name)


@given(st.one_of(bases, instance_volumes))
def test_one_kind_never_parses_as_another(name):
    text = str(name)
    assert (names.parse_base(text) is None) == isinstance(name, names.InstanceVolumeName)
    assert (names.parse_instance_volume(text) is None) == isinstance(name, names.BaseName)
    assert names.parse_record(text) is None
    if isinstance(name, names.BaseName):
        assert names.parse_base(name.record) is None


def edited(text):
    """text with one character inserted, removed or replaced."""
    characters = st.sampled_from(LABEL_CHARACTERS + string.ascii_uppercase + "._ \n\0/é")
    places = st.integers(0, len(text))
    return st.one_of(
        st.builds(lambda place, character: text[:place] + character + text[place:], places, characters),
        st.builds(lambda place: text[:place] + text[place + 1:], places),
        st.builds(lambda place, character: text[:place] + character + text[place + 1:], places, characters))


@given(st.one_of(st.text(max_size=120), st.one_of(bases, instance_volumes).flatmap(lambda name: edited(str(name)))))
@example("kvm2-base-debian-12.qcow2")
@example("base-debian-12.qcow2")
def test_what_parses_renders_back_to_itself(text):
    for parse in (names.parse_base, names.parse_instance_volume):
        parsed = parse(text)
        assert parsed is None or str(parsed) == text
    record = names.parse_record(text)
    assert record is None or record.record == text
    domain = names.parse_domain_name(text)
    assert domain is None or names.domain_name(*domain) == text


@given(
    st.one_of(bases, instance_volumes),
    st.sampled_from(("", "x", "KVM2-", " ", "/", "./")), st.sampled_from(("", "\n", " ", ".tmp", ".json", "~", "0", "\0")))
def test_no_prefix_match_anywhere(name, before, after):
    text = before + str(name) + after
    if text != str(name):
        assert names.parse_base(text) is None
        assert names.parse_instance_volume(text) is None


def test_our_prefix_before_a_name_makes_it_another_fleets():
    name = names.InstanceVolumeName("seed", "edge", "p1", UID, "abcdef")
    assert names.parse_instance_volume(f"kvm2-{name}").fleet == "kvm2-edge"


@pytest.mark.parametrize("text", [
    "base-debian-12.qcow2", "base-debian-12.qcow2.sha256", "kvm2-base-debian-12.qcow2", "KVM2-base-a-0123456789abcdef-abcdef.qcow2",
    "kvm2-base-a-0123456789ABCDEF-abcdef.qcow2", "kvm2-base-a-0123456789abcdef-abcdeg.qcow2", "kvm2-base-a-0123456789abcdef-abcdef.iso",
    "kvm2-base--0123456789abcdef-abcdef.qcow2", "kvm2-base-" + "a" * 33 + "-0123456789abcdef-abcdef.qcow2",
    f"kvm2-edge.p1-{UID}-abcdef.raw", f"kvm2-edge.p1-{UID.upper()}-abcdef.qcow2", f"kvm2-edge-{UID}-abcdef.qcow2",
    f"kvm2-edge.p.1-{UID}-abcdef.qcow2", f"kvm2-{'a' * 33}.p1-{UID}-abcdef.qcow2", f"kvm2-edge.{'a' * 33}-{UID}-abcdef.qcow2",
    f"kvm2-edge.p1-{UID.replace('-', '')}-abcdef.qcow2"])
def test_names_of_others_are_not_ours(text):
    assert names.parse_base(text) is None
    assert names.parse_instance_volume(text) is None
    assert names.parse_record(text) is None


def test_the_longest_names_fit_into_a_file_name():
    longest = "a" * names.LABEL_MAX
    assert len(names.BaseName(longest, "0" * 16, "0" * 6, "qcow2").record) <= 255
    assert len(str(names.InstanceVolumeName("overlay", longest, longest, UID, "0" * 6))) <= 255


@given(st.one_of(bases, instance_volumes))
def test_only_the_predicted_nonce_is_predicted(name):
    assert names.is_predicted(str(name)) == (name.nonce == names.PREDICTED_NONCE)


def test_uids_and_macs_never_change():
    # Guests in the field have these: another derivation would be another instance.
    assert names.derive_uid("edge", "proxy-01") == "b5a28f7d-99ad-512f-9274-7986455d5fd8"
    assert names.mac_address(UID, 0) == "52:54:00:88:57:dd"
    assert names.mac_address(UID, 1) == "52:54:00:fb:00:39"


@given(labels, labels, labels)
def test_uids_tell_instances_apart(fleet, name, other):
    assert (names.derive_uid(fleet, name) == names.derive_uid(fleet, other)) == (name == other)
    assert names.parse_uid(names.derive_uid(fleet, name)) == names.derive_uid(fleet, name)


@given(st.uuids().map(str), st.integers(0, 31))
def test_macs_are_unicast_and_of_the_range_of_virtual_machines(uid, index):
    mac = names.mac_address(uid, index)
    assert mac.startswith("52:54:00:") and len(bytes.fromhex(mac.replace(":", ""))) == 6 and mac == mac.lower()
    assert mac == names.mac_address(uid, index)


@given(st.uuids())
def test_a_uuid_in_any_case_and_without_dashes_is_canonical_afterwards(uid):
    for text in (str(uid), str(uid).upper(), uid.hex):
        assert names.parse_uid(text) == str(uid)


@pytest.mark.parametrize("text", [
    "", "p1", UID[:-1], UID + "0", UID.replace("-", "_"), "{" + UID + "}", "urn:uuid:" + UID, UID + "\n", " " + UID,
    UID.replace("0", "\uff10"),
    "bdcf_b7e-b780-5ade-85c5-cb0dd262285e", "bdcf2b7e-b7805ade-85c5-cb0dd262285e", None, 5])
def test_anything_else_is_no_uuid(text):
    assert names.parse_uid(text) is None


def test_identities_of_digests_and_urls_differ_in_form():
    assert names.id16_of_digest("0123456789abcdef" * 4) == "0123456789abcdef"
    of_url = names.id16_of_url("https://images.example/a.qcow2")
    assert len(of_url) == 16 and of_url[0] == "u"
    assert of_url != names.id16_of_url("https://images.example/b.qcow2")
    assert names.parse_base(str(names.BaseName("a", of_url, "abcdef", "raw"))) is not None
