# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each rule of the collector, and what it says about an object."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._policy import collect, mark, names, record, references
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import InvalidInput, Kvm2Error
from ansible_collections.egress.kvm2.plugins.module_utils._policy.mark import Mark
from ansible_collections.egress.kvm2.plugins.module_utils._policy.model import Domain, Inventory, Pool, Volume
from ansible_collections.egress.kvm2.plugins.module_utils._policy.xml import etree

NOW = 1_800_000_000.0
HOUR, DAY = 3600, 86400
DIGEST = "0123456789abcdef" * 4
POOL = Pool("default", "p1", "dir", True, "/pool")
REQUEST = collect.Request("edge", frozenset(("other",)), max_delete=("count", 9))


def uid(name="a", fleet="edge"):
    return names.derive_uid(fleet, name)


def marked(name="a", fleet="edge", age=DAY, **more):
    return Mark(fleet=fleet, name=name, uid=more.pop("uid", uid(name, fleet)), created_at=NOW - age, **more)


def domain(one, disks=(), name=None, uuid=None):
    text = "" if one is None else etree.tostring(mark.to_element(one), encoding="unicode")
    devices = "".join(f"<disk><driver type='raw'/><source file='{path}'/></disk>" for path in disks)
    name = name or f"{one.fleet}.{one.name}"
    xml = f"<domain><name>{name}</name><metadata>{text}</metadata><devices>{devices}</devices></domain>"
    return Domain(name, uuid or one.uid, "shutoff", xml=xml)


def own_volume(name="a", fleet="edge", kind="overlay", nonce="00000a", age=DAY, **more):
    text = str(names.InstanceVolumeName(kind, fleet, name, uid(name, fleet), nonce))
    return Volume("default", text, f"/pool/{text}", format="raw", mtime=NOW - age, **more)


def base(key="deb", nonce="00000b", age=DAY, physical=1000, id16=DIGEST[:16]):
    text = str(names.BaseName(key, id16, nonce, "qcow2"))
    return Volume("default", text, f"/pool/{text}", format="qcow2", physical=physical, mtime=NOW - age)


def record_of(volume, age=DAY, published_at=NOW - DAY, size=1000):
    name = f"{volume.name}.json"
    key = names.parse_base(volume.name).key
    parsed = record.Record(key, "qcow2", size, DIGEST, f"sha256:{DIGEST}", "/src", f"sha256:{DIGEST}", "", 2000, published_at, True)
    return Volume("default", name, f"/pool/{name}", format="raw", mtime=NOW - age), {("default", name): parsed}


def run(domains=(), volumes=(), records=None, request=REQUEST, pool_now=None, pools=(POOL,), shared=None, **more):
    inventory = Inventory(tuple(pools), tuple(volumes), tuple(domains), **more)
    found = references.used_files(inventory, ignore_pools=request.ignore_pools)
    return collect.plan(inventory, request, NOW, found, records or {}, pool_now or {}, shared)


def answer(result, name):
    """(list, reason) of the one object of that name."""
    found = [
        (which, item.reason) for which in ("collected", "kept", "skipped", "unreadable") for item in getattr(result, which)
        if item.name == name]
    assert len(found) == 1, found
    return found[0]


# -- instances


def test_an_old_instance_that_is_not_live_goes():
    result = run([domain(marked())])
    assert answer(result, "edge.a") == ("collected", "it is not live and its mark is 24 h old")
    assert [item.uid for item in result.instances] == [uid()]


@pytest.mark.parametrize("entry", ["a", uid(), uid().upper()])
def test_a_live_instance_stays(entry):
    result = run([domain(marked())], request=replace(REQUEST, live=frozenset((entry,))))
    assert answer(result, "edge.a") == ("kept", "it is live")


def test_an_instance_of_an_explicit_uid_is_live_by_either():
    own = "11111111-2222-4333-8444-555555555555"
    for entry in ("a", own):
        assert answer(run([domain(marked(uid=own))], request=replace(REQUEST, live=frozenset((entry,)))), "edge.a")[0] == "kept"


