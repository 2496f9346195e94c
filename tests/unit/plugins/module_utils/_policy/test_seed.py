# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The seed: bits that depend on its inputs only, which Linux reads, and which cloud-init does not ignore."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import time

import pycdlib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy import seed
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import PERMANENT, InvalidInput, MissingLibrary

USER, META, NETWORK = "#cloud-config\npackages: [tinyproxy]\n", "instance-id: a\n", "version: 2\n"


def files_of(image):
    """{name: content} of an ISO image, read by both of the ways Linux could take; and its label."""
    iso = pycdlib.PyCdlib()
    iso.open_fp(io.BytesIO(image))
    found = []
    for kind in ("rr_path", "joliet_path"):
        files = {}
        for child in iso.list_children(**{kind: "/"}):
            if child.is_file():
                name = child.rock_ridge.name().decode() if kind == "rr_path" else child.file_identifier().decode("utf-16_be")
                content = io.BytesIO()
                iso.get_file_from_iso_fp(content, **{kind: f"/{name}"})
                files[name] = content.getvalue()
        found.append(files)
    label = iso.pvd.volume_identifier.decode().strip()
    iso.close()
    assert found[0] == found[1]
    return found[0], label


def test_the_files_are_there_under_the_label_that_cloud_init_looks_for():
    files, label = files_of(seed.render(USER, META, NETWORK))
    assert label == "cidata"
    assert files == {"user-data": USER.encode(), "meta-data": META.encode(), "network-config": NETWORK.encode()}


def test_without_network_config_there_is_no_such_file():
    assert sorted(files_of(seed.render(USER, META))[0]) == ["meta-data", "user-data"]
    assert files_of(seed.render(USER, META, ""))[0]["network-config"] == b""


@pytest.mark.parametrize("nothing", [None, "", b""])
def test_no_user_data_is_an_empty_cloud_config(nothing):
    assert files_of(seed.render(nothing, META))[0]["user-data"] == b"#cloud-config\n"


@settings(max_examples=25)
@given(st.binary(max_size=9000), st.text(max_size=50).filter(lambda text: text.isprintable()), st.none() | st.text(max_size=3000))
def test_any_content_comes_back(user, meta, network):
    network = None if network is None else network.encode("utf-8", "replace").decode()
    image = seed.render(b"#!" + user, META + meta, network)
    files, _label = files_of(image)
    assert files["user-data"] == b"#!" + user
    assert files["meta-data"] == (META + meta).encode()
    assert files.get("network-config") == (None if network is None else network.encode())
    assert len(image) % 2048 == 0
    assert image == seed.render(b"#!" + user, META + meta, network)


