# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images and sums files over HTTP: the only file that opens a URL."""

from __future__ import annotations

import http.client
import os
import ssl
import threading
import time
from urllib.error import HTTPError, URLError
from urllib.parse import urljoin

from ansible.module_utils.urls import ConnectionError as UrlConnectionError
from ansible.module_utils.urls import NoSSLError, SSLValidationError, open_url

from .._policy import http_text
from .._policy.errors import PERMANENT, TRANSIENT, InvalidInput, Kvm2Error
from .._policy.http_text import shown
from .source import BLOCK, Source

TEXT_LIMIT = 4 * 1024 ** 2
# Seconds before each further try.
PAUSES = (1, 2, 4)
# Seconds after which a block that is not full yet is handed on all the same, so that a slow server keeps nobody from seeing it or ending it.
PATIENCE = 0.5
# How often one stream is taken up again, however much came in between.
RESUMES = 50
_TRY_AGAIN = {408, 425, 429, 500, 502, 503, 504}
_REDIRECTS = {301, 302, 303, 307, 308}
_MOST_REDIRECTS = 10
_NO_HEAD = {403, 404, 405, 501}


class Interrupted(Kvm2Error):
    """A stream that broke off and cannot be continued: what follows may belong to other content. From the start it can be had."""


def _check_files(options):
    """Raise InvalidInput where a file with certificates cannot be read."""
    for what in ("client_cert", "client_key", "ca_path"):
        path = getattr(options, what)
        if path is not None and not os.access(path, os.R_OK):
            raise InvalidInput(f"{what} {path}", "there is no such file that can be read", "It has to be on the machine the module runs on.")


# -- one request


class _Answered(Kvm2Error):
    """A failure that the server itself told; status is that of HTTP."""

    def __init__(self, name, status, reason):
        kind = TRANSIENT if status in _TRY_AGAIN else PERMANENT
        hint = "Try again later." if kind == TRANSIENT else "Check the URL and the rights to it."
        super().__init__(kind, "fetch", name, f"the server answered {status} {reason}", hint)
        self.status = status


def _request(url, options, method="GET", more_headers=()):
    """The answer to a request, redirects followed; 304 is an answer. Raises Kvm2Error for everything else above 299."""
    _check_files(options)
    at = url
    for _count in range(_MOST_REDIRECTS):
        answer = _request_once(at, options.for_url(at, url), method, more_headers)
        if answer.status not in _REDIRECTS:
            return answer
        target = answer.headers.get("Location")
        answer.close()
        if not target:
            raise Kvm2Error(PERMANENT, "fetch", f"URL {shown(at)}", f"the server answered {answer.status} without saying where to go", "Check the URL.")
        target = urljoin(at, target.strip().replace(" ", "%20"))
        http_text.check_url(target, f"the redirect from URL {shown(at)}")
        if at.lower().startswith("https:") and not target.lower().startswith("https:") and not options.pinned:
            raise Kvm2Error(
                PERMANENT, "fetch", f"URL {shown(at)}", f"it redirects from https to {shown(target)}, where anybody on the way could answer",
                "Pin the image with a checksum, or give an https URL that stays so.")
        at = target
    raise Kvm2Error(PERMANENT, "fetch", f"URL {shown(url)}", f"it redirects more than {_MOST_REDIRECTS} times", "Check the URL.")


def _request_once(url, options, method, more_headers):
    headers = dict(options.headers)
    # What is hashed must be the file itself, not what a server made of it.
    headers.setdefault("Accept-Encoding", "identity")
    headers.update(more_headers)
    name = f"URL {shown(url)}"
    try:
        return open_url(
            url, method=method, headers=headers, timeout=options.timeout, validate_certs=options.validate_certs, use_proxy=options.use_proxy,
            url_username=options.username, url_password=options.password, force_basic_auth=options.force_basic_auth,
            http_agent=options.http_agent or "egress.kvm2", ca_path=options.ca_path, client_cert=options.client_cert,
            client_key=options.client_key, follow_redirects="none", decompress=False)
    except HTTPError as error:
        if error.code == 304 or error.code in _REDIRECTS:
            return error
        error.close()
        raise _Answered(name, error.code, error.reason) from error
    except (SSLValidationError, NoSSLError, ssl.SSLError) as error:
        raise _untrusted(name, error) from error
    except URLError as error:
        raise _unreachable(name, error.reason) from error
    except (UrlConnectionError, http.client.HTTPException, OSError) as error:
        raise _unreachable(name, error) from error
    except ValueError as error:
        raise Kvm2Error(PERMANENT, "fetch", name, error, "Check the URL.") from error


def _unreachable(name, cause):
    # A handshake can break off because of the certificates or because of the network; only the former stays so.
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _untrusted(name, cause)
    return Kvm2Error(
        TRANSIENT, "fetch", name, cause or type(cause).__name__, "Check that the server answers from the machine the module runs on; then try again.")


