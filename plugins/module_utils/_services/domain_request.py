# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kvm2_domain is asked for: its options checked by themselves, before anything is looked at."""

from __future__ import annotations

from typing import Dict
from urllib.parse import urlsplit

from .._policy import addresses, specification
from .._policy.errors import InvalidInput
from .._policy.units import parse_count, parse_duration
from . import holds
from .instances import parse_instances
from .service import Service

# Threads of one module; libvirt works on 5 requests of a client at once unless told otherwise.
MAX_REQUESTS = 64


class DomainRequest(Service):
    """wanted, sources and holds are by uid, and empty with state absent."""

    def __init__(self, params, context):
        super().__init__(params, context)
        self.pool, self.fleet, self.state, self.on_change = params["pool"], params["fleet"], params["state"], params["on_change"]
        self.instances = parse_instances(self.fleet, params["instances"])
        self.host = params["host"]
        if self.host and len(self.host) > 253:
            raise InvalidInput(f"host {self.host!r}", "it is longer than a host name can be", "Use the hypervisor's name in the fleet definition.")
        self.stop_timeout = parse_duration(params["stop"]["timeout"], "stop.timeout")
        self.wait_timeout = parse_duration(params["wait"]["timeout"], "wait.timeout")
        self.at_once = self._at_once(params["max_parallel"])
        self.max_requests = _max_requests(params["max_requests"])
        self.wanted: Dict[str, specification.Wanted] = {}
        self.sources, self.holds = {}, {}
        if self.state != "absent":
            for instance in self.instances:
                options = specification.merge(params, instance.options)
                if urlsplit(params["uri"]).path == "/session":
                    # The log daemon of a user may not write where consoles are logged, and no guest would start.
                    options["console_log"] = False
                wanted = self.wanted[instance.uid] = specification.wanted(options, instance)
                kinds = {interface.kind for interface in wanted.interfaces}
                self.sources[instance.uid] = addresses.sources(params["wait"]["source"], kinds)
                own = instance.options.get("hold")
                self.holds[instance.uid] = holds.wanted(own if own is not None else params["hold"], instance)
            specification.check_distinct_macs({instance.name: self.wanted[instance.uid] for instance in self.instances})
            self._check_wait(params["wait"]["for"])

    def _check_wait(self, what):
        without = [instance.name for instance in self.instances if not self.wanted[instance.uid].interfaces]
        if self.state == "running" and what == "address" and without:
            raise InvalidInput(
                f"networks of instance {', '.join(without)}", "they are empty, so wait.for address could only time out",
                "Give at least one network or bridge, or set wait.for to running or agent.")

    def _at_once(self, text):
        kind, number = parse_count(text, "max_parallel")
        if not number:
            raise InvalidInput(f"max_parallel {text!r}", "nothing could ever be changed", "Give 1 or more, or a percentage.")
        return int(number) if kind == "count" else max(1, int(len(self.instances) * number / 100))


def _max_requests(number):
    if not 1 <= number <= MAX_REQUESTS:
        raise InvalidInput(f"max_requests {number}", f"it is not from 1 to {MAX_REQUESTS}", "More than libvirt's max_client_requests only wait in the daemon.")
    return number
