# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cloud-init configuration as the text that cloud-init reads."""

from __future__ import annotations

try:
    import yaml
except ImportError:
    yaml = None

from .errors import PERMANENT, InvalidInput, Kvm2Error

HEADER = "#cloud-config\n"
# Line breaks to YAML 1.1, besides the usual ones.
_RARE_BREAKS = "\x85\u2028\u2029"


def render(config):
    """"#cloud-config" and the mapping as YAML: keys in their order, one line for each value however long it is.

    Only mappings, lists, text, numbers, booleans and None can be in it; anything else is refused and named by its path.
    """
    if not isinstance(config, dict):
        hint = "Give a mapping, such as {packages: [tinyproxy]}."
        raise InvalidInput("the cloud-init configuration", f"it is a {type(config).__name__}", hint)
    return HEADER + dump(config, "cloud-config")


def dump(config, path="network-config"):
    """A mapping as YAML, in the form that render() tells; `path` names it where something cannot be in it."""
    if yaml is None:
        raise Kvm2Error(PERMANENT, "render", "the cloud-init configuration", "PyYAML cannot be imported", "Install it where Ansible runs.")
    return yaml.dump(
        plain(config, path), Dumper=_Dumper, default_flow_style=False, sort_keys=False, allow_unicode=True, width=float("inf"))


def plain(value, path):
    """The value made of Python's own types only, since a template hands in subclasses of them that YAML would write as objects."""
    if isinstance(value, dict):
        return {_key(key, path): plain(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise InvalidInput(path, f"a {type(value).__name__} cannot be written as YAML", "Give text, a number, a list or a mapping.")


def _key(key, path):
    if not isinstance(key, str):
        raise InvalidInput(path, f"its key {key!r} is not text", "Quote the key.")
    return str(key)


if yaml is not None:
    class _Dumper(yaml.SafeDumper):
        """Text of several lines as a block, as people write it, and no anchors for what appears twice."""

        def ignore_aliases(self, data):
            return True

    def _text(dumper, data):
        style = "|" if "\n" in data else None
        if any(mark in data for mark in _RARE_BREAKS):
            style = '"'  # the only style in which PyYAML escapes them
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    _Dumper.add_representer(str, _text)