@pytest.mark.parametrize(("one", "which", "words"), [
    (marked(age=HOUR - 60), "kept", "only 59 min old"),
    (marked(hold="debugging"), "kept", "on hold: debugging"),
    (marked(hold="debugging", deleting=NOW), "kept", "on hold"),
    (marked(age=60, deleting=NOW), "collected", "deletion was declared"),
    (marked(host="hv2"), "kept", "host hv2 and not hv1"),
    (marked(host="hv1"), "collected", ""),
    (marked(fleet="edge-2"), "skipped", "the fleet edge-2"),
    (marked(age=-2 * HOUR), "skipped", "in the future"),
    (marked(age=-60), "kept", "60 s ahead of the clock here, which is tolerated"),
    (marked(age=-mark.CLOCK_SKEW), "kept", "tolerated"),
    (marked(age=-mark.CLOCK_SKEW - 1), "skipped", "in the future"),
])
def test_marks(one, which, words):
    result = run([domain(one)], request=replace(REQUEST, host="hv1"))
    assert answer(result, f"{one.fleet}.a")[0] == which
    assert words in answer(result, f"{one.fleet}.a")[1]
    assert bool(result.instances) == (which == "collected")


def test_a_live_instance_with_a_mark_from_the_future_stays_and_that_is_told():
    which, reason = answer(run([domain(marked(age=-DAY))], request=replace(REQUEST, live=frozenset(("a",)))), "edge.a")
    assert which == "kept"
    assert "in the future: check the clocks" in reason


def test_a_live_instance_whose_deletion_was_declared_is_left_to_its_module():
    which, reason = answer(run([domain(marked(deleting=NOW))], request=replace(REQUEST, live=frozenset(("a",)))), "edge.a")
    assert which == "kept"
    assert "kvm2_domain finishes it" in reason


@pytest.mark.parametrize(("one", "which"), [
    (domain(None, name="edge.a", uuid=uid()), "skipped"),
    (domain(marked(), uuid=uid("b")), "skipped"),
    (domain(marked(), name="edge.b"), "skipped"),
    (replace(domain(marked()), xml=domain(marked()).xml.replace("edge<", "Edge<")), "unreadable"),
    (replace(domain(marked()), xml="<domain"), "unreadable"),
    (replace(domain(marked()), xml=None, unreadable="no rights"), "unreadable"),
])
def test_what_is_not_surely_ours_stays_and_its_repair_is_told(one, which):
    result = run([one])
    found, reason = answer(result, one.name)
    assert found == which
    assert result.instances == []
    assert f"virsh metadata {one.uuid} urn:egress:kvm2:instance:1" in reason


def test_the_repair_makes_the_domain_ours():
    one = domain(None, name="edge.a", uuid=uid())
    element = answer(run([one]), "edge.a")[1].split("--set '")[1].rstrip("'")
    text = element.replace("<instance>", f"<instance xmlns='{mark.URI}'>")
    repaired = replace(one, xml=one.xml.replace("<metadata/>", "").replace("<metadata></metadata>", f"<metadata>{text}</metadata>"))
    assert mark.why_not_ours(repaired, mark.of_domain(repaired)) is None


def test_a_foreign_domain_is_reported_without_a_repair():
    assert answer(run([domain(None, name="web", uuid=uid())]), "web") == ("skipped", "it carries no mark of this collection")
    # Nor where it has the name of one of ours, but never was one: an instance that lost its mark has the UUID that follows from its name.
    assert answer(run([domain(None, name="edge.a", uuid=uid("b"))]), "edge.a") == ("skipped", "it carries no mark of this collection")


def test_an_instance_whose_volume_serves_somebody_else_stays():
    volume = own_volume()
    result = run([domain(marked(), [volume.path]), domain(None, [volume.path], name="web", uuid=uid("web"))], [volume])
    which, reason = answer(result, "edge.a")
    assert which == "skipped"
    assert "used by domain web" in reason
    assert result.instances == []


