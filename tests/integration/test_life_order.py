# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of calls that the modules make on a real libvirt is the order of the steps that the model of an instance's life explores."""

from __future__ import annotations

import json

import pytest

from ansible_collections.egress.kvm2.tests.unit.protocol.instance_model import ENDS, OLD, YOUNG, Protocol, World, make_run

from .living import living, output

DOMAIN, OVERLAY = "domain", "overlay"
FIELDS = {"defined": DOMAIN, "running": DOMAIN, "declared": DOMAIN, "overlays": OVERLAY, "old": OVERLAY, "written": OVERLAY}
WRITES = {
    "virConnect.defineXMLFlags": "define", "virDomain.create": "start", "virDomain.destroy": "stop", "virDomain.setMetadata": "declare",
    "virDomain.undefineFlags": "undefine"}
VOLUME_WRITES = {"virStoragePool.createXML": "create overlay", "virStorageVol.delete": "delete overlay", "virStorageVol.upload": "touch"}
LOOKS = ("virDomain.XMLDesc", "virConnect.listAllDomains")
VOLUME_LOOKS = ("virStorageVol.XMLDesc", "virStoragePool.storageVolLookupByName")
RUNNING = World(frozenset((OLD,)), frozenset((OLD,)), OLD, OLD, False, frozenset((OLD,)))
# The replacement before it left an overlay.
REPLACED = RUNNING._replace(overlays=frozenset((OLD, YOUNG)))
STARTS = {"create": World(), "update": RUNNING, "restart": RUNNING, "replace": RUNNING, "delete": REPLACED}


class Watched:
    """A World that notes what is read of it."""

    def __init__(self, world):
        self._world, self.seen = world, set()

    def __getattr__(self, name):
        if name == "used":
            self.seen.add(DOMAIN)
        elif name in FIELDS:
            self.seen.add(FIELDS[name])
        return getattr(self._world, name)


def written(step, before, after):
    """What a step of the model wrote, in words; None where it only looked."""
    if after.overlays != before.overlays:
        return "create overlay" if after.overlays > before.overlays else "delete overlay"
    if after.running != before.running:
        return "stop" if after.running is None else "start"
    if after.defined is None and before.defined is not None:
        return "undefine"
    if after.declared and not before.declared:
        return "declare"
    if after.old != before.old:
        return "touch"
    return "define" if step == "define" else None


def of_model(kind, protocol=None):
    """(kinds of objects looked at before it, write) of each write of a run that is alone, and (looked at after the last one, None)."""
    run, world, step, held = make_run(kind, 0, protocol or Protocol()), STARTS[kind], "begin", ()
    found, seen = [], set()
    while step not in ENDS:
        watched = Watched(world)
        following, held, after = getattr(run, step)(watched, held)
        after = world if after is watched else after
        seen |= watched.seen
        write = written(step, world, after)
        if write:
            found.append((seen, write))
            seen = set()
        world, step = after, following
    return [*found, (seen, None)]


def of_calls(calls):
    """The same of recorded calls: looks at domains and overlays, and writes to them. Seeds are no part of the model."""
    found, seen = [], set()
    for name, subject, succeeded in calls:
        write = WRITES.get(name) or (VOLUME_WRITES.get(name) if subject.endswith(".qcow2") else None)
        if write and succeeded:
            found.append((seen, write))
            seen = set()
        elif name in LOOKS or (name.startswith("virConnect.lookup") and not succeeded):
            seen.add(DOMAIN)
        elif name == "virStoragePool.listAllVolumes" or (name in VOLUME_LOOKS and subject.endswith(".qcow2")):
            seen.add(OVERLAY)
    return [*found, (seen, None)]


def differs(model, recorded):
    """How a recorded run departs from the model: another order of writes, or a look that the model takes and the run does not."""
    if [write for _seen, write in model] != [write for _seen, write in recorded]:
        return [f"it writes {[write for _seen, write in recorded]} and the model {[write for _seen, write in model]}"]
    return [
        f"before {write or 'its end'} it did not look at the {looked}" for (should, write), (did, _write) in zip(model, recorded, strict=True)
        for looked in should - did]


@pytest.fixture(scope="module")
def recorded(hv1):
    with living(hv1, "hv1"):
        return json.loads(output(hv1, "hv1", "python3 recording.py"))


@pytest.mark.parametrize("kind", STARTS)
def test_a_run_writes_and_looks_as_the_model_does(recorded, kind):
    model = of_model(kind)
    assert len(model) > 1
    assert differs(model, of_calls(recorded[kind])) == []


def test_the_rejected_order_of_a_deletion_is_told_from_it(recorded):
    assert differs(of_model("delete", Protocol(declare=False)), of_calls(recorded["delete"]))


@pytest.mark.parametrize(("kind", "write"), [("create", "define"), ("replace", "touch"), ("delete", "delete overlay"), ("restart", "define")])
def test_a_run_without_its_looks_is_told_from_the_model(recorded, kind, write):
    blind = [call for call in recorded[kind] if call[0] not in LOOKS and "virConnect.lookup" not in call[0]]
    assert any(f"before {write} it did not look at the domain" in one for one in differs(of_model(kind), of_calls(blind)))
