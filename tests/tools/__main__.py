# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tooling behind the Makefile: python3 tests/tools COMMAND."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import building
import cleaning
import demo
import environment
import linting
import nested
import provision
import sanity
import testing
from console import ToolError, say


def _venv(_args: argparse.Namespace) -> int:
    say(f"environment: {environment.ensure()}")
    return 0


def _lint(_args: argparse.Namespace) -> int:
    linting.lint()
    return 0


def _sanity(args: argparse.Namespace) -> int:
    sanity.run(args.arguments)
    return 0


def _build(_args: argparse.Namespace) -> int:
    building.build()
    return 0


def _clean(_args: argparse.Namespace) -> int:
    cleaning.clean()
    return 0


_COMMANDS = {
    "venv": ("make the Python environment with the pinned tools", _venv),
    "lint": ("every linter over the checkout", _lint),
    "sanity": ("ansible-test sanity over a copy of the checkout; arguments go to ansible-test", _sanity),
    "unit": ("the unit tests; arguments go to pytest", lambda args: testing.unit(args.arguments)),
    "integration": ("the integration tests; arguments go to pytest", lambda args: testing.integration(args.arguments)),
    "molecule": ("the Molecule scenario; arguments go to molecule", lambda args: testing.molecule(args.arguments)),
    "test": ("lint, sanity, units, integration", lambda args: testing.test(everything=False)),
    "test-all": ("everything there is", lambda args: testing.test(everything=True)),
    "build": ("the collection's archive", _build),
    "clean": ("remove what the tooling made in the state folder", _clean),
    "demo": ("all of the demo; arguments go to ansible-playbook", lambda args: demo.demo(args.guest, args.arguments)),
    "provision": (
        "the demo's fleet on hypervisors that are up; arguments go to ansible-playbook",
        lambda args: provision.provision(args.inventory, args.fleet, args.arguments),
    ),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests/tools", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (text, call) in _COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(call=call, arguments=[])
        if name in ("sanity", "unit", "integration", "molecule", "demo", "provision"):
            command.add_argument("arguments", nargs="*", help="handed on; put -- before them")
        if name == "demo":
            command.add_argument("--guest", default=demo.DEFAULT, help=f"the guest image, {' or '.join(demo.GUESTS)} (default: %(default)s)")
        if name == "provision":
            command.add_argument("--inventory", type=Path, default=nested.INVENTORY, help="inventory of the hypervisors")
            command.add_argument("--fleet", type=Path, default=provision.FLEET, help="file that sets kvm2_fleet")
    return parser


def main() -> int:
    args = _parser().parse_args()
    try:
        return args.call(args)
    except ToolError as error:
        say(f"ERROR: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; run the same command again to go on")
        return 130


if __name__ == "__main__":
    sys.exit(main())
