# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of kvm2_image, checked and parsed once."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Optional
from urllib.parse import unquote, urlsplit

from .._host.fetch_options import FetchOptions
from .._policy import http_text, names
from .._policy.errors import InvalidInput
from .._policy.sums import HEX_LENGTH
from .._policy.units import parse_duration, parse_size

# The kernel takes this user and group for none at all.
_NOBODY = 2 ** 32 - 1


@dataclass(frozen=True)
class Checksum:
    """algorithm and either the hex digest or the URL of a sums file."""

    algorithm: str
    digest: Optional[str] = None
    url: Optional[str] = None

    def __str__(self):
        return f"{self.algorithm}:{self.digest}"


@dataclass(frozen=True)
class ImageOptions:
    """What is asked for.

    format: None for both, where bases are retired. max_virtual_size: bytes or None. fetch: how `url` is asked; fetch_sums: how the sums file is."""

    key: str
    format: Optional[str]
    pool: str
    url: Optional[str]
    src: Optional[str]
    checksum: Optional[Checksum]
    present: bool
    exclusive: bool
    sparse: bool
    refresh: bool
    verify: str
    max_virtual_size: Optional[int]
    tmpdir: Optional[str]
    mode: str
    owner: Optional[int]
    group: Optional[int]
    fetch: FetchOptions
    fetch_sums: FetchOptions

    @property
    def source_name(self):
        """The source as it is shown and recorded, without secrets; None where none was given."""
        if self.src is not None:
            return self.src
        return None if self.url is None else http_text.identifying(self.url)

    @property
    def checksum_url(self):
        """The URL of the sums file as it is shown and recorded, empty where there is none."""
        return http_text.shown(self.checksum.url) if self.checksum is not None and self.checksum.url is not None else ""

    @property
    def file_name(self):
        """The name under which a sums file lists the image."""
        return os.path.basename(self.src) if self.src is not None else unquote(urlsplit(self.url or "").path.rpartition("/")[2])


def parse_checksum(text):
    """Checksum of an option value such as sha256:<hex> or sha512:https://…/SHA512SUMS; None for None."""
    if text is None:
        return None
    algorithm, colon, rest = text.strip().partition(":")
    if not colon or algorithm not in HEX_LENGTH:
        raise InvalidInput(f"checksum {text!r}", "it does not start with sha256: or sha512:", "Write sha256:<hex>, or sha256:<URL of SHA256SUMS>.")
    if re.match(r"https?://", rest):
        return Checksum(algorithm, url=rest)
    if not re.fullmatch(r"[0-9A-Fa-f]+", rest) or len(rest) != HEX_LENGTH[algorithm]:
        raise InvalidInput(
            f"checksum {text!r}", f"a {algorithm} checksum has {HEX_LENGTH[algorithm]} hexadecimal digits", "Copy it again, or give a URL.")
    return Checksum(algorithm, digest=rest.lower())


def parse(params, check_stop):
    """ImageOptions of the module's parameters. check_stop: see service.Context."""
    checksum, url, src, largest = parse_checksum(params["checksum"]), params["url"], params["src"], params["max_virtual_size"]
    key = names.check_label(params["key"], "key")
    if url is not None:
        http_text.check_url(url, "url")
    if checksum is not None and checksum.url is not None:
        http_text.check_url(checksum.url, "the URL in checksum")
    if src is not None and not os.path.isabs(src):
        raise InvalidInput(f"src {src!r}", "it is not an absolute path", "Give the full path on the machine the module runs on.")
    if src is not None and not src.isprintable():
        raise InvalidInput(f"src {src!r}", "it holds characters that cannot be shown", "Give the file a plain name.")
    http_text.check_headers(params["headers"] or {})
    if params["http_agent"] is not None:
        http_text.check_headers({"User-Agent": params["http_agent"]}, "http_agent")
    for what in ("owner", "group"):
        if params[what] is not None and not 0 <= params[what] < _NOBODY:
            raise InvalidInput(f"{what} {params[what]}", f"it is not between 0 and {_NOBODY - 1}", "Give the number: id -u NAME, id -g NAME.")
    options = FetchOptions(
        timeout=parse_duration(params["fetch_timeout"], "fetch_timeout"), headers=params["headers"] or {},
        client_cert=params["client_cert"], client_key=params["client_key"], validate_certs=params["validate_certs"],
        use_proxy=params["use_proxy"], username=params["url_username"], password=params["url_password"],
        force_basic_auth=params["force_basic_auth"], http_agent=params["http_agent"], ca_path=params["ca_path"],
        pinned=checksum is not None, check_stop=check_stop)
    if options.timeout <= 0:
        raise InvalidInput(f"fetch_timeout {params['fetch_timeout']!r}", "it must be longer than 0", "Give a duration such as 30s.")
    return ImageOptions(
        key=key, format=params["format"] or ("qcow2" if params["state"] == "present" else None), pool=params["pool"], url=url, src=src, checksum=checksum,
        present=params["state"] == "present", exclusive=params["exclusive"], sparse=params["sparse"], refresh=params["refresh"] == "if_modified",
        verify=params["verify"], max_virtual_size=None if largest == "none" else parse_size(largest, "max_virtual_size"),
        tmpdir=params["tmpdir"], mode=params["mode"], owner=params["owner"], group=params["group"], fetch=options, fetch_sums=_for_sums(options, checksum, url))


def _for_sums(options, checksum, url):
    """What was given for the image's server is not told to another one; nor may what pins an image come from just anybody."""
    if checksum is None or checksum.url is None:
        return options
    return options.for_url(checksum.url, url or checksum.url).unpinned()
