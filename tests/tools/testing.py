# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""make test and its parts. The whole always ends with pytest's own summary, and fails when any part did."""

from __future__ import annotations

import os
from collections.abc import Callable

import environment
import linting
import nested
import sanity
from console import Background, Step, ToolError, run, say
from interpreter import SUPPORTED, available
from paths import CACHE, CHECKOUT

# A later -m takes its place: make integration ARGS="-m extended"
_USUAL = ("-m", "not extended")
# How the whole is shared among processes; integration tests wait a lot, so two are worth it on one core too.
_SHARED = ("-n", str(max(2, min(4, os.cpu_count() or 2))), "--no-loadscope-reorder", "--durations=30")


def pytest(arguments: list[str]) -> int:
    """Run pytest from the checkout with the pinned tools; its exit code."""
    venv = environment.ensure()
    return run([venv / "bin" / "python", "-m", "pytest", *arguments], env=environment.venv_env(venv), cwd=CHECKOUT)


def unit(arguments: list[str]) -> int:
    """The unit tests; they need no hypervisor."""
    environment.ensure_packages("unit")
    return pytest(["tests/unit", *arguments])


def integration(arguments: list[str]) -> int:
    """The integration tests against nested hypervisors, which they start by themselves."""
    nested.harness("install the harness's packages", "packages")
    return pytest(["tests/integration", *_USUAL, *arguments])


def molecule(arguments: list[str]) -> int:
    """The Molecule scenario on nested hypervisors of its own; without arguments all of it."""
    nested.harness("install the harness's packages", "packages")
    venv = environment.ensure()
    env = dict(environment.venv_env(venv), KVM2_CACHE=str(CACHE))
    return run([venv / "bin" / "molecule", *(arguments or ["test"])], env=env, cwd=CHECKOUT)


def _part(name: str, call: Callable[[], None], failed: list[str]) -> None:
    try:
        call()
    except ToolError as error:
        say(f"ERROR: {error}")
        failed.append(name)


def _old_core() -> None:
    """Sanity and units once more with the oldest supported Python and the ansible-core that its pin names."""
    os.environ["KVM2_PYTHON"] = ".".join(map(str, SUPPORTED[-1]))
    try:
        sanity.run([])
        if unit([]):
            raise ToolError(f"Failed to pass the unit tests on Python {os.environ['KVM2_PYTHON']}; see above")
    finally:
        del os.environ["KVM2_PYTHON"]


def test(everything: bool) -> int:
    """Lint, sanity, units, integration; with everything also the oldest ansible-core and the tests marked extended."""
    environment.ensure_packages("lint", "unit")
    nested.harness("install the harness's packages", "packages")
    environment.ensure()
    say("hypervisors of each release and the guest image are built (where they are not yet) beside lint and sanity: see the lines marked [nested]")
    hypervisors = Background("nested", nested.up_command(*nested.HOSTS))
    failed: list[str] = []
    try:
        with Step("lint"):
            _part("lint", linting.lint, failed)
        _part("sanity", lambda: sanity.run([]), failed)
        if everything:
            if available(SUPPORTED[-1]):
                _part("oldest ansible-core", _old_core, failed)
            else:
                say(f"no Python {'.'.join(map(str, SUPPORTED[-1]))} here: the oldest ansible-core is not tried on this machine")
        _part("nested hypervisors", lambda: hypervisors.wait("start the nested hypervisors"), failed)
    except BaseException:
        hypervisors.stop()
        raise
    if failed:
        say(f"FAILED: {', '.join(failed)}. The tests are run all the same, and the whole fails")
    else:
        say("lint and sanity passed; now the tests")
    # Integration first: it is one process's whole work, and the unit tests fill the others beside it (see tests/conftest.py).
    code = pytest(["tests/integration", "tests/unit", *([] if everything else _USUAL), *_SHARED])
    return code or int(bool(failed))
