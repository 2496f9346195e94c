# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a URL is asked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Mapping, Optional

from .._policy import http_text


def _nothing():
    """What is called in waits where nobody wants to stop them."""


@dataclass(frozen=True)
class FetchOptions:
    """As in ansible.builtin.get_url; timeout in seconds, for each wait on the network.

    headers, user, password and client certificate are for one server, that of the URL they are given with: a redirect to another one goes
    without them.  pinned: a checksum tells whether the right thing came, so that a redirect from https to http may be followed.
    check_stop: called in each wait; what it raises ends the fetch.
    """

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
    pinned: bool = False
    check_stop: Callable[[], Any] = _nothing

    def for_url(self, url, given_for):
        """These options for a request to `url`, where they were given for the URL `given_for`."""
        if http_text.same_server(given_for, url):
            return self
        return replace(self, headers={}, username=None, password=None, force_basic_auth=False, client_cert=None, client_key=None)

    def unpinned(self):
        return replace(self, pinned=False)
