# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest's interfaces in a domain's XML: read and written here."""

from __future__ import annotations

from dataclasses import replace

from . import names
from .domain_edit import attribute, ensure, remove
from .domain_spec import EXTRA_PREFIX, Interface
from .xml import etree

# What of an interface is managed only while one of the instance asks for it.
OPTIONAL = ("vlan", "mtu", "nwfilter")
# Those of them that a network can give its guests too.
_BY_NETWORK = ("vlan", "mtu")
# More interfaces than any instance has: the MACs of these indexes are known to be ours.
_INDEXES = 32


def derived_macs(uuid):
    """The MACs that only this instance's interfaces can have."""
    return frozenset(names.mac_address(uuid, index) for index in range(_INDEXES))


def mac_of(element):
    return (attribute(element, "mac", "address") or "").strip().lower()


def find(tree, mac):
    """The <interface> with that MAC, or None. One that was given as XML is known by its alias and by nothing else."""
    for element in tree.findall("devices/interface"):
        if mac_of(element) == mac and not (attribute(element, "alias", "name") or "").startswith(EXTRA_PREFIX):
            return element
    return None


def read(tree):
    """The interfaces on networks and bridges, as domain_spec.Interface, in the order of the XML."""
    found = []
    for element in tree.findall("devices/interface"):
        one = _interface(element)
        if one is not None:
            found.append(one)
    return tuple(found)


def _interface(element):
    source, kind = element.find("source"), element.get("type")
    if source is not None and source.get("network") is not None:
        # A running guest on a network shows the bridge behind it too.
        kind = "network"
    if source is None or kind not in ("network", "bridge"):
        return None
    return Interface(
        kind, source.get(kind) or "", mac_of(element), attribute(element, "model", "type") or "default", _vlan(element),
        _number(attribute(element, "mtu", "size")), attribute(element, "filterref", "filter"), _parameters(element))


def is_same(tree, mac, want, former):
    """Has the domain the interface as wanted (None: not at all)? former: words of marks, as words() gives them, for what was asked for once."""
    element = find(tree, mac)
    have = None if element is None else _interface(element)
    if have is not None and want is not None:
        if tree.get("id") is not None:
            # A running guest also shows what its network gave it, which is told from what it was started with by the words of its mark.
            former = (set(former) - set(_BY_NETWORK)) | {field for field in _BY_NETWORK if word(field, mac) in former}
        have = replace(have, **{field: None for field in OPTIONAL if not _is_managed(field, want, former)})
        if have.nwfilter is None:
            have = replace(have, nwfilter_parameters=())
    return str(have) == str(want)


def word(field, mac):
    """What the mark says where that interface was asked to have a VLAN or an MTU."""
    return f"{field}/{mac}"


def words(interfaces):
    """The words of the mark for what these interfaces (domain_spec.Interface) are asked to have."""
    found = [field for field in OPTIONAL if any(getattr(one, field) is not None for one in interfaces)]
    return found + [word(field, one.mac) for one in interfaces for field in _BY_NETWORK if getattr(one, field) is not None]


def _is_managed(field, want, former):
    """What somebody set by hand stays: only what is asked for, or was, is looked at."""
    return getattr(want, field) is not None or field in former


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
        _set(tree, devices, interface, spec.former_options)


def _set(tree, devices, interface, former):
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
    if _is_managed("vlan", interface, former) and _vlan(element) != interface.vlan:
        remove(element, "vlan")
        if interface.vlan is not None:
            etree.SubElement(etree.SubElement(element, "vlan"), "tag", id=str(interface.vlan))
    if _is_managed("mtu", interface, former) and _number(attribute(element, "mtu", "size")) != interface.mtu:
        remove(element, "mtu")
        if interface.mtu is not None:
            etree.SubElement(element, "mtu", size=str(interface.mtu))
    filtered = (attribute(element, "filterref", "filter"), _parameters(element))
    if _is_managed("nwfilter", interface, former) and filtered != (interface.nwfilter, interface.nwfilter_parameters):
        remove(element, "filterref")
        if interface.nwfilter is not None:
            reference = etree.SubElement(element, "filterref", filter=interface.nwfilter)
            for name, value in interface.nwfilter_parameters:
                etree.SubElement(reference, "parameter", name=name, value=value)
