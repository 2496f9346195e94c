# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy import http_text
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import InvalidInput


@pytest.mark.parametrize("url, text", [
    ("https://user:pw@host:8443/a/b.qcow2?token=x#f", "https://host:8443/a/b.qcow2"),
    ("http://[::1]:80/a", "http://[::1]:80/a"),
    ("http://host", "http://host"),
])
def test_shown_hides_secrets(url, text):
    assert http_text.shown(url) == text


@pytest.mark.parametrize("headers, says", [
    ({"X-Token": "secret\n"}, "the value of X-Token holds a line break"), ({"X-Token": "a\r\nsecret"}, "the value of X-Token holds a line break"),
    ({"X-Token": "secret\0"}, "the value of X-Token"), ({"X-Token": "secret\u20ac"}, "the value of X-Token"), ({"X-Token": None}, "is no text"),
    ({"X-Token: secret": ""}, "one of the names"), ({"secret\n": "a"}, "one of the names"), ({"": "secret"}, "one of the names"),
])
def test_headers_that_cannot_be_sent_are_named_and_not_shown(headers, says):
    with pytest.raises(InvalidInput) as caught:
        http_text.check_headers(headers)
    assert says in str(caught.value) and "secret" not in str(caught.value)


def test_headers_that_can_be_sent():
    http_text.check_headers({"Authorization": "Bearer a.b-c==", "X-Number": 5, "X-Empty": "", "X-Latin": "caf\u00e9\tau lait"})


@pytest.mark.parametrize("first, other, same", [
    ("http://h/a", "http://h/b", True), ("http://h/a", "http://h:80/b", True), ("http://h/a", "https://h/b", True),
    ("http://h/a", "http://H/b", True), ("https://h/a", "http://h/b", False), ("http://h/a", "http://h:8080/b", False),
    ("http://h:8080/a", "https://h/b", False), ("http://h/a", "https://h:444/b", False), ("http://h/a", "http://h.example/b", False),
    ("http://u:p@h/a", "http://h/b", True), ("http://h/a", "http://h@other/b", False),
])
def test_same_server(first, other, same):
    assert http_text.same_server(first, other) is same


@pytest.mark.parametrize("headers, length", [
    ({"Content-Length": "12"}, 12), ({"Content-Length": " 12 "}, 12), ({}, None), ({"Content-Length": "-1"}, None), ({"Content-Length": "1e3"}, None),
    ({"Content-Length": "٣"}, None), ({"Content-Length": "9" * 30}, None), ({"Content-Length": "12", "Transfer-Encoding": "chunked"}, None),
])
def test_length(headers, length):
    assert http_text.length(headers) == length


@pytest.mark.parametrize("text, length", [("bytes 0-9/100", 100), ("bytes 0-9/*", None), ("bytes */100", None), ("", None), ("bytes 0-9/x", None)])
def test_whole_length(text, length):
    assert http_text.whole_length({"Content-Range": text}) == length


@pytest.mark.parametrize("etag, modified, validator", [
    ('"a"', "date", '"a"'), ('W/"a"', "date", None), (None, "date", "date"), (None, None, None), ("", "", None)])
def test_resumable(etag, modified, validator):
    assert http_text.resumable(etag, modified) == validator


@pytest.mark.parametrize("answer, whole, good", [
    ("bytes 10-99/100", 100, True), ("bytes 10-99/100", None, True), ("bytes 10-99/*", 100, True), ("bytes 10-99/*", None, False),
    ("bytes 11-99/100", 100, False), ("bytes 10-98/100", 100, False), ("bytes 10-99/100", 101, False), ("bytes 0-99/100", 100, False), ("", 100, False),
])
def test_continues(answer, whole, good):
    headers = {"Content-Range": answer}
    assert http_text.continues(headers, 10, whole, '"a"', None) is good
    assert http_text.continues(dict(headers, ETag='"a"'), 10, whole, '"a"', None) is good
    assert http_text.continues(dict(headers, ETag='"b"'), 10, whole, '"a"', None) is False


@pytest.mark.parametrize("headers, etag, modified, same", [
    ({"ETag": '"a"'}, '"a"', None, True), ({"ETag": 'W/"a"'}, '"a"', None, True), ({"ETag": '"b"', "Last-Modified": "x"}, '"a"', "x", False),
    ({"Last-Modified": "x"}, '"a"', "x", True), ({"Last-Modified": "y"}, None, "x", False), ({}, '"a"', "x", None), ({"ETag": '"a"'}, None, None, None),
])
def test_same_version(headers, etag, modified, same):
    assert http_text.same_version(headers, etag, modified) is same


@given(st.text(max_size=60))
def test_any_text_is_a_url_or_refused(text):
    for url in (text, f"http://{text}", f"https://h/{text}"):
        try:
            http_text.check_url(url, "url")
        except InvalidInput:
            continue
        assert http_text.shown(url) and http_text.identifying(url) and http_text.same_server(url, url)
