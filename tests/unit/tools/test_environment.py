# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Placing the collection and making the venv: again and after an interruption."""

from __future__ import annotations

import os
from pathlib import Path

import environment
import placement
import pytest
from console import ToolError
from interpreter import Interpreter


@pytest.fixture
def state(monkeypatch, tmp_path):
    """A checkout and a state folder of our own, with a blank in their names."""
    checkout, cache = tmp_path / "a checkout", tmp_path / "a cache"
    checkout.mkdir()
    monkeypatch.setattr(placement, "CHECKOUT", checkout)
    monkeypatch.setattr(placement, "COLLECTIONS", cache / "collections")
    monkeypatch.setattr(environment, "CACHE", cache)
    return checkout, cache


def test_the_collection_is_placed_and_stays(state):
    checkout, cache = state
    assert placement.place() == placement.place() == cache / "collections"
    assert (cache / "collections" / "ansible_collections" / "egress" / "kvm2").resolve() == checkout


def test_a_link_to_another_checkout_is_replaced(state):
    checkout, cache = state
    link = cache / "collections" / "ansible_collections" / "egress" / "kvm2"
    link.parent.mkdir(parents=True)
    link.symlink_to("/nowhere")
    placement.place()
    assert link.resolve() == checkout
    assert sorted(path.name for path in link.parent.iterdir()) == ["kvm2"]


def test_a_checkout_inside_a_collection_tree_needs_no_link(monkeypatch, state, tmp_path):
    monkeypatch.setattr(placement, "CHECKOUT", tmp_path / "ansible_collections" / "egress" / "kvm2")
    assert placement.place() == tmp_path
    assert not state[1].exists()


@pytest.fixture
def pip(monkeypatch, state):
    """Record what would be run instead of running it; the venv's folder appears, as the venv module makes it."""
    python = Interpreter(Path("/usr/bin/python3"), (3, 13), True, True)
    commands = []

    def must(what, command, **_options):
        commands.append(what)
        if what == "make the venv":
            Path(command[-1]).mkdir(parents=True)

    monkeypatch.setattr(environment, "must", must)
    monkeypatch.setattr(environment.interpreter, "choose", lambda: python)
    monkeypatch.setattr(environment, "ensure_packages", lambda: None)
    return commands


def test_the_venv_is_made_once(pip):
    first = environment.ensure()
    assert pip == ["make the venv", "install the pinned tools", "check the installed tools"]
    assert environment.ensure() == first
    assert len(pip) == 3


def test_an_interrupted_venv_is_made_again(pip, monkeypatch, state):
    cut = environment.must

    def fail(what, command, **options):
        if what == "install the pinned tools":
            (Path(command[0]).parents[1] / "half").touch()
            raise ToolError("killed")
        cut(what, command, **options)

    monkeypatch.setattr(environment, "must", fail)
    with pytest.raises(ToolError):
        environment.ensure()
    monkeypatch.setattr(environment, "must", cut)
    assert not (environment.ensure() / "half").exists()
    assert os.readlink(state[1] / "venv").startswith("venv-")


def test_other_pins_or_another_python_make_another_venv(monkeypatch, state, tmp_path):
    pins = tmp_path / "pins"
    pins.write_text("a==1\n", encoding="utf-8")
    monkeypatch.setattr(environment, "_PINS", [pins])
    one = Interpreter(Path("/usr/bin/python3"), (3, 13), True, True)
    two = Interpreter(Path("/usr/bin/python3"), (3, 11), True, True)
    before = environment.venv_path(one)
    assert environment.venv_path(two) != before
    pins.write_text("a==2\n", encoding="utf-8")
    assert environment.venv_path(one) != before
