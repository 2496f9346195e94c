# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tools that read and write a domain's XML: each one changes only what differs."""

from __future__ import annotations

from .xml import etree


def attribute(element, child, name):
    """The attribute of the first such child, or None."""
    found = element.find(child)
    return None if found is None else found.get(name)


def ensure(parent, tag, **attributes):
    element = parent.find(tag)
    return etree.SubElement(parent, tag, **attributes) if element is None else element


def set_text(parent, tag, text):
    element = ensure(parent, tag)
    if (element.text or "").strip() != text:
        element.text = text
    return element


def remove(parent, *tags):
    for tag in tags:
        for element in parent.findall(tag):
            parent.remove(element)
