# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one place that imports lxml, so that a hypervisor without it gets a clear error instead of a traceback."""

from __future__ import annotations

import traceback

try:
    from lxml import etree
    LXML_IMPORT_ERROR = None
except ImportError:
    etree = None
    LXML_IMPORT_ERROR = traceback.format_exc()


def parse(text):
    """The root element of an XML text; entities are not resolved and nothing is fetched. Raises ValueError when it does not parse."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_blank_text=False, huge_tree=False)
    try:
        return etree.fromstring(text.encode() if isinstance(text, str) else text, parser)
    except etree.XMLSyntaxError as error:
        raise ValueError(f"not well-formed XML: {error}") from error


def render(element):
    etree.indent(element)
    return etree.tostring(element, encoding="unicode") + "\n"