@pytest.fixture
def zone(monkeypatch):
    """Set the time zone of the process; it is put back afterwards."""
    def change(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()
    yield change
    monkeypatch.undo()
    time.tzset()


def test_clock_and_time_zone_change_no_bit(monkeypatch, zone):
    images = set()
    for name, seconds in (("UTC", 0.0), ("XXX-14", 1764448000.5), ("XXX+11:30", 4102444799.0), ("UTC", 951782399.0)):
        zone(name)
        with monkeypatch.context() as patched:
            patched.setattr(time, "time", lambda seconds=seconds: seconds)
            images.add(seed.render(USER, META, NETWORK))
    assert len(images) == 1


def test_the_dates_that_are_fixed_are_all_there_are(monkeypatch):
    # Without the fixing two clocks do make two images: else the test above would show nothing.
    monkeypatch.setattr(seed, "fix_dates", lambda image: None)
    images = set()
    for seconds in (0.0, 1764448000.5):
        monkeypatch.setattr(time, "time", lambda seconds=seconds: seconds)
        images.add(seed.render(USER, META, NETWORK))
    assert len(images) == 2


def test_the_bits_are_the_same_on_every_release_of_pycdlib():
    # Another value would make every seed in the field look different from what is rendered.
    digest = hashlib.sha256(seed.render(USER, META, NETWORK)).hexdigest()
    assert digest == "79f29474d35bbfacda4410c317ae0e068dc0e68f44ad36e49d96275d44163b1d"


@pytest.mark.parametrize("user_data", [
    "#cloud-config\n", "#cloud-config\r\na: b\r\n", "\n\n#cloud-config\n", "#Cloud-Config\n", "#!/bin/sh\ntrue\n",
    "#include\nhttps://x.example/\n",
    "#include-once\nhttps://x.example/\n", "#cloud-config-archive\n- {}\n", "#cloud-boothook\n", "#part-handler\n",
    "## template: jinja\n#cloud-config\n",
    "Content-Type: multipart/mixed; boundary=x\nMIME-Version: 1.0\n\n--x--\n", b"#cloud-config\n\xff",
    gzip.compress(b"#cloud-config\n" + b"a" * 100000, mtime=0), gzip.compress(b"MIME-Version: 1.0\n", mtime=0), gzip.compress(b"#!/bin/sh\n", mtime=0)[:40]])
def test_what_cloud_init_knows_is_taken(user_data):
    seed.check_user_data(user_data)
    assert seed.render(user_data, META)


@pytest.mark.parametrize("user_data", [
    "packages: [tinyproxy]\n", "# cloud-config\n", "# a comment\n#cloud-config\n", "cloud-config\n", "---\n#cloud-config\n",
    " ", "\n", "{}", b"BZh9", b"\0" * 100, "a" * 5000 + "mime-version:",
    gzip.compress(b"packages: []\n", mtime=0), gzip.compress(b"", mtime=0), b"\x1f\x8bnot really", b"\x1f\x8b"])
def test_what_cloud_init_would_ignore_is_refused(user_data):
    with pytest.raises(InvalidInput) as caught:
        seed.render(user_data, META)
    assert caught.value.object == "user_data" and caught.value.hint


@pytest.mark.parametrize("width", [None, 76])
@pytest.mark.parametrize("content", [USER.encode(), b"MIME-Version: 1.0\n" * 500])
def test_gzip_in_base64_becomes_gzip(content, width):
    packed = gzip.compress(content, mtime=0)
    text = base64.b64encode(packed).decode()
    if width is not None:
        text = "\n".join(text[at:at + width] for at in range(0, len(text), width)) + "\n"
    assert files_of(seed.render(text, META))[0]["user-data"] == packed
    assert seed.inputs_hash(text, META) == seed.inputs_hash(packed, META)


@pytest.mark.parametrize(("user_data", "part"), [
    ("H4sI=", "damaged"), ("H4sI!!!!", "damaged"), ("H4sIAAAA", "ignore it"),
    (base64.b64encode(gzip.compress(b"packages: []\n", mtime=0)).decode(), "ignore it")])
def test_what_is_no_gzip_in_base64_after_all_is_refused(user_data, part):
    with pytest.raises(InvalidInput, match=part) as caught:
        seed.render(user_data, META)
    assert caught.value.object == "user_data" and user_data not in str(caught.value)


def test_a_refusal_names_the_option_and_shows_nothing_of_its_content():
    with pytest.raises(InvalidInput) as caught:
        seed.check_user_data("password: s3cret\n", "user_data of instance p1")
    assert str(caught.value).startswith("Failed to read user_data of instance p1: cloud-init would ignore it")
    assert "s3cret" not in str(caught.value)


def test_meta_data_without_an_instance_id_is_refused():
    for meta_data in ("", None, "local-hostname: a\n"):
        with pytest.raises(InvalidInput, match="no instance-id"):
            seed.render(USER, meta_data)


def test_bytes_that_ansible_hands_on_as_surrogates_go_back_to_what_they_were():
    assert files_of(seed.render("#cloud-config\n\udcff", META))[0]["user-data"] == b"#cloud-config\n\xff"
    with pytest.raises(InvalidInput, match="position 14"):
        seed.render("#cloud-config\n\ud800", META)


def test_without_pycdlib_the_error_says_so(monkeypatch):
    monkeypatch.setattr(seed, "pycdlib", None)
    with pytest.raises(MissingLibrary, match="pycdlib is not installed") as caught:
        seed.render(USER, META)
    assert caught.value.kind == PERMANENT and caught.value.library == "pycdlib"


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_fuzzed_user_data_is_taken_or_refused(start, rest):
    for user_data in (start, b"\x1f\x8b" + start, gzip.compress(start, mtime=0)[:-4] + rest):
        try:
            seed.check_user_data(user_data)
        except InvalidInput as error:
            assert error.object == "user_data"
        else:
            assert user_data


contents = st.text("ab0 \n", max_size=6)
inputs = st.tuples(contents.map(lambda text: "#!" + text), contents.map(lambda text: "instance-id" + text), st.none() | contents)


@given(inputs, inputs)
def test_different_inputs_have_different_hashes(one, other):
    assert (seed.inputs_hash(*one) == seed.inputs_hash(*other)) == (one == other)


def test_the_hash_of_inputs_never_changes():
    # It is in the marks of all instances.
    assert seed.inputs_hash(USER, META, NETWORK) == "16fb863439e2468c14682b40b9d9e2fec9a35cd37a6f6eb17a5dd59684211899"
