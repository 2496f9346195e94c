# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: vlans.py. A guest is in the VLAN that it was asked for, on a bridge of the kernel that filters VLANs; where libvirt or the bridge
cannot do that, it is said before anything is made."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import libvirt
from looking import shell
from oddities import refused, unchanged
from states import FLEET, acts, fields, ground, require

BRIDGE = "br-states"
NETWORK = "states-vlans"
# libvirt 11.0.
SINCE = 11000000
XML = (
    "<domain type='qemu'><name>other</name><memory unit='MiB'>16</memory><os><type>hvm</type></os><devices>"
    "<interface type='bridge'><source bridge='{bridge}'/><vlan><tag id='5'/></vlan><model type='virtio'/></interface></devices></domain>")
NETWORK_XML = "<network><name>{network}</name><forward mode='bridge'/><bridge name='{bridge}'/></network>"


def tags(host):
    """The VLANs whose frames the guest gets, and those whose frames it gets untagged."""
    port = ElementTree.fromstring(host.state().XMLDesc()).find("devices/interface/target").get("dev")
    shown, = json.loads(shell("bridge", "-j", "vlan", "show", "dev", port).stdout)
    return [one["vlan"] for one in shown["vlans"]], [one["vlan"] for one in shown["vlans"] if "Egress Untagged" in one.get("flags", ())]


def of_libvirt(host):
    """What libvirt itself says of such a guest, None where it starts."""
    domain = host.connection.defineXML(XML.format(bridge=BRIDGE))
    try:
        domain.create()
        domain.destroy()
        return None
    except libvirt.libvirtError as error:
        return str(error)
    finally:
        domain.undefine()


def kept(host, base, where):
    host.create(base, networks=[{**where, "vlan": 5}])
    require(tags(host) == ([5], [5]), where, tags(host))
    found = unchanged(host, f"a VLAN on {where}", networks=[{**where, "vlan": 5}])
    require(fields(found) == [], where, fields(found))
    changed = host.domain(networks=[{**where, "vlan": 6}])
    require(acts(changed.actions) == ["redefine domain"] and fields(changed) == ["interface pending"], where, changed.actions, fields(changed))
    restarted = host.domain(networks=[{**where, "vlan": 6}], on_change="restart")
    require(not restarted.failed and fields(restarted) == [] and tags(host) == ([6], [6]), where, tags(host))
    host.remove()


def make_bridge():
    """Does it filter VLANs? Not every kernel has bridges that can."""
    shell("ip", "link", "add", BRIDGE, "type", "bridge")
    shell("ip", "link", "set", BRIDGE, "up")
    return shell("ip", "link", "set", BRIDGE, "type", "bridge", "vlan_filtering", "1", check=False).returncode == 0


def main():
    host = ground()
    base = host.base()
    new, filters = host.connection.getLibVersion() >= SINCE, make_bridge()
    network = host.connection.networkDefineXML(NETWORK_XML.format(network=NETWORK, bridge=BRIDGE))
    network.create()
    try:
        said = of_libvirt(host)
        print(f"libvirt {host.connection.getLibVersion()}, {'a' if filters else 'no'} filter on the bridge: {said or 'it starts'}", flush=True)
        require((said is None) == new or not filters, said)
        host.overlays(base)
        for where in ({"bridge": BRIDGE}, {"network": NETWORK}):
            if new and filters:
                kept(host, base, where)
            words = ("does not keep VLANs apart", "vlan_filtering 1") if new else ("tags frames from libvirt 11.0 on only", "leave vlan out")
            if not filters or not new:
                refused(host, f"a VLAN on {where}", "permanent", *words, networks=[{**where, "vlan": 5}])
        if new and filters:
            shell("ip", "link", "set", BRIDGE, "type", "bridge", "vlan_filtering", "0")
            host.overlays(base)
            refused(host, "a VLAN without a filter", "permanent", "does not keep VLANs apart", networks=[{"bridge": BRIDGE, "vlan": 5}])
        host.module("overlay", fleet=FLEET, pool="states", instances=[{"name": "one"}], state="absent")
        print("VLANs: as it should be", flush=True)
    finally:
        network.destroy()
        network.undefine()
        shell("ip", "link", "del", BRIDGE)


if __name__ == "__main__":
    main()
