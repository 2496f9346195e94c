# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kvm2_proxy_check: a real request through each proxy, all of them at the same time."""

from __future__ import annotations

import ipaddress
import json
import threading
import time
from dataclasses import dataclass
from typing import Optional, Union
from urllib.parse import urlsplit

from .._host import proxy_request
from .._policy.endpoints import proxy_url
from .._policy.errors import PERMANENT, TRANSIENT, InvalidInput, Kvm2Error
from .._policy.plan import Plan
from .._policy.units import parse_duration
from .service import Service

# Between two requests to the same proxy: nothing tells when a guest's proxy has started, so it is asked.
_PAUSE = 0.5
# Beyond its own deadline a request can only hang in the lookup of a host name.
_LOOKUP = 30.0
# Between two looks whether anybody still wants the answers.
_LOOK = 0.5
_MAY_PASS = (408, 425, 429)
# How a proxy of HTTP turns a client away: without the right password (tinyproxy says 401 to a wrong one) or from an address it does not know.
_REFUSING = (401, 403, 407)


@dataclass
class Outcome:
    """What is known of one proxy so far."""

    proxy: dict
    answer: Optional[Union[proxy_request.Answer, proxy_request.Refusal]] = None
    error: Optional[Kvm2Error] = None
    attempts: int = 0

    @property
    def response(self):
        """What came through HTTP, or None."""
        return self.answer if isinstance(self.answer, proxy_request.Answer) else None


class ProxyCheckService(Service):
    """Needs no hypervisor: everything is read in observe, and there is never anything to change."""

    def __init__(self, params, context):
        super().__init__(params, context)
        self._stopping = threading.Event()
        self.url, self.expected = params["url"], params["expect_status"]
        self.timeout = parse_duration(params["timeout"], "timeout")
        self.wait = parse_duration(params["wait"], "wait")
        self._check()

    def _check(self):
        try:
            parts = urlsplit(self.url)
            good = parts.scheme == "http" and parts.hostname and parts.port != 0 and self.url.isascii() and " " not in self.url
        except ValueError:
            good = False
        if not good or not self.url.isprintable():
            raise InvalidInput(f"url {self.url!r}", "it is not an http URL", "Give one such as http://egress.example.com/whoami.")
        if self.timeout <= 0:
            raise InvalidInput(f"timeout {self.params['timeout']!r}", "it must be longer than 0", "Give a duration such as 10s.")
        for index, proxy in enumerate(self.params["proxies"]):
            if not 1 <= proxy["port"] <= 65535:
                raise InvalidInput(f"proxies[{index}].port {proxy['port']}", "it is not a TCP port", "Give a number from 1 to 65535.")
            if not proxy["address"].strip():
                raise InvalidInput(f"proxies[{index}].address", "it is empty", "Give an address or a host name.")
            _check_login(f"proxies[{index}]", proxy)
            _check_source(f"proxies[{index}].source_address", proxy.get("source_address"))

    # -- the pipeline

    def observe(self, hypervisor):
        outcomes = [Outcome(proxy) for proxy in self.params["proxies"]]
        until = time.monotonic() + self.wait
        threads = [threading.Thread(target=self._ask, args=(outcome, until), name="kvm2-proxy", daemon=True) for outcome in outcomes]
        for thread in threads:
            thread.start()
        try:
            self._wait(threads, until + self.timeout + _LOOKUP)
        finally:
            self._stopping.set()
        for outcome, thread in zip(outcomes, threads):
            if thread.is_alive():
                outcome.error = Kvm2Error(
                    TRANSIENT, "ask", _object(outcome.proxy), "its host name could not be looked up in time", "Give its IP address.")
        return outcomes

    def _wait(self, threads, latest):
        for thread in threads:
            while thread.is_alive() and time.monotonic() < latest:
                self.context.check_stop()
                thread.join(min(_LOOK, max(0.0, latest - time.monotonic())))

    def plan(self, seen):
        for outcome in seen:
            if outcome.error is not None:
                self.context.failed(outcome.proxy["name"], outcome.error)
        return Plan()

    def predict(self, seen, plan):
        return {"proxies": [_shown(outcome) for outcome in seen]}

    def apply(self, hypervisor, seen, plan):
        return self.predict(seen, plan)

    # -- one proxy

    def _ask(self, outcome, until):
        """Ask until it answers as expected or the time is over; at least once."""
        proxy = outcome.proxy
        asked = proxy_request.Proxy(
            proxy["scheme"], proxy["address"], proxy["port"], proxy.get("user"), proxy.get("password"), proxy.get("source_address"))
        while True:
            outcome.attempts += 1
            try:
                answer = proxy_request.ask(asked, self.url, self.timeout, _object(proxy))
                judge = self._judge_refusal if proxy.get("expect") == "refused" else self._judge
                outcome.answer, outcome.error = answer, judge(proxy, answer)
            except Kvm2Error as error:
                outcome.answer, outcome.error = None, error
            if outcome.error is None or time.monotonic() + _PAUSE >= until or self._stopping.wait(_PAUSE):
                return

    def _judge(self, proxy, answer):
        act, obj = "get an answer through", _object(proxy)
        if isinstance(answer, proxy_request.Refusal):
            return Kvm2Error(PERMANENT, act, obj, f"the proxy refused: {answer.how}", _ALLOWS)
        if answer.status == self.expected:
            return None
        cause = f"{self.url} was answered with status {answer.status} where {self.expected} is expected"
        if answer.status in _REFUSING:
            hint = _ALLOWS
        elif answer.status >= 500:
            hint = "See that the proxy's machine reaches the server of this URL."
        else:
            hint = "See that this URL is answered so without a proxy."
        kind = TRANSIENT if answer.status >= 500 or answer.status in _MAY_PASS else PERMANENT
        return Kvm2Error(kind, act, obj, cause, hint)

    def _judge_refusal(self, proxy, answer):
        if isinstance(answer, proxy_request.Refusal) or (answer.status in _REFUSING and answer.status != self.expected):
            return None
        return Kvm2Error(
            PERMANENT, "be refused by", _object(proxy), f"{self.url} was answered with status {answer.status}, so the proxy let the request through",
            "See which clients and users the proxy allows; it may also have started with another configuration.")


