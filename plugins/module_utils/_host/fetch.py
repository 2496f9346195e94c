# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sources of images and sums files: the only file that opens a URL."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import socket
import ssl
import tempfile
from dataclasses import dataclass, field
from typing import Mapping, Optional
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit, urlunsplit

from ansible.module_utils.urls import ConnectionError as UrlConnectionError
from ansible.module_utils.urls import NoSSLError, SSLValidationError, open_url

from .._policy.errors import PERMANENT, QUOTA, TRANSIENT, InvalidInput, Kvm2Error

BLOCK = 262144
TEXT_LIMIT = 4 * 1024 ** 2
_TRY_AGAIN = {408, 425, 429, 500, 502, 503, 504}


@dataclass(frozen=True)
class FetchOptions:
    """As in ansible.builtin.get_url; timeout in seconds, for each wait on the network."""

    timeout: float = 30
    headers: Mapping[str, str] = field(default_factory=dict)
    client_cert: Optional[str] = None
    client_key: Optional[str] = None
    validate_certs: bool = True
    use_proxy: bool = True
    username: Optional[str] = None
    password: Optional[str] = None
    force_basic_auth: bool = False
    http_agent: Optional[str] = None
    ca_path: Optional[str] = None


def check_url(url, what):
    """Raise InvalidInput for what is no http or https URL that can be asked."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good or re.search(r"[\x00-\x20\x7f]", url):
        # Not shown: what does not parse may hold a password anywhere.
        raise InvalidInput(what, "it is not an http or https URL", "Write it as http://host/path, a blank in it as %20; for a file on the hypervisor use src.")


def shown(url):
    """The URL without user, password, query and fragment: fit for messages and records."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    if parts.port:
        host = f"{host}:{parts.port}"
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def identifying(url):
    """The URL as shown, with a digest in the place of its query: two queries are two sources, and what they say stays hidden."""
    query = urlsplit(url).query
    return f"{shown(url)}#{hashlib.sha256(query.encode()).hexdigest()[:16]}" if query else shown(url)


class Source:
    """An open source. length is in bytes, or None where it is not known beforehand."""

    def __init__(self, name, handle, length, etag=None, last_modified=None):
        self.name = name
        self.length = length
        self.etag = etag
        self.last_modified = last_modified
        self._handle = handle

    def blocks(self):
        """Blocks of the content; a source that ends before its announced length, or goes on after it, is a transient error."""
        have = 0
        while True:
            try:
                block = self._handle.read(BLOCK)
            except (http.client.HTTPException, socket.timeout, OSError) as error:
                raise Kvm2Error(TRANSIENT, "fetch", self.name, error or type(error).__name__, "Try again.") from error
            have += len(block)
            if self.length is not None and (have > self.length or (not block and have < self.length)):
                raise Kvm2Error(
                    TRANSIENT, "fetch", self.name, f"it announced {self.length} bytes and gave {'more' if have > self.length else have}", "Try again.")
            if not block:
                return
            yield block

    def close(self):
        self._handle.close()


def _request(url, options, method):
    headers = dict(options.headers)
    # What is hashed must be the file itself, not what a server made of it.
    headers.setdefault("Accept-Encoding", "identity")
    name = f"URL {shown(url)}"
    try:
        return open_url(
            url, method=method, headers=headers, timeout=options.timeout, validate_certs=options.validate_certs, use_proxy=options.use_proxy,
            url_username=options.username, url_password=options.password, force_basic_auth=options.force_basic_auth,
            http_agent=options.http_agent or "egress.kvm2", ca_path=options.ca_path, client_cert=options.client_cert,
            client_key=options.client_key, follow_redirects="safe", decompress=False)
    except HTTPError as error:
        kind = TRANSIENT if error.code in _TRY_AGAIN else PERMANENT
        hint = "Try again later." if kind == TRANSIENT else "Check the URL and the rights to it."
        raise Kvm2Error(kind, "fetch", name, f"the server answered {error.code} {error.reason}", hint) from error
    except (SSLValidationError, NoSSLError, ssl.SSLError) as error:
        raise Kvm2Error(PERMANENT, "fetch", name, error, "Give the authority's certificate with ca_path.") from error
    except URLError as error:
        raise _unreachable(name, error.reason) from error
    except (UrlConnectionError, http.client.HTTPException, OSError) as error:
        raise _unreachable(name, error) from error
    except ValueError as error:
        raise Kvm2Error(PERMANENT, "fetch", name, error, "Check the URL.") from error


def _unreachable(name, cause):
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Kvm2Error(PERMANENT, "fetch", name, cause, "Give the authority's certificate with ca_path.")
    return Kvm2Error(TRANSIENT, "fetch", name, cause, "Check that the server answers from the machine the module runs on; then try again.")


def _length(response):
    text = response.headers.get("Content-Length")
    if response.headers.get("Transfer-Encoding") or text is None or not text.strip().isdigit():
        return None
    return int(text)


def open_source(url, options):
    response = _request(url, options, "GET")
    return Source(f"URL {shown(url)}", response, _length(response), response.headers.get("ETag"), response.headers.get("Last-Modified"))


def probe(url, options):
    """Length in bytes of what a URL would give, or None where the server does not say; nothing is fetched."""
    try:
        response = _request(url, options, "HEAD")
    except Kvm2Error as error:
        if "answered 405" in error.cause or "answered 501" in error.cause:
            return None
        raise
    try:
        return _length(response)
    finally:
        response.close()


def read_text(url, options):
    """A small text file, such as SHA256SUMS, at most 4 MiB."""
    source = open_source(url, options)
    try:
        data = b""
        for block in source.blocks():
            data += block
            if len(data) > TEXT_LIMIT:
                raise Kvm2Error(PERMANENT, "read", source.name, "it is larger than a list of checksums can be", "Check the URL in checksum.")
        return data.decode("utf-8", "replace")
    finally:
        source.close()


def open_file(path):
    name = f"file {path}"
    try:
        handle = open(path, "rb")
        info = os.fstat(handle.fileno())
    except OSError as error:
        raise Kvm2Error(PERMANENT, "read", name, error.strerror or error, "src names a file on the machine the module runs on.") from error
    return Source(name, handle, info.st_size)


def spool(source, folder):
    """Copy a source of unknown length into an unnamed temporary file, so that its length is known."""
    try:
        handle = tempfile.TemporaryFile(dir=folder)
    except OSError as error:
        raise Kvm2Error(PERMANENT, "use", f"tmpdir {folder}", error.strerror or error, "Give a folder that exists and can be written.") from error
    try:
        length = 0
        for block in source.blocks():
            handle.write(block)
            length += len(block)
        handle.flush()
    except OSError as error:
        handle.close()
        raise Kvm2Error(
            QUOTA, "spool", f"{source.name} in {folder or tempfile.gettempdir()}", error.strerror or error, "Give a tmpdir with more room.") from error
    except Kvm2Error:
        handle.close()
        raise
    handle.seek(0)
    return Source(source.name, handle, length, source.etag, source.last_modified)