def test_an_instance_with_a_volume_of_its_uid_and_another_name_stays():
    volume = own_volume()
    odd = replace(volume, name=volume.name.replace("edge.a", "edge-2.b"), path=volume.path.replace("edge.a", "edge-2.b"))
    result = run([domain(marked(), [volume.path])], [volume, odd])
    which, reason = answer(result, "edge.a")
    assert which == "skipped"
    assert "belongs to edge-2.b" in reason
    assert answer(result, odd.name)[0] == "skipped"
    assert result.instances == result.volumes == []


def test_volumes_in_other_pools_than_asked_for_go_with_their_instance():
    second = Pool("fast", "p2", "dir", True, "/fast")
    here, there = own_volume(), replace(own_volume(nonce="00000d"), pool="fast", path="/fast/x")
    result = run([domain(marked(), [here.path])], [here, there], request=replace(REQUEST, pools=("fast",)), pools=[POOL, second])
    assert [item.name for item in result.collected] == ["edge.a", there.name, here.name]
    assert result.volumes == []


def test_its_volumes_go_with_an_instance():
    used, spare, seed = own_volume(age=0), own_volume(nonce="00000c", age=0), own_volume(kind="seed", age=0)
    result = run([domain(marked(), [used.path, seed.path])], [used, spare, seed], request=replace(REQUEST, collect=("domains",)))
    for volume in (used, spare, seed):
        assert answer(result, volume.name) == ("collected", "it goes with the instance edge.a")
    assert result.volumes == []


# -- how much


@pytest.mark.parametrize(("allowed", "going", "staying", "fine"), [
    (("percent", 25), 1, 0, True), (("percent", 25), 1, 3, True), (("percent", 25), 2, 6, True), (("percent", 25), 2, 5, False),
    (("percent", 100), 4, 0, True), (("count", 2), 2, 0, True), (("count", 2), 3, 90, False), (("count", 0), 1, 5, False),
    (("percent", 0), 1, 0, True), (("percent", 0), 2, 5, False)])
def test_max_delete(allowed, going, staying, fine):
    domains = [domain(marked(f"go{number}")) for number in range(going)] + [domain(marked(f"stay{number}")) for number in range(staying)]
    foreign = [domain(marked(f"x{number}", fleet="edge-2")) for number in range(50)]
    request = replace(REQUEST, live=frozenset(f"stay{number}" for number in range(max(staying, 1))), max_delete=allowed)
    if fine:
        assert len(run(domains + foreign, request=request).instances) == going
        return
    with pytest.raises(Kvm2Error) as error:
        run(domains + foreign, request=request)
    assert f"{going} of {going + staying} instances would go" in error.value.message
    assert all(f"edge.go{number}" in error.value.message for number in range(going))
    assert "max_delete" in error.value.hint
    assert run(domains, request=replace(request, collect=("bases",))).instances == []


def test_an_empty_live_set_has_to_be_meant():
    request = replace(REQUEST, live=frozenset())
    with pytest.raises(InvalidInput, match="allow_empty_live"):
        run([domain(marked())], request=request)
    assert len(run([domain(marked())], request=replace(request, allow_empty_live=True)).instances) == 1


@pytest.mark.parametrize("change", [
    {"live": frozenset(("Proxy-01",))}, {"live": frozenset(("a", ""))}, {"incomplete_age": 11 * HOUR}, {"pools": ("none",)},
    {"pools": ("off",)}, {"pools": ("lvm",)}])
def test_requests_that_cannot_be_meant(change):
    pools = [POOL, Pool("off", "p2", "dir", False, "/off"), Pool("lvm", "p3", "logical", True, "/dev/vg")]
    with pytest.raises(InvalidInput) as error:
        run([domain(marked())], request=replace(REQUEST, **change), pools=pools)
    assert error.value.hint


# -- overlays and seeds


@pytest.mark.parametrize("kind", ["overlay", "seed"])
@pytest.mark.parametrize("live", ["a", "other"])
def test_an_old_orphan_goes_live_or_not(kind, live):
    volume = own_volume(kind=kind)
    result = run([], [volume], request=replace(REQUEST, live=frozenset((live,))))
    assert answer(result, volume.name) == ("collected", "no domain uses it and it was last written 24 h ago")
    assert result.volumes[0].pool == "default"