_ALLOWS = "See that the proxy allows clients of this machine's address, and that user and password are right."


def _check_login(obj, proxy):
    user, password = proxy.get("user"), proxy.get("password")
    if (user is None) != (password is None):
        raise InvalidInput(obj, "of user and password only one is given", "Give both or none.")
    if user is None:
        return
    if proxy["scheme"] == "http" and ":" in user:
        raise InvalidInput(f"{obj}.user", "it holds a colon, which ends the name where HTTP carries it", "Use another name.")
    for key, text in (("user", user), ("password", password)):
        if not 1 <= len(text.encode("utf-8", "surrogateescape")) <= 255:
            raise InvalidInput(f"{obj}.{key}", "it is empty or has more than 255 bytes", "Give what the proxy was set up with.")


def _check_source(obj, source):
    if source is None:
        return
    try:
        ipaddress.ip_address(source)
    except ValueError:
        raise InvalidInput(f"{obj} {source!r}", "it is not an IP address", "Give one of this machine's own.") from None


def _object(proxy):
    return f"proxy {proxy['name']} ({_url(proxy)})"


def _url(proxy):
    return proxy_url(proxy["address"], proxy["port"], proxy["scheme"])


def _shown(outcome):
    proxy, response, error = outcome.proxy, outcome.response, outcome.error
    refused = None
    if error is None and proxy.get("expect") == "refused":
        refused = f"status {response.status}" if response else outcome.answer.how
    text = _body(proxy, response) if response else None
    return {
        "name": proxy["name"], "address": proxy["address"], "port": proxy["port"], "scheme": proxy["scheme"], "url": _url(proxy),
        "ok": error is None, "status": response.status if response else None, "body": text, "refused": refused,
        "egress_address": _egress_address(text) if error is None and refused is None else None,
        "attempts": outcome.attempts, "duration": round(outcome.answer.duration, 3) if outcome.answer else None,
        "error": error.as_dict() if error else None}


def _body(proxy, response):
    """The body, without the password in the form that HTTP carries it: a server may answer with the headers it was asked with."""
    text = response.body.decode("utf-8", "replace")
    token = proxy_request.Proxy(proxy["scheme"], "", 0, proxy.get("user"), proxy.get("password")).token
    return text.replace(token, "********") if token else text


def _egress_address(text):
    """The field "address" of a JSON object, or None."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    address = value.get("address") if isinstance(value, dict) else None
    return address if isinstance(address, str) else None
