# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choosing a Python: only what runs counts, and the newest supported one wins."""

from __future__ import annotations

import sys

import interpreter
import pytest
from console import ToolError


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    interpreter.forget()
    monkeypatch.delenv("KVM2_PYTHON", raising=False)
    yield
    interpreter.forget()


def _script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def _fake(path, version, ensurepip=1, headers=1):
    """Something that answers the probe like a Python of that version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return _script(path, f"echo {version[0]} {version[1]} {ensurepip} {headers} {path}")


def _only(monkeypatch, *paths):
    monkeypatch.setattr(interpreter, "candidates", lambda: iter(paths))


def test_a_real_python_is_described():
    python = interpreter.probe(sys.executable)
    assert python.version == sys.version_info[:2]
    assert python.text == f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.mark.parametrize("text", ["echo 'command not found' >&2; exit 127", "echo 'use another version'", "exit 0", "kill -9 $$"])
def test_a_shim_that_only_complains_is_no_python(tmp_path, text):
    assert interpreter.probe(_script(tmp_path / "python3.13", text)) is None


def test_a_missing_program_is_no_python(tmp_path):
    assert interpreter.probe(tmp_path / "python3.13") is None


def test_the_newest_supported_one_is_chosen(monkeypatch, tmp_path):
    versions = [(3, 11), (3, 13), (3, 12), (3, 99)]
    _only(monkeypatch, *(_fake(tmp_path / str(minor) / "python3", (major, minor)) for major, minor in versions))
    assert interpreter.choose().version == (3, 13)


def test_of_equal_ones_that_which_can_compile_is_chosen(monkeypatch, tmp_path):
    bare, full = _fake(tmp_path / "a" / "python3", (3, 13), 0, 0), _fake(tmp_path / "b" / "python3", (3, 13))
    _only(monkeypatch, bare, full)
    assert interpreter.choose().path == full


def test_one_inside_a_venv_is_passed_over(monkeypatch, tmp_path):
    inside = _fake(tmp_path / "venv" / "bin" / "python3", (3, 13))
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    _only(monkeypatch, inside, _fake(tmp_path / "b" / "python3", (3, 11)))
    assert interpreter.choose().version == (3, 11)


def test_the_caller_can_choose(monkeypatch, tmp_path):
    _only(monkeypatch, _fake(tmp_path / "a" / "python3", (3, 13)), _fake(tmp_path / "b" / "python3", (3, 11)))
    monkeypatch.setenv("KVM2_PYTHON", "3.11")
    assert interpreter.choose().version == (3, 11)


@pytest.mark.parametrize(("wanted", "message"), [("3.8", "must be one of 3.13, 3.12, 3.11"), ("3.12", "3.12 is not on this machine")])
def test_a_choice_that_cannot_be_met_is_named(monkeypatch, tmp_path, wanted, message):
    _only(monkeypatch, _fake(tmp_path / "a" / "python3", (3, 13)))
    monkeypatch.setenv("KVM2_PYTHON", wanted)
    with pytest.raises(ToolError, match=message):
        interpreter.choose()


def test_no_python_at_all_is_named(monkeypatch, tmp_path):
    _only(monkeypatch, _fake(tmp_path / "a" / "python3", (3, 8)))
    with pytest.raises(ToolError, match=r"none of 3\.13, 3\.12, 3\.11 is on this machine"):
        interpreter.choose()