def test_a_superseded_seed_of_a_live_instance_goes():
    old, new = own_volume(kind="seed"), own_volume(kind="seed", nonce="00000c")
    result = run([domain(marked(), [new.path])], [old, new], request=replace(REQUEST, live=frozenset(("a",))))
    assert answer(result, old.name)[0] == "collected"
    assert answer(result, new.name) == ("kept", "it is used by domain edge.a")


@pytest.mark.parametrize(("min_age", "age", "which"), [
    (0, HOUR - 1, "kept"), (0, HOUR, "collected"), (2 * HOUR, 2 * HOUR - 1, "kept"), (2 * HOUR, 2 * HOUR, "collected"), (0, -5, "skipped")])
def test_the_age_of_an_orphan(min_age, age, which):
    volume = own_volume(age=age)
    assert answer(run([], [volume], request=replace(REQUEST, min_age=min_age)), volume.name)[0] == which


def test_ages_are_told_by_the_clock_of_the_pool():
    volume = own_volume(age=0)
    assert answer(run([], [volume], pool_now={"default": NOW + DAY}), volume.name)[0] == "collected"
    assert answer(run([], [own_volume()], pool_now={"default": NOW - 2 * DAY}), volume.name)[0] == "skipped"
    assert answer(run([], [replace(volume, mtime=None)]), volume.name) == ("skipped", "its age cannot be told")


def test_other_volumes_stay():
    other = own_volume(fleet="edge-2")
    foreign = [replace(other, name=name, path=f"/pool/{name}") for name in ("base-deb.qcow2", "debian.iso", "kvm2.txt")]
    odd = replace(other, name="kvm2-edge.a.qcow2", path="/pool/kvm2-edge.a.qcow2")
    result = run([], [other, odd, *foreign])
    assert answer(result, other.name) == ("skipped", "it belongs to the fleet edge-2")
    assert answer(result, odd.name)[0] == "skipped"
    assert not any(item.name == volume.name for volume in foreign for item in (*result.skipped, *result.kept))
    assert result.volumes == []


def test_an_orphan_stays_where_something_could_not_be_read():
    volume = own_volume()
    hidden = replace(domain(marked("b")), xml=None, unreadable="no rights")
    for options in ({"domains": [hidden]}, {"inactive_pools": ("off",)}, {"unrefreshed": (("default", "a job runs"),)}):
        which, reason = answer(run(volumes=[volume], **options), volume.name)
        assert which == "skipped"
        assert "cannot be seen" in reason
    vouched = replace(REQUEST, ignore_pools=("off",))
    assert answer(run(volumes=[volume], inactive_pools=("off",), request=vouched), volume.name)[0] == "collected"


def test_a_folder_or_an_unreadable_volume_stays():
    assert answer(run([], [own_volume(type="dir")]), own_volume().name)[0] == "skipped"
    assert answer(run([], [own_volume(unreadable="I/O error")]), own_volume().name) == ("unreadable", "I/O error")


def test_a_clock_probe_of_a_killed_run_goes_when_it_is_old():
    probe = Volume("default", "kvm2-clock-0123456789ab.raw", "/pool/x", mtime=NOW - DAY)
    assert answer(run([], [probe]), probe.name)[0] == "collected"
    assert answer(run([], [replace(probe, mtime=NOW - HOUR)]), probe.name)[0] == "kept"


def test_only_the_pools_that_were_asked_for():
    second = Pool("fast", "p2", "dir", True, "/fast")
    here, there = own_volume(), replace(own_volume(), pool="fast", path="/fast/x")
    result = run([], [here, there], request=replace(REQUEST, pools=("fast",)), pools=[POOL, second])
    assert [item.pool for item in result.volumes] == ["fast"]


