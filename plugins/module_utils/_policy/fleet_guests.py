# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the guests of one hypervisor's share get: their cloud-init user data and network configuration. Passwords pass through here."""

from __future__ import annotations

from . import fleet, guest_network
from .cloud_config import render
from .engines import Settings
from .guest_config import cloud_config


def guests(definition, hypervisor, overlays=(), family="ipv4", packages=None, more=None, **settings):
    """The instances of a hypervisor's share of a definition without problems, in the form that kvm2_domain takes.

    overlays: as for fleet.share.  family: of the addresses that DHCP servers are asked for.  packages: what the guests install, None for
    each engine's own.  more: cloud-init configuration that is merged in.  settings: of engines.Settings.
    """
    complete, secret = fleet.normalise(definition), fleet.passwords(definition)
    networks = complete["networks"]
    settings = Settings(interfaces=guest_network.interface_names(networks), **settings)
    instances = {one["name"]: one for one in complete["instances"]}
    domains = fleet.share(complete, hypervisor, overlays)["domains"]
    for domain in domains:
        one = instances[domain["name"]]
        proxy = dict(one["proxy"], password=secret[domain["name"]])
        domain["user_data"] = render(cloud_config(one["uid"], proxy, settings, complete["authorized_keys"], packages, more))
        domain["network_config"] = guest_network.network_config(one["uid"], networks, one["addresses"], complete["dns"], family)
    return domains
