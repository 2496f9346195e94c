# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kvm2_image killed at every step and anywhere in the stream: no bad base is ever listed, the next run converges, the collector takes the rest."""

from __future__ import annotations

import json
import random
from urllib.parse import urlsplit

import pytest

from .kill import Module, Runs, Shell, changing
from .serving import random_image, serving

SIZE = 24 * 1024 ** 2
FOREIGN = ("base-killed.raw", "base-killed.raw.sha256", "kvm2-base-killed.raw", "kvm2-base-killed-0123456789abcdef.raw", "other-disk.qcow2")
LISTING = "cd /var/lib/libvirt/images && find . -type f -printf '%p %s\\n' -exec sha256sum {} + | sort; virsh -q vol-list default"

# Every record that can be read at all has a base with the recorded bytes. Prints whether each volume of ours is published, and ages those that are
# not, so that they are old enough to be collected.
JUDGE = """python3 - << 'END'
import hashlib, json, os, pathlib, time
pool, published = pathlib.Path("/var/lib/libvirt/images"), {}
ours = sorted(path for path in pool.glob("kvm2-base-killed-*.raw*") if len(path.name.split("-")) > 4)
for path in ours:
    base = path.with_name(path.name.partition(".raw")[0] + ".raw")
    try:
        said = json.loads(base.with_name(base.name + ".json").read_bytes())
    except (OSError, ValueError):
        published[path.name] = False
        os.utime(path, (time.time() - 2 * 86400,) * 2)
        continue
    stored = base.read_bytes()
    assert said["size"] == len(stored) and said["digest"] == hashlib.sha256(stored).hexdigest(), f"{path} is a bad base"
    published[path.name] = True
print(json.dumps(published))
END"""


def import_of(served, number, at=""):
    """Each place to be killed at has a key of its own, so that all of them can be looked at together at the end."""
    options = {"key": f"killed-{number}", "url": served.url, "checksum": served.checksum, "format": "raw", "timeout": "2m"}
    return Module("kvm2_image", options, at=at)


def collect():
    return Module("kvm2_gc", {
        "fleet": "killed", "live": [], "allow_empty_live": True, "min_age": "0s", "keep_latest": False, "max_delete": "100%", "collect": ["bases"]})


def killed_everywhere(hypervisors, host, places, pipelining=True):
    """Killed at each place, run again, looked at, and collected; afterwards the pool must be as it was before. places is made from the steps."""
    address = urlsplit(hypervisors.variables["nested_publish_url"]).hostname
    with serving(address, random_image(SIZE, "killed")) as served, Runs(hypervisors, host, pipelining) as runs:
        runs.play(Shell("".join(f"virsh -q vol-create-as default {name} 4096\n" for name in FOREIGN)))
        try:
            # What other tests left unused in the pool is collected first: the comparison at the end must see only what this one made.
            _tidied, before, whole = runs.play(collect(), Shell(LISTING), import_of(served, "whole"))
            assert whole.result["changed"], whole.result
            killed = [(number, at, import_of(served, number, at), import_of(served, number)) for number, at in enumerate(places(whole.steps))]
            done = runs.play(*(job for one in killed for job in one[2:]), Shell(JUDGE), collect(), Shell(LISTING))
            published = json.loads(done[-3].output)
            for number, (dead, again) in enumerate(zip(done[:-3:2], done[1:-3:2], strict=True)):
                said = f"killed {dead.killed}: {again.result}; in the pool: {published}"
                assert not again.result.get("failed"), said
                assert again.result["image"]["published"] and again.result["image"]["digest"] == served.checksum, said
                there = {name: good for name, good in published.items() if name.startswith(f"kvm2-base-killed-{number}-")}
                assert sorted(name for name, good in there.items() if good) == [again.result["image"]["base"], again.result["image"]["base"] + ".json"], said
                assert len(there) <= 4, said
            taken = {one["name"] for one in done[-2].result["collected"]}
            assert set(published) == taken, done[-2].result
            assert done[-1].output == before.output
            return done[:-3:2]
        finally:
            hypervisors.shell(host, "".join(f"virsh -q vol-delete {name} default\n" for name in FOREIGN))


def anywhere(count):
    """So many random moments of the stream into the pool, of the reading back, and one in the record."""
    def places(steps):
        sent = [f"sent {random.randrange(1, SIZE)}" for _time in range(count * 7 // 10)]
        # How much is read behind the stream already, and in how many pieces, the clock tells; the last piece and the look at the name are always there.
        read = [step for step in steps if step in ("helper.hash_on 1", "helper.is_same 1")]
        back = [f"{random.choice(('before', 'after'))} {random.choice(read)}" for _time in range(count - len(sent) - 1)]
        return [*sent, *back, f"sent {SIZE + 100}"]
    return places


def test_killed_at_random_moments_of_the_stream(hv1):
    for dead in killed_everywhere(hv1, "hv1", anywhere(10)):
        assert dead.killed.startswith("sent") or " helper." in dead.killed


def test_the_kill_hits_without_pipelining_too(hv1):
    assert killed_everywhere(hv1, "hv1", lambda _steps: ["after virStoragePool.createXML 1"], pipelining=False)


@pytest.mark.extended
def test_killed_before_and_after_each_step(hv1):
    assert len(killed_everywhere(hv1, "hv1", changing)) > 12


@pytest.mark.extended
def test_killed_on_the_other_releases(other_release):
    hypervisors, host = other_release
    killed_everywhere(hypervisors, host, lambda steps: [*changing(steps), *anywhere(20)(steps)])
