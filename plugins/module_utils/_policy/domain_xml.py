# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A domain's XML from its specification: one way, from an empty tree or from the present XML, of which everything unmanaged is kept."""

from __future__ import annotations

import copy

from . import domain_extra, domain_interface, domain_read, domain_tuning, names
from .domain_drift import Drift, drift, machine_family, same_machine
from .domain_edit import ensure as _ensure
from .domain_edit import remove as _remove
from .domain_edit import set_text as _set_text
from .domain_fields import UNASKED, generation
from .domain_fields import fields as shown
from .domain_spec import EVENTS, STANDARD_DEVICES, X86, DomainSpec, Interface, check, console_log_path, has_panic_device
from .errors import CONFLICT, Kvm2Error
from .xml import etree, parse
from .xml import render as as_text

__all__ = ("DomainSpec", "Drift", "Interface", "drift", "generation", "render", "shown", "update")


def render(spec, mark_element):
    """XML text of a new domain. mark_element is mark.to_element()'s. Raises InvalidInput where a value cannot be rendered."""
    return _apply(etree.Element("domain"), spec, mark_element)


def update(xml, spec, mark_element):
    """The present XML of a domain with the managed fields and the mark set anew; foreign metadata and devices stay.

    Raises InvalidInput where a value cannot be rendered, Kvm2Error (conflict) where another disk is in the place of ours, and ValueError
    for text that is not XML.
    """
    return _apply(parse(xml), spec, mark_element)


def _apply(tree, spec, mark_element):
    check(spec)
    tree.set("type", spec.virt_type)
    _set_text(tree, "name", spec.name)
    _set_text(tree, "uuid", spec.uuid)
    if spec.title is not None:
        _set_text(tree, "title", spec.title)
    _set_mark(tree, mark_element)
    _set_memory(tree, spec)
    _set_vcpus(tree, spec)
    _set_system(tree, spec)
    _set_cpu(tree, spec)
    for event, action in EVENTS:
        _set_text(tree, event, action)
    if spec.on_crash is not None or "on_crash" in spec.former_options or tree.find("on_crash") is None:
        _set_text(tree, "on_crash", spec.on_crash or UNASKED["on_crash"])
    devices = _ensure(tree, "devices")
    if spec.emulator is not None:
        _set_text(devices, "emulator", spec.emulator)
    _set_overlay(tree, devices, spec)
    _set_seed(tree, devices, spec)
    domain_interface.apply(tree, devices, spec)
    domain_extra.apply(tree, devices, spec.xml_extra)
    _add_standard_devices(tree, devices, spec)
    _set_console_log(devices, spec)
    domain_tuning.apply(tree, devices, spec, domain_read.find_disk(tree, "overlay"))
    return as_text(tree)


# -- the domain itself

def _set_mark(tree, mark_element):
    metadata = _ensure(tree, "metadata")
    _remove(metadata, mark_element.tag)
    metadata.append(copy.deepcopy(mark_element))


def _set_memory(tree, spec):
    if domain_read.memory(tree) == spec.memory_kib * 1024:
        return
    for tag in ("memory", "currentMemory"):
        element = _set_text(tree, tag, str(spec.memory_kib))
        element.set("unit", "KiB")


def _set_vcpus(tree, spec):
    present = tree.findtext("vcpu")
    if present is not None and present.strip() == str(spec.vcpus):
        return
    element = _set_text(tree, "vcpu", str(spec.vcpus))
    # What was said for another number of CPUs does not hold for this one, and libvirt would refuse it.
    element.attrib.pop("current", None)
    _remove(tree, "vcpus")
    for topology in tree.findall("cpu/topology"):
        topology.getparent().remove(topology)


def _set_system(tree, spec):
    system = _ensure(tree, "os")
    kind = _set_text(system, "type", "hvm")
    kind.set("arch", spec.arch)
    present = kind.get("machine")
    if spec.machine is not None and not same_machine(present, spec.machine):
        kind.set("machine", spec.machine)
        if present is not None and machine_family(present) != machine_family(spec.machine):
            _leave_buses(tree)
    if domain_read.firmware(tree) != spec.firmware:
        _remove(system, "firmware", "loader", "nvram")
        system.attrib.pop("firmware", None)
        if spec.firmware == "efi":
            system.set("firmware", "efi")
            # With secure boot it would start signed images only, where the vendors' keys are in it.
            etree.SubElement(etree.SubElement(system, "firmware"), "feature", enabled="no", name="secure-boot")
            # Without it libvirt 12 takes a firmware for q35 that keeps no variables; 9 refuses to be asked for one by its loader.
            etree.SubElement(system, "nvram")
    if system.find("boot") is None and not tree.findall("devices/*/boot"):
        etree.SubElement(system, "boot", dev="hd")
    features = _ensure(tree, "features")
    if spec.arch in X86 or spec.firmware == "efi":
        _ensure(features, "acpi")
    if spec.arch in X86:
        _ensure(features, "apic")


def _leave_buses(tree):
    """Another family of machines has other buses: libvirt lays out the PCI devices anew."""
    devices = _ensure(tree, "devices")
    # The watchdog is the one that libvirt adds to every q35, which no other machine has.
    _remove(devices, "controller[@type='pci']", "watchdog[@model='itco']")
    for address in devices.findall("*/address[@type='pci']"):
        address.getparent().remove(address)


