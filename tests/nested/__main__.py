# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nested hypervisors for the demo, Molecule and the integration tests: `python3 tests/nested --help`."""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import sys

import debian
import guest
import hypervisors
import packages
import releases
import roots
import selftest
from progress import Failure, say
from state import State

GUESTS = {"micro": guest.ensure, "debian": debian.ensure}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 tests/nested", description="Nested hypervisors for tests.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("packages", help="install the Debian packages that the harness needs, where they are missing")
    root = commands.add_parser("root", help="build and import the root of a hypervisor")
    root.add_argument("--release", default=releases.DEFAULT, help=f"one of {', '.join(releases.RELEASES)} (default: %(default)s)")
    image = commands.add_parser("guest", help="build and publish a guest's image")
    image.add_argument("--kind", choices=GUESTS, default="micro", help="(default: %(default)s)")
    up = commands.add_parser("up", help="have hypervisors and the publish server running; keeps what is well, replaces what is not")
    up.add_argument("--hosts", default="hv1,hv2", help="their names, with commas between (default: %(default)s)")
    up.add_argument("--release", default=releases.DEFAULT, help="for all, or by host: hv1=trixie,hv2=bookworm (default: %(default)s)")
    up.add_argument("--guest", choices=GUESTS, default="micro", help="build this guest's image too, beside the micro guest's")
    down = commands.add_parser("down", help="stop hypervisors and publish server")
    down.add_argument("--hosts", default="", help="only these hypervisors, with commas between")
    commands.add_parser("clean", help="down, and remove images, network and everything cached")
    commands.add_parser("status", help="show what runs")
    ssh = commands.add_parser("ssh", help="a shell or a command on a hypervisor")
    ssh.add_argument("host")
    ssh.add_argument("argv", nargs=argparse.REMAINDER, metavar="cmd", help="the command; a shell without one")
    test = commands.add_parser("selftest", help="bring two up, boot guests in one, break one and bring it up again")
    test.add_argument("--guest", choices=GUESTS, default="micro", help="debian: instead boot the Debian guest, by BIOS and by UEFI")
    return parser.parse_args()


def build(state: State, names: set[str], kinds: set[str]) -> dict[str, str]:
    """Build the guests of these kinds and the roots of these releases, at once; return the podman image of each release."""
    wanted = [roots.find(name) for name in sorted(names)]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        images = [pool.submit(GUESTS[kind], state) for kind in sorted(kinds)]
        made = {release.name: pool.submit(roots.ensure, state, release) for release in wanted}
        for image in images:
            image.result()
        return {name: future.result() for name, future in made.items()}


def up(state: State, hosts: str, release: str, guest_kind: str = "micro") -> None:
    """Have these hypervisors running, with all they need."""
    plan = hypervisors.parse(hosts, release)
    packages.ensure(state)
    hypervisors.up(state, plan, build(state, set(plan.values()), {"micro", guest_kind}))


def _run(arguments: argparse.Namespace, state: State) -> int:
    if arguments.command == "ssh":
        return hypervisors.ssh(state, arguments.host, arguments.argv)
    if arguments.command == "status":
        return hypervisors.status(state)
    if arguments.command == "selftest":
        return (selftest.debian if arguments.guest == "debian" else selftest.run)(state, up)
    with state.locked():
        if arguments.command == "up":
            up(state, arguments.hosts, arguments.release, arguments.guest)
        elif arguments.command == "down":
            hypervisors.down(state, tuple(filter(None, arguments.hosts.split(","))))
        elif arguments.command == "clean":
            hypervisors.clean(state)
        else:
            packages.ensure(state)
            if arguments.command == "root":
                roots.ensure(state, roots.find(arguments.release))
            elif arguments.command == "guest":
                GUESTS[arguments.kind](state)
        state.hand_over()
    return 0


def main() -> int:
    """Run one command; return the exit code."""
    arguments = _arguments()
    if os.geteuid() != 0 and arguments.command != "ssh":
        # With the user's PATH, so that Ansible's environment is made of the Python that the user's own commands choose.
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
        before = ["sudo", "--preserve-env=KVM2_CACHE,KVM2_PYTHON", "env", f"PATH={path}"]
        os.execvp("sudo", [*before, sys.executable, os.path.dirname(os.path.abspath(__file__)), *sys.argv[1:]])
    try:
        return _run(arguments, State())
    except Failure as reason:
        say(f"ERROR: {reason}")
        return 1
    except KeyboardInterrupt:
        say("stopped by the user; the same command goes on from here")
        return 130


if __name__ == "__main__":
    sys.exit(main())
