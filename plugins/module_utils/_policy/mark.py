# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ownership mark in a domain's metadata: rendered and parsed here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional, Union

from . import names
from .errors import InvalidInput
from .timestamps import format_time, parse_time
from .xml import etree, parse

URI = "urn:egress:kvm2:instance:1"
PREFIX = "kvm2"
ROOT = "instance"
# Clocks of controllers and hypervisors may differ by this much before a future time is called wrong.
CLOCK_SKEW = 300

_CHILDREN = ("managed", "fleet", "name", "uid", "host", "createdAt", "generation", "base", "seed", "deleting", "hold", "run", "macs", "options")
_REQUIRED = ("managed", "fleet", "name", "uid", "createdAt")


@dataclass(frozen=True)
class Mark:
    """created_at and deleting are seconds since the epoch. macs: those MAC addresses, with blanks between, that the definition has by request
    and not derived from the uid, so that their interfaces are known as ours once they are asked for no more. options: for the same reason the
    fields, with blanks between, that are managed only while they are asked for, and are; those of interfaces too."""

    fleet: str
    name: str
    uid: str
    created_at: float
    host: str = ""
    generation: str = ""
    base: str = ""
    seed: str = ""
    deleting: Optional[float] = None
    hold: str = ""
    run: str = ""
    macs: str = ""
    options: str = ""
    managed: bool = True


@dataclass(frozen=True)
class Unreadable:
    """A mark that is there and cannot be believed: the domain is reported and never touched."""

    why: str


def to_element(mark):
    """The element {URI}instance of a Mark. Raises InvalidInput for a text that XML cannot carry."""
    root = etree.Element(f"{{{URI}}}{ROOT}", nsmap={PREFIX: URI})
    values = {
        "managed": "true", "fleet": mark.fleet, "name": mark.name, "uid": mark.uid, "host": mark.host,
        "createdAt": format_time(mark.created_at), "generation": mark.generation, "base": mark.base, "seed": mark.seed,
        "deleting": None if mark.deleting is None else format_time(mark.deleting), "hold": mark.hold, "run": mark.run, "macs": mark.macs,
        "options": mark.options,
    }
    for child in _CHILDREN:
        if values[child]:
            try:
                etree.SubElement(root, f"{{{URI}}}{child}").text = values[child]
            except ValueError as error:
                raise InvalidInput(
                    f"{child} {values[child]!r} of instance {mark.fleet}.{mark.name}", "it holds a character that XML cannot carry",
                    "Remove that character.") from error
    return root


def to_metadata(mark):
    """The mark as text for libvirt's setMetadata, which wants the element without a prefix and adds its own."""
    plain = etree.Element(ROOT)
    for child in to_element(mark):
        etree.SubElement(plain, etree.QName(child).localname).text = child.text
    return etree.tostring(plain, encoding="unicode")


def parse_element(root) -> Union[Mark, Unreadable]:
    """The mark in an element {URI}instance."""
    found = {}
    for child in root:
        if not isinstance(child.tag, str):
            continue
        tag = etree.QName(child)
        if tag.namespace != URI or tag.localname not in _CHILDREN:
            continue
        if tag.localname in found:
            return Unreadable(f"<{tag.localname}> appears more than once")
        found[tag.localname] = "".join(_text(child)).strip()
    for child in _REQUIRED:
        if not found.get(child):
            return Unreadable(f"<{child}> is {'empty' if child in found else 'missing'}")
    if found["managed"] != "true":
        return Unreadable(f"<managed> is {found['managed']!r} and not 'true'")
    for child in ("fleet", "name"):
        if not names.is_label(found[child]):
            return Unreadable(f"<{child}> {found[child]!r} is not a label")
    uid = names.parse_uid(found["uid"])
    if uid is None:
        return Unreadable(f"<uid> {found['uid']!r} is not a UUID")
    created_at = parse_time(found["createdAt"])
    if created_at is None:
        return Unreadable(f"<createdAt> {found['createdAt']!r} is not an RFC 3339 time after 1970")
    deleting = None
    if found.get("deleting"):
        deleting = parse_time(found["deleting"])
        if deleting is None:
            return Unreadable(f"<deleting> {found['deleting']!r} is not an RFC 3339 time after 1970")
    return Mark(
        fleet=found["fleet"], name=found["name"], uid=uid, created_at=created_at, deleting=deleting,
        **{child: found.get(child, "") for child in ("host", "generation", "base", "seed", "hold", "run", "macs", "options")})


def _text(element):
    """All text of an element, comments left out, nested elements' text included."""
    yield element.text or ""
    for child in element:
        if isinstance(child.tag, str):
            yield from _text(child)
        yield child.tail or ""


def of_tree(domain_tree) -> Union[Mark, Unreadable, None]:
    """The mark in a parsed <domain>, found by namespace; None where there is none."""
    elements = domain_tree.findall(f"metadata/{{{URI}}}{ROOT}")
    if not elements:
        return None
    if len(elements) > 1:
        return Unreadable(f"there are {len(elements)} marks")
    return parse_element(elements[0])


def of_domain(domain) -> Union[Mark, Unreadable, None]:
    """The mark of a model.Domain: that of the persistent definition, else of the running guest.

    A hold counts wherever it stands, and a running guest's mark that is damaged or names another instance makes the whole unreadable: an
    operator who set one on the running guest alone meant the guest that runs.
    """
    if domain.any_xml is None:
        return Unreadable("the domain's XML cannot be read" + (f": {domain.unreadable}" if domain.unreadable else ""))
    marks = []
    # Nothing can set a hold on a saved guest's copy, nor lift one there.
    for text in (domain.xml, domain.live_xml):
        if text is None:
            continue
        try:
            marks.append(of_tree(parse(text)))
        except ValueError as error:
            return Unreadable(f"the domain's XML cannot be read: {error}")
    first, last = marks[0], marks[-1]
    if not isinstance(first, Mark) or last is None:
        return first
    if isinstance(last, Unreadable):
        return Unreadable(f"that of the running guest is damaged: {last.why}")
    if (first.fleet, first.name, first.uid) != (last.fleet, last.name, last.uid):
        return Unreadable("that of the running guest names another instance")
    return replace(first, hold=first.hold or last.hold)


def why_not_ours(domain, mark) -> Optional[str]:
    """None when the domain is ours: mark, UUID and name agree; else the reason."""
    if mark is None:
        return "it carries no mark of this collection"
    if isinstance(mark, Unreadable):
        return f"its mark is unreadable: {mark.why}"
    if mark.uid != domain.uuid:
        return f"its mark has the uid {mark.uid} but the domain's UUID is {domain.uuid}"
    if names.domain_name(mark.fleet, mark.name) != domain.name:
        return f"its mark names {names.domain_name(mark.fleet, mark.name)} but the domain is named {domain.name}"
    return None


def repair_command(domain, fleet, name, now):
    """The command that gives a domain the mark of an instance; now in seconds since the epoch."""
    values = {"managed": "true", "fleet": fleet, "name": name, "uid": domain.uuid, "createdAt": format_time(now)}
    element = "".join(f"<{tag}>{text}</{tag}>" for tag, text in values.items())
    where = "--config --live" if domain.active and domain.persistent else "--live" if domain.active else "--config"
    return f"virsh metadata {domain.uuid} {URI} {where} --key {PREFIX} --set '<{ROOT}>{element}</{ROOT}>'"