def _set_cpu(tree, spec):
    if domain_read.cpu_mode(tree) == spec.cpu_mode:
        return
    cpu = _ensure(tree, "cpu")
    for attribute in ("mode", "match", "check", "migratable"):
        cpu.attrib.pop(attribute, None)
    _remove(cpu, "model", "vendor", "feature", "maxphysaddr")
    if spec.cpu_mode is not None:
        cpu.set("mode", spec.cpu_mode)
    elif not len(cpu):
        tree.remove(cpu)


# -- disks

def _disk(tree, devices, spec, kind, path):
    """The disk of that kind, made where there is none; its file set to path."""
    target, serial = (
        (domain_read.OVERLAY_TARGET, spec.overlay_serial) if kind == "overlay" else (domain_read.SEED_TARGET, spec.seed_serial))
    disk = domain_read.find_disk(tree, kind)
    if disk is None:
        taken = devices.find(f"disk/target[@dev='{target}']/..")
        if taken is not None:
            raise _in_our_place(spec, taken, target)
        disk = etree.SubElement(devices, "disk")
    elif domain_read.disk_path(disk) != path and not domain_read.is_surely_ours(tree, disk, kind):
        raise _in_our_place(spec, disk, target)
    disk.set("type", "file")
    disk.set("device", "disk")
    driver = _ensure(disk, "driver")
    driver.set("name", "qemu")
    if driver.get("type") is None or domain_read.disk_path(disk) != path or names.parse_instance_volume(path.rpartition("/")[2]) is not None:
        # An operator's own file, such as a copy, has the format that they say.
        driver.set("type", "qcow2" if kind == "overlay" else "raw")
    source = _ensure(disk, "source")
    if source.get("file") != path:
        source.attrib.clear()
        _remove(disk, "backingStore", "mirror")
        source.set("file", path)
    place = _ensure(disk, "target")
    if place.get("bus") not in (None, "virtio"):
        _remove(disk, "address")
    place.set("dev", place.get("dev") or target)
    place.set("bus", "virtio")
    _set_text(disk, "serial", serial)
    return disk, driver


def _in_our_place(spec, disk, target):
    return Kvm2Error(
        CONFLICT, "redefine", f"domain {spec.name}", f"the disk {domain_read.disk_path(disk) or 'there'} is in the place of ours, {target}",
        "Move it to another target, such as vdc.")


def _set_overlay(tree, devices, spec):
    if spec.overlay_path is None:
        return
    disk, driver = _disk(tree, devices, spec, "overlay", spec.overlay_path)
    driver.set("discard", "unmap")
    if not spec.overlay_chain or domain_read.read_chain(disk) == (spec.overlay_chain, True):
        return
    _remove(disk, "backingStore")
    parent = disk
    for path, volume_format in spec.overlay_chain:
        parent = etree.SubElement(parent, "backingStore", type="file")
        etree.SubElement(parent, "format", type=volume_format)
        etree.SubElement(parent, "source", file=path)
    # The empty one says that the chain ends here, so that QEMU never probes for more.
    etree.SubElement(parent, "backingStore")


def _set_seed(tree, devices, spec):
    if spec.seed_path is not None:
        disk, _driver = _disk(tree, devices, spec, "seed", spec.seed_path)
        _ensure(disk, "readonly")


# -- other devices

def _add_standard_devices(tree, devices, spec):
    missing = [device for device in STANDARD_DEVICES if domain_read.find_standard_device(tree, device) is None]
    if "serial_console" in missing:
        serial = etree.SubElement(devices, "serial", type="pty")
        console_target = {"port": "0", "type": "isa-serial"} if spec.arch in X86 else {"port": "0"}
        etree.SubElement(serial, "target", **console_target)
        if devices.find("console") is None:
            etree.SubElement(etree.SubElement(devices, "console", type="pty"), "target", type="serial", port="0")
    if "guest_agent" in missing:
        channel = etree.SubElement(devices, "channel", type="unix")
        etree.SubElement(channel, "target", type="virtio", name=domain_read.AGENT)
    if "rng" in missing:
        rng = etree.SubElement(devices, "rng", model="virtio")
        etree.SubElement(rng, "backend", model="random").text = "/dev/urandom"
    if has_panic_device(spec) and devices.find("panic") is None:
        etree.SubElement(devices, "panic", model="isa")
    if devices.find("memballoon") is None:
        etree.SubElement(devices, "memballoon", model="virtio")
    if devices.find("controller[@type='usb']") is None:
        etree.SubElement(devices, "controller", type="usb", model="none")


def _set_console_log(devices, spec):
    serial = devices.find("serial")
    own = console_log_path(spec.name, spec.uuid)
    path = own if spec.console_log else None
    log = serial.find("log")
    if log is not None and log.get("file") != own:
        # Somebody's own.
        return
    have = None if log is None or log.get("append") != "on" else own
    if have == path and (log is None) == (path is None):
        return
    # libvirt shows the first serial device as the first console too.
    for device in [serial, *devices.findall("console")[:1]]:
        _remove(device, "log")
    if path is not None:
        serial.insert(0, etree.Element("log", file=path, append="on"))
