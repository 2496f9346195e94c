# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest's interfaces in a domain's XML: read and written here."""

from __future__ import annotations

from dataclasses import replace

from . import names
from .domain_edit import attribute, ensure, remove
from .domain_spec import Interface
from .xml import etree

# More interfaces than any instance has: the MACs of these indexes are known to be ours.
_INDEXES = 32


def derived_macs(uuid):
    """The MACs that only this instance's interfaces can have."""
    return frozenset(names.mac_address(uuid, index) for index in range(_INDEXES))


def mac_of(element):
    return (attribute(element, "mac", "address") or "").strip().lower()


def find(tree, mac):
    """The <interface> with that MAC, or None."""
    for element in tree.findall("devices/interface"):
        if mac_of(element) == mac:
            return element
    return None


def read(tree):
    """The interfaces on networks and bridges, as domain_spec.Interface, in the order of the XML."""
    found = []
    for element in tree.findall("devices/interface"):
        source, kind = element.find("source"), element.get("type")
        if source is not None and source.get("network") is not None:
            # A running guest on a network shows the bridge behind it too.
            kind = "network"
        if source is not None and kind in ("network", "bridge"):
            found.append(Interface(
                kind, source.get(kind) or "", mac_of(element), attribute(element, "model", "type") or "default", _vlan(element),
                _number(attribute(element, "mtu", "size")), attribute(element, "filterref", "filter"), _parameters(element)))
    return tuple(found)


def is_same(tree, mac, want):
    """Has the domain the interface as wanted (None: not at all)? A running guest also shows what its network gave it."""
    have = next((one for one in read(tree) if one.mac == mac), None)
    if have is not None and want is not None and tree.get("id") is not None:
        have = replace(have, vlan=have.vlan if want.vlan else None, mtu=have.mtu if want.mtu else None)
    return str(have) == str(want)


def _number(text):
    text = (text or "").strip()
    return int(text) if text.isdigit() else None


def _vlan(element):
    """The tag; 0, which nobody can ask for, where it is a trunk of several."""
    vlan = element.find("vlan")
    if vlan is None:
        return None
    tags = [_number(tag.get("id")) for tag in vlan.findall("tag")]
    return tags[0] if len(tags) == 1 and vlan.get("trunk") != "yes" else 0


def _parameters(element):
    return tuple(sorted((one.get("name") or "", one.get("value") or "") for one in element.findall("filterref/parameter")))


def apply(tree, devices, spec):
    wanted = {interface.mac for interface in spec.interfaces}
    for mac in derived_macs(spec.uuid).union(spec.former_macs) - wanted:
        surplus = find(tree, mac)
        if surplus is not None:
            devices.remove(surplus)
    for interface in spec.interfaces:
        _set(tree, devices, interface)


def _set(tree, devices, interface):
    element = find(tree, interface.mac)
    if element is None:
        element = etree.SubElement(devices, "interface")
        etree.SubElement(element, "mac", address=interface.mac)
    source = ensure(element, "source")
    if element.get("type") != interface.kind or source.get(interface.kind) != interface.source:
        # Port groups and the like belong to the network that it leaves.
        source.attrib.clear()
        remove(element, "virtualport")
    element.set("type", interface.kind)
    source.set(interface.kind, interface.source)
    model = ensure(element, "model")
    if model.get("type") not in (None, interface.model):
        remove(element, "address")
    model.set("type", interface.model)
    if _vlan(element) != interface.vlan:
        remove(element, "vlan")
        if interface.vlan is not None:
            etree.SubElement(etree.SubElement(element, "vlan"), "tag", id=str(interface.vlan))
    if _number(attribute(element, "mtu", "size")) != interface.mtu:
        remove(element, "mtu")
        if interface.mtu is not None:
            etree.SubElement(element, "mtu", size=str(interface.mtu))
    if (attribute(element, "filterref", "filter"), _parameters(element)) != (interface.nwfilter, interface.nwfilter_parameters):
        remove(element, "filterref")
        if interface.nwfilter is not None:
            reference = etree.SubElement(element, "filterref", filter=interface.nwfilter)
            for name, value in interface.nwfilter_parameters:
                etree.SubElement(reference, "parameter", name=name, value=value)