def _untrusted(name, cause):
    return Kvm2Error(
        PERMANENT, "fetch", name, cause, "Give the authority's certificate with ca_path, and client_cert where the server asks for one.")


def wait(seconds, check_stop):
    """Wait so long, or until check_stop raises."""
    while seconds > 0:
        check_stop()
        step = min(seconds, 0.5)
        threading.Event().wait(step)
        seconds -= step


def _with_patience(url, options, *arguments):
    """_request, tried again where that can help."""
    for pause in PAUSES:
        try:
            return _request(url, options, *arguments)
        except Kvm2Error as error:
            if error.kind != TRANSIENT:
                raise
        wait(pause, options.check_stop)
    return _request(url, options, *arguments)


# -- images


class HttpSource(Source):
    """An image over HTTP. A transfer that breaks off is taken up where it was, if the server says that it still has the same content."""

    def __init__(self, url, options, answer):
        super().__init__(f"URL {shown(url)}", answer, http_text.length(answer.headers))
        self.etag = answer.headers.get("ETag")
        self.last_modified = answer.headers.get("Last-Modified")
        self._url = url
        self._options = options

    def blocks(self):
        have = resumes = stuck = 0
        while True:
            block, end = self._read(BLOCK if self.length is None else min(BLOCK, self.length - have))
            if block:
                have, stuck = have + len(block), 0
                yield block
            if have == self.length or (self.length is None and end == ""):
                return
            if end is None:
                continue
            problem = f"it broke off after {have} bytes ({end})" if end else f"it broke off after {have} of {self.length} bytes"
            resumes += 1
            if resumes > RESUMES or stuck > len(PAUSES):
                raise Kvm2Error(TRANSIENT, "fetch", self.name, f"it broke off {resumes} times, at last after {have} bytes", "Try again.")
            if stuck:
                # Nothing came since the last time.
                wait(PAUSES[stuck - 1], self._options.check_stop)
            stuck += 1
            self._resume(have, problem)

    def _read(self, most):
        """(block, end): at most so many bytes, fewer where they come slowly. end: None while more may come, "" at the end, else what broke off."""
        pieces, until = [], time.monotonic() + PATIENCE
        while most > 0:
            try:
                piece = self._handle.read1(most)
            except (http.client.HTTPException, OSError) as error:
                return b"".join(pieces), str(error) or type(error).__name__
            pieces.append(piece)
            most -= len(piece)
            if not piece:
                return b"".join(pieces), ""
            if time.monotonic() >= until:
                break
        return b"".join(pieces), None

    def _resume(self, have, problem):
        """Have the rest sent, from byte `have` on."""
        self._handle.close()
        validator = http_text.resumable(self.etag, self.last_modified)
        if validator is None:
            raise Interrupted(TRANSIENT, "fetch", self.name, f"{problem}, and the server names no version to go on with", "Try again.")
        answer = _with_patience(self._url, self._options, "GET", {"Range": f"bytes={have}-", "If-Range": validator}.items())
        if answer.status != 206 or not http_text.continues(answer.headers, have, self.length, self.etag, self.last_modified):
            answer.close()
            raise Interrupted(TRANSIENT, "fetch", self.name, f"{problem}, and the server does not go on from there", "Try again.")
        self._handle = answer


def open_source(url, options):
    return HttpSource(url, options, _with_patience(url, options))


def probe(url, options, size):
    """(length in bytes or None, the first `size` bytes or more) of what a URL would give; little more than those is fetched."""
    try:
        answer = _with_patience(url, options, "GET", {"Range": f"bytes=0-{size - 1}"}.items())
    except _Answered as error:
        if error.status == 416:
            return 0, b""
        raise
    try:
        length = http_text.whole_length(answer.headers) if answer.status == 206 else http_text.length(answer.headers)
        return length, answer.read(size)
    except (http.client.HTTPException, OSError) as error:
        raise _unreachable(f"URL {shown(url)}", error) from error
    finally:
        answer.close()


def is_unchanged(url, options, etag, last_modified):
    """Does a URL still give what it gave with these validators? None where the server gives nothing to tell by."""
    headers = {name: value for name, value in (("If-None-Match", etag), ("If-Modified-Since", last_modified)) if value}.items()
    try:
        answer = _with_patience(url, options, "HEAD", headers)
    except _Answered as error:
        if error.status not in _NO_HEAD:
            raise
        answer = _with_patience(url, options, "GET", headers)
    try:
        if answer.status == 304:
            return True
        return http_text.same_version(answer.headers, etag, last_modified)
    finally:
        answer.close()


def read_text(url, options):
    """A small text file, such as SHA256SUMS, at most 4 MiB."""
    source = open_source(url, options)
    try:
        data = b""
        for block in source.blocks():
            data += block
            if len(data) > TEXT_LIMIT:
                raise Kvm2Error(PERMANENT, "read", source.name, "it is larger than a list of checksums can be", "Check the URL in checksum.")
        # Some editors begin a file with a byte order mark.
        return data.decode("utf-8-sig", "replace")
    finally:
        source.close()
