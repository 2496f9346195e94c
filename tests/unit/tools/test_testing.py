# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""make test as a whole: a part that fails fails it, and pytest is always the last to speak."""

from __future__ import annotations

import environment
import linting
import nested
import pytest
import sanity
import testing
from console import ToolError


class _Hypervisors:
    """Stands for the harness that builds in the background."""

    def __init__(self, code):
        self.code = code

    def wait(self, what):
        if self.code:
            raise ToolError(f"Failed to {what}")

    def stop(self):
        pass


@pytest.fixture
def parts(monkeypatch):
    """The parts of make test, all passing; a test overrides one. The list has what ran, in order."""
    ran = []
    monkeypatch.setattr(environment, "ensure_packages", lambda *_purposes: None)
    monkeypatch.setattr(environment, "ensure", lambda: None)
    monkeypatch.setattr(nested, "harness", lambda what, *arguments: None)
    monkeypatch.setattr(testing, "Background", lambda prefix, command: _Hypervisors(0))
    monkeypatch.setattr(linting, "lint", lambda: ran.append("lint"))
    monkeypatch.setattr(sanity, "run", lambda arguments: ran.append("sanity"))
    monkeypatch.setattr(testing, "pytest", lambda arguments: ran.append(arguments) or 0)
    return ran


def _raise(*_arguments):
    raise ToolError("Failed to pass")


def test_all_parts_run_and_pytest_is_last(parts):
    assert testing.test(everything=False) == 0
    assert parts == ["lint", "sanity", ["tests/integration", "tests/unit", "-m", "not extended", *testing._SHARED]]


@pytest.mark.parametrize("part", [(linting, "lint"), (sanity, "run")])
def test_a_failed_part_fails_the_whole_and_the_tests_run_all_the_same(parts, monkeypatch, part, capsys):
    monkeypatch.setattr(*part, _raise)
    assert testing.test(everything=False) == 1
    assert parts[-1][:2] == ["tests/integration", "tests/unit"]
    assert "FAILED" in capsys.readouterr().out


def test_hypervisors_that_do_not_start_fail_the_whole(parts, monkeypatch):
    monkeypatch.setattr(testing, "Background", lambda prefix, command: _Hypervisors(1))
    assert testing.test(everything=False) == 1


def test_failed_tests_fail_the_whole(parts, monkeypatch):
    monkeypatch.setattr(testing, "pytest", lambda arguments: 2)
    assert testing.test(everything=False) == 2


def test_everything_includes_the_extended_tests_and_the_oldest_core(parts, monkeypatch):
    monkeypatch.setattr(testing, "available", lambda version: [object()])
    assert testing.test(everything=True) == 0
    assert parts == ["lint", "sanity", "sanity", ["tests/unit"], ["tests/integration", "tests/unit", *testing._SHARED]]
