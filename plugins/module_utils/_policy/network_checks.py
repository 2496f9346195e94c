# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks and bridges that guests are to be attached to."""

from __future__ import annotations

import shlex

from .checks import FAIL, OK, SKIPPED, WARN, Check

# From this release on libvirt tags frames on the kernel's own bridges; before it an Open vSwitch has to, behind a libvirt network.
VLANS_ON_BRIDGES = 11_000_000


def networks(known, wanted):
    """The Checks for names of libvirt networks. known: of model.Network."""
    by_name = {network.name: network for network in known}
    for name in wanted:
        network, check, quoted = by_name.get(name), f"network {name}", shlex.quote(name)
        if network is None:
            listed = ", ".join(sorted(by_name)) or "none"
            yield Check(check, FAIL, f"There is no network {name} (there are: {listed}).", "Define it: virsh net-define, or name another one.")
        elif not network.active:
            yield Check(check, FAIL, f"The network {name} is not active.", f"Start it: virsh net-start {quoted}.")
        elif not network.autostart:
            yield Check(
                check, WARN, f"The network {name} is active, but it is not started together with the hypervisor: guests cannot start after a reboot.",
                f"Have it started: virsh net-autostart {quoted}.")
        else:
            yield Check(check, OK, f"The network {name} is active.")


def bridges(known, wanted):
    """The Checks for names of bridges. known: {name: is it up}, or None where they cannot be seen."""
    for name in wanted:
        check = f"bridge {name}"
        if known is None:
            yield Check(
                check, SKIPPED, f"Whether there is a bridge {name} cannot be seen over this connection.",
                "Run the module on the hypervisor to have it checked.")
        elif name not in known:
            listed = ", ".join(sorted(known)) or "none"
            yield Check(check, FAIL, f"There is no bridge {name} (there are: {listed}).", f"Make it: ip link add {name} type bridge.")
        elif not known[name]:
            yield Check(check, FAIL, f"The bridge {name} is down.", f"Bring it up: ip link set {name} up.")
        else:
            yield Check(check, OK, f"The bridge {name} is up.")


def vlans_since(tree):
    """The libvirt version from which on a network, as its parsed XML, takes guests into a VLAN; None for never."""
    forward = tree.find("forward")
    mode = None if forward is None else forward.get("mode", "nat")
    if mode == "hostdev" or tree.find(".//virtualport[@type='openvswitch']") is not None:
        return 0
    return VLANS_ON_BRIDGES if mode == "bridge" else None


def vlans(libvirt_version, known, networks, bridges):
    """The Checks for networks and bridges that guests have a VLAN on. libvirt_version: as in model.HostFacts.  known: of model.Network."""
    since = {network.name: network.vlans_since for network in known}
    wanted = [("network", name, since[name]) for name in networks if name in since] + [("bridge", name, VLANS_ON_BRIDGES) for name in bridges]
    for kind, name, first in wanted:
        if first is None or libvirt_version < first:
            why = "is none that tags frames" if first is None else "tags frames from libvirt 11.0 on only"
            yield Check(
                f"vlan on {kind} {name}", FAIL, f"The {kind} {name} {why}, so no guest of it can be in a VLAN.",
                "Make a bridge for the VLAN and leave vlan out, or name a libvirt network over an Open vSwitch.")


def vlans_kept_apart(known, networks, bridges, filtering):
    """The Checks for the kernel's bridges that guests have a VLAN on, directly or by a network: one that filters no VLANs gives each guest the frames of
    all. known: of model.Network.  filtering: {name of a bridge: does it filter VLANs}."""
    behind = {network.name: network.bridge for network in known if network.vlans_since == VLANS_ON_BRIDGES}
    for bridge in dict.fromkeys([*bridges, *(behind[name] for name in networks if name in behind)]):
        if filtering.get(bridge) is False:
            yield Check(
                f"vlan on bridge {bridge}", FAIL, f"The bridge {bridge} does not keep VLANs apart, so a VLAN of a guest would mean nothing there.",
                f"Have it filter them: ip link set {shlex.quote(bridge)} type bridge vlan_filtering 1.")


def nwfilters(known, wanted):
    """The Checks for network filters. known: names, or None where the daemon has no such driver."""
    for name in wanted:
        check = f"nwfilter {name}"
        if known is None:
            yield Check(
                check, FAIL, "This libvirt has no network filters.",
                "Install them: apt-get install libvirt-daemon-config-nwfilter (Debian, Ubuntu) or dnf install libvirt-daemon-config-nwfilter (Fedora, RHEL).")
        elif name not in known:
            listed = ", ".join(sorted(known)) or "none"
            yield Check(check, FAIL, f"There is no network filter {name} (there are: {listed}).", "Define it: virsh nwfilter-define, or name another one.")
        else:
            yield Check(check, OK, f"The network filter {name} is there.")
