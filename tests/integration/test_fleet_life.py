# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet of two over its life: stopped, started, restarted with another set-up, replaced with another image, and what is left collected."""

from __future__ import annotations

import json
import re

import pytest

from .test_fleet import FLEET, LISTING, changes

IMAGES = "/var/lib/libvirt/images"
NEWER = {"key": "fleet-life", "src": "/tmp/fleet-life.qcow2"}
KEY = NEWER["key"]


def play(hv1, name, image=None, memory="256MiB", **variables):
    """Run a playbook of the collection over the fleet of two; image: its image where it is not the published one; variables: the role's."""
    change = {"name": "life", "instances": {"count": 2}, "sizing": {"memory": memory}}
    image = image or {**hv1.variables["nested_image"], "key": KEY}
    return hv1.playbook(
        f"egress.kvm2.{name}", "--limit", "hv1", "-e", f"@{FLEET}", "-e", json.dumps({"test_change": change, "nested_image": image, **variables}))


def states(hv1):
    """{name: (state, paths of its overlay and seed)} of the fleet's domains, as virsh tells them."""
    script = """virsh -q list --all --name | grep '^life[.]' | while read -r name; do
        echo $name $(virsh domstate $name | tr -d ' ') $(virsh dumpxml --inactive $name | grep -oE "source file='[^']*/kvm2-life[.][^']*'" | cut -d "'" -f 2)
    done"""
    found = {}
    for line in hv1.shell("hv1", script).splitlines():
        name, state, *disks = line.split()
        found[name] = (state, disks)
    return found


def answering(done):
    """The proxies that answered, as the role's table shows them."""
    return re.findall(r"(proxy-\d\d) +hv1 .*http://\S+ +running", done.stdout)


@pytest.fixture
def clean(hv1):
    """After the test the fleet and both its images are gone, and the pool is as it was."""
    before = hv1.shell("hv1", LISTING)
    yield
    play(hv1, "decommission", proxy_fleet_remove_image=True)
    if hv1.shell("hv1", f"ls {NEWER['src']} 2> /dev/null || true"):
        play(hv1, "decommission", NEWER, proxy_fleet_remove_image=True)
        hv1.shell("hv1", f"rm {NEWER['src']}")
    assert hv1.shell("hv1", LISTING) == before


def test_stopped_started_and_brought_up_to_date(hv1, clean):
    both = ["proxy-01", "proxy-02"]
    assert changes(play(hv1, "stop")) == 0
    assert states(hv1) == {}, "stopping a fleet made something"
    assert answering(play(hv1, "provision")) == both
    first = states(hv1)
    assert [state for state, _disks in first.values()] == ["running", "running"]

    play(hv1, "stop")
    assert states(hv1) == {name: ("shutoff", disks) for name, (_state, disks) in first.items()}
    assert changes(play(hv1, "stop")) == 0
    # Started as they are: what the definition asks for beyond that is only said.
    started = play(hv1, "start", memory="288MiB")
    assert answering(started) == both
    assert "memory" in started.stdout
    assert states(hv1) == first

    # Another set-up: a restart over the same disks, with new seeds.
    restarted = play(hv1, "rolling_update", proxy_fleet_on_change="restart", proxy_fleet_max_clients=50)
    assert answering(restarted) == both
    second = states(hv1)
    for name, (state, disks) in second.items():
        assert (state, disks[0] == first[name][1][0], disks[1] != first[name][1][1]) == ("running", True, True)
    assert changes(play(hv1, "rolling_update", proxy_fleet_on_change="restart", proxy_fleet_max_clients=50)) == 0

    # Another image under the same key: new disks and seeds, the former ones stay for the collector.
    hv1.shell("hv1", f"cp {IMAGES}/kvm2-base-{KEY}-*.qcow2 {NEWER['src']} && qemu-img resize -q {NEWER['src']} +1M")
    replaced = play(hv1, "rolling_update", NEWER, proxy_fleet_max_clients=50)
    assert answering(replaced) == both
    third = states(hv1)
    for name, (state, disks) in third.items():
        assert (state, set(disks) & set(second[name][1])) == ("running", set())
    former = [disk for fleet in (first, second) for _state, disks in fleet.values() for disk in disks]
    present = hv1.shell("hv1", f"ls {IMAGES}").split()
    assert {disk.rpartition("/")[2] for disk in former} <= set(present), "what was replaced is the collector's"

    # The collector takes them once they are old, and the base that nothing uses any more.
    hv1.shell("hv1", f"cd {IMAGES} && touch -d '2 days ago' {' '.join(disk.rpartition('/')[2] for disk in set(former))}")
    play(hv1, "gc", NEWER)
    assert states(hv1) == third
    left = [name for name in hv1.shell("hv1", f"ls {IMAGES}").split() if name.startswith("kvm2-life.")]
    assert sorted(left) == sorted(disk.rpartition("/")[2] for _state, disks in third.values() for disk in disks)
    again = play(hv1, "rolling_update", NEWER, proxy_fleet_max_clients=50)
    assert (changes(again), answering(again)) == (0, both)