def test_a_file_that_two_pools_list_is_one_volume():
    second = Pool("again", "p2", "dir", True, "/pool/")
    volume, (record_volume, records) = base(), record_of(base())
    listed = [own_volume(), volume, record_volume]
    both = [*[replace(one, pool="again", path=f"/pool//{one.name}") for one in listed], *listed]
    records["again", record_volume.name] = records["default", record_volume.name]
    for pools in (None, ("default",), ("again",)):
        result = run([], both, records, replace(REQUEST, pools=pools, keep_latest=False), pools=[second, POOL])
        assert sorted(item.name for item in result.collected) == sorted(one.name for one in listed)
        assert len(result.volumes) == len(result.bases) == 1
        assert pools is None or {item.pool for item in result.collected} == set(pools)


def test_pools_that_another_daemon_could_use_are_left_alone():
    shared = {"default": "nfs"}
    volume, (record_volume, records) = base(), record_of(base())
    everything = [own_volume(), volume, record_volume, Volume("default", "kvm2-clock-0123456789ab.raw", "/pool/x", mtime=NOW - DAY)]
    request = replace(REQUEST, keep_latest=False)
    result = run([], everything, records, request, shared=shared)
    assert [(which, "nfs" in reason, "exclusive" in reason) for which, reason in (answer(result, one.name) for one in everything)] == [
        ("skipped", True, True)] * 4
    assert len(run([], everything, records, request).collected) == 4
    result = run([domain(marked(), [everything[0].path])], everything, records, request, shared=shared)
    assert "shared storage (nfs)" in answer(result, "edge.a")[1]
    assert result.instances == []
    with pytest.raises(InvalidInput, match="exclusive"):
        run([], everything, records, replace(request, pools=("default",)), shared=shared)


def test_what_blocks_is_told_even_where_nothing_is_there_to_be_kept():
    result = run(inactive_pools=("off",), unrefreshed=(("default", "a job runs"),))
    assert [reason.split(":")[0] for reason in result.blocked] == ["pool off is not active", "pool default could not be refreshed"]
    assert result.as_dict()["blocked"] == list(result.blocked)


# -- bases


def published(*pairs):
    volumes, records = [], {}
    for volume, (record_volume, parsed) in pairs:
        volumes += [volume, record_volume]
        records.update(parsed)
    return volumes, records


def two_bases(**older):
    old, new = base(nonce="00000b"), base(nonce="00000c")
    return old, new, published((old, record_of(old, published_at=NOW - 3 * DAY, **older)), (new, record_of(new)))


def test_an_unused_base_goes_with_its_record_and_the_newest_stays():
    old, new, (volumes, records) = two_bases()
    result = run([], volumes, records)
    assert answer(result, old.name) == ("collected", "nothing uses it and it was published 24 h ago")
    assert answer(result, f"{old.name}.json")[0] == "collected"
    assert answer(result, new.name) == ("kept", "it is the newest base of its key")
    assert [(str(gone.name), gone.base.name, gone.record.name) for gone in result.bases] == [(old.name, old.name, f"{old.name}.json")]


def test_the_newest_goes_too_where_that_is_asked_for():
    _old, _new, (volumes, records) = two_bases()
    assert len(run([], volumes, records, request=replace(REQUEST, keep_latest=False)).bases) == 2


@pytest.mark.parametrize("fleet", ["edge", "edge-2"])
def test_a_base_in_use_stays_whosever_overlay_it_is(fleet):
    old, _new, (volumes, records) = two_bases()
    overlay = own_volume(fleet=fleet, age=0, backing_path=old.path, backing_format="qcow2")
    assert answer(run([], [*volumes, overlay], records), old.name) == ("kept", f"it is used by volume {overlay.name} in pool default")


def test_a_young_base_stays():
    old, _new, (volumes, records) = two_bases(age=HOUR - 1)
    assert answer(run([], volumes, records), old.name)[0] == "kept"


def test_a_base_stays_where_something_could_not_be_read():
    old, _new, (volumes, records) = two_bases()
    assert answer(run([], volumes, records, inactive_pools=("off",)), old.name)[0] == "skipped"


