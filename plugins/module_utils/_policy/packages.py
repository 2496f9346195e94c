# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which package brings what a hypervisor lacks, and the command that installs it."""

from __future__ import annotations

# By the name that a distribution, or the one it is like, gives itself in os-release; the first one here stands for all that are not listed.
_TOOLS = {
    "debian": "apt-get install", "fedora": "dnf install", "rhel": "dnf install", "suse": "zypper install", "opensuse": "zypper install",
    "arch": "pacman -S", "alpine": "apk add"}
_NAMES = {
    "libvirt": {
        "debian": "python3-libvirt", "suse": "python3-libvirt-python", "opensuse": "python3-libvirt-python", "arch": "libvirt-python",
        "alpine": "py3-libvirt"},
    "lxml": {"debian": "python3-lxml", "arch": "python-lxml", "alpine": "py3-lxml"},
    "pycdlib": {"debian": "python3-pycdlib", "arch": "python-pycdlib", "alpine": "py3-pycdlib"},
    "yaml": {
        "debian": "python3-yaml", "fedora": "python3-pyyaml", "rhel": "python3-pyyaml", "suse": "python3-PyYAML", "opensuse": "python3-PyYAML",
        "arch": "python-yaml", "alpine": "py3-yaml"},
}


def package_of(what, families=()):
    """The package's name. what: libvirt, lxml, pycdlib or yaml, the Python libraries.  families: as os-release has them, the closest first."""
    known = _NAMES[what]
    return next((known[family] for family in families if family in known), known["debian"])


def install(whats, families=()):
    """The command that installs the packages for all of these."""
    tool = next((_TOOLS[family] for family in families if family in _TOOLS), _TOOLS["debian"])
    return " ".join([tool, *(package_of(what, families) for what in whats)])


def library_hint(missing, interpreter, families=()):
    """What to do about Python libraries that an interpreter lacks."""
    command = install(missing, families)
    if interpreter in ("/usr/bin/python3", "/usr/libexec/platform-python") or interpreter.startswith("/usr/bin/python3."):
        return f"Install what is missing for {interpreter}: {command}."
    return (
        f"Set ansible_python_interpreter to the system's Python, such as /usr/bin/python3, in the place of {interpreter}, and install: "
        f"{command}.")
