# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tooling behind the Makefile: python3 tests/tools COMMAND."""

from __future__ import annotations

import argparse
import sys

import environment
import linting
import sanity
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests/tools", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("venv", help="make the Python environment with the pinned tools").set_defaults(call=_venv)
    commands.add_parser("lint", help="every linter over the checkout").set_defaults(call=_lint)
    command = commands.add_parser("sanity", help="ansible-test sanity over a copy of the checkout")
    command.add_argument("arguments", nargs="*", help="handed on to ansible-test, after --")
    command.set_defaults(call=_sanity)
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
