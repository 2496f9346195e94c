# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metadata that cloud-init gets of an instance, as YAML text: what is always set, and what an operator adds."""

from __future__ import annotations

from .errors import InvalidInput, MissingLibrary

# Words that YAML 1.1 takes for something else than text.
_NO_TEXT = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")


def default(uid, hostname):
    """The meta-data of an instance: its uid as the instance-id, so that cloud-init never takes it for another, and its host name.

    The instance-id stands in the first line.
    """
    if hostname[:1].isdigit() or hostname in _NO_TEXT:
        hostname = f'"{hostname}"'
    return f"instance-id: {uid}\nlocal-hostname: {hostname}\n"


def with_more(uid, hostname, more, obj):
    """default() and what an operator adds, as YAML text. Raises InvalidInput, which names obj, where the whole is not what cloud-init reads as a mapping
    with that instance-id and host name, and MissingLibrary where there is no YAML to tell."""
    text = default(uid, hostname) + (more if more.endswith("\n") else more + "\n")
    try:
        # Only what adds something needs it.
        import yaml
    except ImportError as error:
        raise MissingLibrary("yaml", "read", obj) from error
    try:
        found = yaml.safe_load(text)
    # Dates that there are not, and nesting without end, are told in ways of their own.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # What it holds may be a secret, so of the error no more is shown than where it is.
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f" (line {max(1, mark.line + 1 - default(uid, hostname).count(chr(10)))})"
        raise InvalidInput(
            obj, f"together with instance-id and local-hostname it is no YAML{line}",
            "Write a line such as key: value for each entry, none of them indented, without --- and without %.") from error
    for key, value in (("instance-id", uid), ("local-hostname", hostname)):
        if found.get(key) != value or _times(yaml, text, key) != 1:
            raise InvalidInput(obj, f"it sets {key}, which is always set by the module", f"Leave {key} out.")
    return text


def _times(yaml, text, key):
    """How often a mapping has the key; loading keeps the last one only."""
    return sum(name.value == key for name, _value in yaml.compose(text, Loader=yaml.SafeLoader).value)
