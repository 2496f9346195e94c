# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sums files as distributions publish them."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import InvalidInput
from ansible_collections.egress.kvm2.plugins.module_utils._policy.sums import find_checksum

A, B = "0a" * 32, "0b" * 32
LONG = "0c" * 64

FORMS = {
    "text": f"{A}  image.qcow2\n{B}  other.qcow2\n",
    "binary": f"{A} *image.qcow2\n{B} *other.qcow2\n",
    "dot slash": f"{A}  ./image.qcow2\n",
    "in a folder": f"{A}  amd64/image.qcow2\n",
    "BSD": f"SHA256 (image.qcow2) = {A}\nSHA256 (other.qcow2) = {B}\nSHA512 (image.qcow2) = {LONG}\n",
    "openssl": f"SHA2-256(image.qcow2)= {A}\n",
    "upper case": f"{A.upper()}  image.qcow2\n",
    "carriage returns": f"{A}  image.qcow2\r\n{B}  other.qcow2\r\n",
    "no newline at the end": f"{A}  image.qcow2",
    "with comments": f"# image.qcow2: 5 bytes\nSHA256 (image.qcow2) = {A}\n",
    "the same twice": f"{A}  image.qcow2\n{A} *image.qcow2\n",
    "two algorithms": f"{LONG}  image.qcow2\n{A}  image.qcow2\n",
    "name begins alike": f"{B}  image.qcow2.asc\n{B}  my-image.qcow2\n{A}  image.qcow2\n",
    "exact before folder": f"{B}  old/image.qcow2\n{A}  image.qcow2\n",
    "digest alone": f"{A}\n",
    "clear-signed": (
        f"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n# Fedora\nSHA256 (image.qcow2) = {A}\n- {B}  other.qcow2\n"
        "-----BEGIN PGP SIGNATURE-----\n\niQIzBAEB\n-----END PGP SIGNATURE-----\n"),
    "clear-signed with more after it": (
        f"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n{A}  image.qcow2\n-----BEGIN PGP SIGNATURE-----\nx\n"
        f"-----END PGP SIGNATURE-----\n{B}  image.qcow2\n"),
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_forms(text):
    assert find_checksum(text, "image.qcow2", "sha256") == A


def test_the_other_algorithm():
    assert find_checksum(FORMS["BSD"], "image.qcow2", "sha512") == LONG
    assert find_checksum(FORMS["two algorithms"], "image.qcow2", "sha512") == LONG


def test_different_entries_are_an_error():
    with pytest.raises(InvalidInput, match="2 different"):
        find_checksum(f"{A}  image.qcow2\n{B}  ./image.qcow2\n", "image.qcow2", "sha256")
    with pytest.raises(InvalidInput, match="2 different"):
        find_checksum(f"{A}  a/image.qcow2\n{B}  b/image.qcow2\n", "image.qcow2", "sha256")


def test_a_name_that_is_not_listed():
    with pytest.raises(InvalidInput) as error:
        find_checksum(f"{A}  debian-12-amd64.qcow2\n{B}  README\n", "debian-12-arm64.qcow2", "sha256")
    assert "debian-12-arm64.qcow2" in error.value.message
    assert "debian-12-amd64.qcow2" in error.value.hint
    assert "README" not in error.value.hint


@pytest.mark.parametrize(("text", "hint"), [
    (f"{LONG}  image.qcow2\n", "sha512:"), ("<html>404</html>", "no sha256 checksums at all"), ("", "no sha256 checksums at all"),
    (f"{A}\n{B}\n", "no sha256 checksums at all"), (f"{B}  x\n", "1 names, such as x")])
def test_the_hint(text, hint):
    with pytest.raises(InvalidInput) as error:
        find_checksum(text, "image.qcow2", "sha256")
    assert hint in error.value.hint


@given(st.text(), st.text(min_size=1))
def test_any_text_gives_an_answer_or_that_error(text, name):
    try:
        assert len(find_checksum(text, name, "sha256")) == 64
    except InvalidInput as error:
        assert error.hint


@pytest.mark.parametrize("name", ["image.qcow2", "two words.img", "*star", "back\\slash", "new\nline", "(a) = b"])
@pytest.mark.parametrize("options", [(), ("--tag",), ("--binary",)])
def test_what_sha256sum_writes(tmp_path, name, options):
    (tmp_path / name).write_bytes(b"x")
    text = subprocess.run([shutil.which("sha256sum"), *options, name], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert find_checksum(text, name, "sha256") == "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
