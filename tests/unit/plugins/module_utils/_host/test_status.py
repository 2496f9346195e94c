# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._host.status import StatusFile
from ansible_collections.egress.kvm2.plugins.module_utils._policy import progress


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder that the status file goes to; it is not there yet."""
    monkeypatch.setattr(progress, "folder", lambda token: token and str(tmp_path / token))
    return tmp_path / "token"


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_written_once_a_second_and_at_each_phase_and_removed_at_the_end(place):
    clock = Clock()
    status = StatusFile("token", clock)

    def read():
        return progress.parse((place / progress.FILE).read_text())

    status.write(1, 10, "fetch")
    assert place.stat().st_mode & 0o777 == 0o700 and (place / progress.FILE).stat().st_mode & 0o777 == 0o600
    assert read() == progress.Sample("fetch", 1, 10, 0.0)
    clock.now += 0.5
    status.write(2, 10, "fetch")
    assert read().done == 1
    clock.now += 0.5
    status.write(3, 10, "fetch")
    assert read() == progress.Sample("fetch", 3, 10, 1.0)
    status.write(4, 10, "verify")
    assert read() == progress.Sample("verify", 4, 10, 0.0)
    assert os.listdir(place) == [progress.FILE]
    status.remove()
    assert not place.exists()
    status.write(5, 10, "store")
    status.remove()
    assert not place.exists()


def test_nothing_is_written_where_nobody_reads(place):
    status = StatusFile(None)
    status.write(1, 1, "fetch")
    status.remove()
    assert not place.exists()


@pytest.mark.parametrize("kind", ["folder", "link", "file"])
def test_what_somebody_else_has_put_there_is_left_alone(place, tmp_path, kind):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if kind == "folder":
        place.mkdir()
    elif kind == "link":
        place.symlink_to(elsewhere)
    else:
        place.write_text("theirs")
    status = StatusFile("token")
    for done in range(3):
        status.write(done, None, "fetch")
    status.remove()
    assert os.path.lexists(place) and os.listdir(elsewhere) == []
    assert kind != "file" or place.read_text() == "theirs"


def test_a_folder_that_was_swapped_for_a_link_is_not_followed(place, tmp_path):
    clock = Clock()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    status = StatusFile("token", clock)
    status.write(1, 10, "fetch")
    place.rename(tmp_path / "moved")
    place.symlink_to(elsewhere)
    clock.now += 2
    status.write(2, 10, "fetch")
    assert os.listdir(elsewhere) == [] and progress.parse((tmp_path / "moved" / progress.FILE).read_text()).done == 2
    status.remove()
    assert place.is_symlink() and os.listdir(tmp_path / "moved") == []
