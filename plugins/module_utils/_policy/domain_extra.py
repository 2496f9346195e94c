# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices that an operator gives as XML. libvirt keeps the alias that each one gets, and by it they are known again however it writes them."""

from __future__ import annotations

import copy
import hashlib

from . import domain_interface, names
from .domain_edit import attribute
from .domain_spec import EXTRA_PREFIX as PREFIX
from .errors import InvalidInput
from .xml import etree, parse

# Devices that can have an alias, and of which the collection has none of its own that another one would get in the way of.
ALLOWED = (
    "channel", "controller", "crypto", "disk", "filesystem", "hostdev", "input", "interface", "parallel", "redirdev", "shmem", "smartcard", "sound",
    "tpm", "video", "vsock")
# What belongs to the domain itself, or would hide whose a device is. libvirt refuses an order of boot beside the boot devices of <os>.
_FORBIDDEN = ("name", "uuid", "metadata", "alias", "domain", "devices", "boot")
_OWN_TARGETS = ("vda", "vdb")
_OWN_CHANNEL = "org.qemu.guest_agent.0"


def check(text, obj, uuid):
    """Raise InvalidInput, which names obj, for anything but one device that may be added to the domain with that UUID."""
    try:
        element = parse(text.strip())
    except ValueError as error:
        raise InvalidInput(obj, f"it does not parse: {error}", "Give one device, such as <sound model='ich9'/>.") from error
    if element.getroottree().docinfo.doctype:
        raise InvalidInput(obj, "it declares a document type", "Give the device alone.")
    if element.tag not in ALLOWED:
        raise InvalidInput(obj, f"<{etree.QName(element).localname}> is no device that can be added", "Give one of " + ", ".join(ALLOWED) + ".")
    for child in element.iter():
        if not isinstance(child.tag, str):
            continue
        tag = etree.QName(child)
        if tag.namespace is not None or tag.localname in _FORBIDDEN:
            raise InvalidInput(obj, f"it holds <{tag.localname}>, which is not for a device to have", "Leave that element out.")
    problem = _PROBLEMS.get(element.tag, lambda _element, _uuid: None)(_element(text), uuid)
    if problem:
        raise InvalidInput(obj, *problem)


def _disk_problem(element, _uuid):
    target = attribute(element, "target", "dev")
    if not target or target in _OWN_TARGETS:
        return f"its target is {target or 'not given'}, and {' and '.join(_OWN_TARGETS)} are the instance's own disks", "Give it another target, such as vdc."
    if any("".join(serial.itertext()).strip().startswith("kvm2-") for serial in element.iter("serial")):
        return "its serial is one of the instance's own disks", "Give it another serial, or none."
    return None


def _interface_problem(element, uuid):
    mac = domain_interface.mac_of(element)
    if not names.is_mac_address(mac):
        return "it has no MAC address, so it would get another one each time", "Give it one: <mac address='52:54:00:…'/>."
    if mac in domain_interface.derived_macs(uuid):
        return f"the MAC address {mac} is that of an interface of the instance's own", "Give it another one."
    return None


def _channel_problem(element, _uuid):
    if attribute(element, "target", "name") == _OWN_CHANNEL:
        return f"every instance has the channel {_OWN_CHANNEL} already", "Leave it out."
    return None


_PROBLEMS = {"disk": _disk_problem, "interface": _interface_problem, "channel": _channel_problem}


def alias(text):
    """The alias of a device: the same for texts that differ in blanks, comments or the order of attributes only."""
    plain = etree.tostring(_element(text), method="c14n2", strip_text=True, with_comments=False)
    return PREFIX + hashlib.sha256(plain).hexdigest()[:16]


def _element(text):
    element = parse(text.strip())
    etree.strip_tags(element, etree.Comment, etree.ProcessingInstruction)
    element.tail = None
    return element


def macs(texts):
    """The MAC addresses of the interfaces among devices that were asked for."""
    elements = [_element(text) for text in texts]
    return tuple(domain_interface.mac_of(element) for element in elements if element.tag == "interface")


def shown(texts):
    """What is compared and shown of devices that were asked for."""
    return _listed((_element(text).tag, alias(text)) for text in texts)


def read(tree):
    """The same of those that a parsed <domain> has."""
    return _listed((device.tag, attribute(device, "alias", "name")) for device in _ours(tree))


def _listed(found):
    return ", ".join(f"{tag} {name}" for tag, name in sorted(found)) or None


def _ours(tree):
    return [device for device in tree.findall("devices/*") if (attribute(device, "alias", "name") or "").startswith(PREFIX)]


def apply(tree, devices, texts):
    wanted = {alias(text): text for text in texts}
    there = set()
    for device in _ours(tree):
        name = attribute(device, "alias", "name")
        there.add(name)
        if name not in wanted:
            devices.remove(device)
    for name, text in wanted.items():
        if name in there:
            continue
        device = copy.deepcopy(_element(text))
        if device.tag == "controller" and device.get("type") == "usb":
            # The one that says that there is no USB.
            for none in devices.findall("controller[@type='usb'][@model='none']"):
                devices.remove(none)
        etree.SubElement(device, "alias", name=name)
        devices.append(device)
