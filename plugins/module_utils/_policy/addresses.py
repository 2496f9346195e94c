# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of the addresses that a hypervisor reports are a guest's own, and which sources can know them."""

from __future__ import annotations

import ipaddress

from .errors import InvalidInput

FAMILIES = {"ipv4": 4, "ipv6": 6}


def usable(addresses, macs, family=None):
    """Addresses (model.Address) of our interfaces, in the order of the interfaces' MACs, each once; no loopback, no link-local.

    family: "ipv4", "ipv6" or None for both.
    """
    order = {mac.lower(): index for index, mac in enumerate(macs)}
    found = {}
    for entry in addresses:
        if entry.mac.lower() not in order:
            continue
        try:
            parsed = ipaddress.ip_address(entry.address.partition("%")[0])
        except ValueError:
            continue
        if parsed.is_loopback or parsed.is_link_local or parsed.is_unspecified or parsed.is_multicast:
            continue
        if family is not None and parsed.version != FAMILIES[family]:
            continue
        found.setdefault(str(parsed), (order[entry.mac.lower()], parsed.version, int(parsed), entry))
    return tuple(value[3] for value in sorted(found.values(), key=lambda value: value[:3]))


def sources(asked, kinds):
    """Sources to ask, best first, for interfaces of those kinds ("network", "bridge"); asked: auto, lease, agent or arp.

    libvirt keeps no leases for guests on a bridge of the host: waiting for one could only time out, so that is refused.
    """
    if asked != "auto":
        if asked == "lease" and "network" not in kinds:
            raise InvalidInput(
                "wait.source lease", "the guest is on bridges only, for which libvirt keeps no leases", "Use agent, arp or auto.")
        return (asked,)
    return ("lease", "agent") if "network" in kinds else ("agent", "arp")