BROKEN = {
    "no record": (lambda volume, name: ([volume], {}), "it has no record"),
    "unreadable record": (lambda volume, name: ([volume, record_of(volume)[0]], {("default", name): record.Unreadable("it is empty")}), "empty"),
    "other size": (lambda volume, name: ([volume, record_of(volume)[0]], record_of(volume, size=999)[1]), "1000 bytes but its record says 999"),
    "no base": (lambda volume, name: ([record_of(volume)[0]], record_of(volume)[1]), "its base is not there"),
}


@pytest.mark.parametrize(("make", "words"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize(("hours", "which"), [(0, "kept"), (23.9, "kept"), (24, "collected"), (-1, "skipped")])
def test_half_made_bases(make, words, hours, which):
    volume = base()
    volumes, records = make(volume, f"{volume.name}.json")
    volumes = [replace(one, mtime=NOW - hours * HOUR) for one in volumes]
    result = run([], volumes, records)
    for one in volumes:
        assert answer(result, one.name)[0] == which
        assert words in answer(result, one.name)[1]
    assert bool(result.bases) == (which == "collected")


def test_a_base_whose_record_is_young_is_being_published():
    volume = base(age=30 * DAY)
    record_volume = replace(record_of(volume)[0], mtime=NOW)
    result = run([], [volume, record_volume], {("default", record_volume.name): record.Unreadable("it is empty")})
    assert answer(result, volume.name)[0] == "kept"


def test_a_retired_base_in_use_stays():
    volume = base(age=30 * DAY)
    overlay = own_volume(age=0, backing_path=volume.path, backing_format="qcow2")
    assert answer(run([], [volume, overlay]), volume.name)[0] == "kept"


def test_a_record_that_could_not_be_read_keeps_its_base():
    volume = base(age=30 * DAY)
    result = run([], [volume, record_of(volume)[0]], {})
    assert answer(result, volume.name)[0] == "unreadable"
    assert result.bases == []


# -- second looks


def test_a_second_look_takes_back_what_changed():
    first = run([domain(marked("a")), domain(marked("b"))], [own_volume("c"), own_volume("d")])
    again = run([domain(marked("b", hold="wait")), domain(marked("a"))], [own_volume("d")])
    assert [item.name for item in collect.agreed(first, again, "instances")] == ["edge.a"]
    assert [item.name for item in collect.agreed(first, again, "volumes")] == [own_volume("d").name]
    anew = run([domain(marked("a", uid="11111111-2222-4333-8444-555555555555"))])
    assert collect.agreed(first, anew, "instances") == ()


def test_the_answer_as_a_module_returns_it():
    volume = own_volume()
    one = replace(domain(marked(base="kvm2-base-x.qcow2", host="hv1"), [volume.path]), state="running", reason="booted")
    shown = run([one], [volume]).as_dict()
    assert shown == {
        "collected": [
            {"what": "domain", "name": "edge.a", "reason": "it is not live and its mark is 24 h old", "instance": "a", "uid": uid(),
             "host": "hv1", "state": "running", "state_reason": "booted", "base": "kvm2-base-x.qcow2", "created": mark.format_time(NOW - DAY)},
            {"what": "overlay", "name": volume.name, "reason": "it goes with the instance edge.a", "pool": "default"}],
        "kept": [], "skipped": [], "unreadable": [], "blocked": []}


def test_the_answer_once_some_of_it_stayed():
    volume, seed, orphan = own_volume(), own_volume(kind="seed"), own_volume("b")
    result = run([domain(marked(), [volume.path])], [volume, seed, orphan])
    stayed = {result.instances[0].key: ("kept", "it is on hold: wait"), result.volumes[0].key: ("skipped", "who knows")}
    after = collect.without(result, stayed)
    assert after.collected == []
    assert [(item.name, item.reason) for item in after.kept] == [
        ("edge.a", "it is on hold: wait"), (volume.name, "its instance stays"), (seed.name, "its instance stays")]
    assert [(item.name, item.reason) for item in after.skipped] == [(orphan.name, "who knows")]
    assert len(result.collected) == 4
