# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For any hypervisor and any request: nothing that may be needed is ever among the deletions."""

from __future__ import annotations

import json
import random
import uuid
from dataclasses import dataclass, field, replace
from typing import Optional

from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy import collect, names, record, references
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import InvalidInput, Kvm2Error
from ansible_collections.egress.kvm2.plugins.module_utils._policy.mark import CLOCK_SKEW, URI, format_time
from ansible_collections.egress.kvm2.plugins.module_utils._policy.model import Domain, Inventory, Pool, Volume

NOW = 1_800_000_000.0
HOUR = 3600
NAMES, HOSTS = ("a", "b", "a-b", "c"), ("", "", "hv1", "hv2")
DIGEST = "0123456789abcdef" * 4


@dataclass
class Uses:
    """Users of files in every way there is. links: {path: where it leads}; chains: {path of a file in no pool: what is below it}, None where
    that cannot be read; local: whether the module sees the files."""

    local: bool
    paths: set = field(default_factory=set)
    links: dict = field(default_factory=dict)
    chains: dict = field(default_factory=dict)
    hidden: bool = False


@dataclass(frozen=True)
class World:
    """What a domain was made of is kept beside its XML, so that no test needs the parser to know it.

    uses.paths: files that something uses in a way of its own; uses.hidden: something is there that cannot be looked into.
    """

    inventory: Inventory
    facts: dict
    records: dict
    uses: Uses
    shared: dict


@dataclass(frozen=True)
class Facts:
    fleet: Optional[str]
    name: str
    uid: str
    host: str
    created: float
    deleting: bool
    hold: bool
    agrees: bool


PADDING = ("", " ", "\n\t  ", "<!-- x -->")
AGES = (-2 * HOUR, -10, 0, HOUR - 1, HOUR + 1, 13 * HOUR, 100 * HOUR, 200 * HOUR)


class Dice(random.Random):
    """Worlds are made from one number each: drawn piece by piece they would come out much alike."""

    def one_in(self, number):
        return self.randrange(number) == 0

    def age(self):
        return self.choice((*AGES, self.randrange(-HOUR, 1000 * HOUR)))


def make_mark(dice, fleet, name, uid):
    """(text of the metadata, Facts)."""
    age, host, pad = dice.age(), dice.choice(HOSTS), dice.choice(PADDING)
    deleting, hold = dice.one_in(10), dice.one_in(6)
    fields = {
        "managed": "true", "fleet": fleet, "name": name, "uid": dice.choice((uid, uid.upper())), "host": host,
        "createdAt": format_time(NOW - age), "deleting": format_time(NOW) if deleting else "", "hold": "no, wait" if hold else ""}
    sound, text = True, ""
    damage = dice.choice((None,) * 14 + ("managed", "fleet", "name", "uid", "createdAt", "double"))
    if damage == "double":
        text, sound = "<m:uid>x</m:uid>", False
    elif damage is not None:
        wrong = dice.choice(("", "   ", "no such", "0"))
        # "0" is a label, so a fleet or name of it is sound: it is just another one.
        fields[damage], sound = wrong, wrong == "0" and damage in ("fleet", "name")
    text += "".join(
        f"<m:{key}>{pad}{value}{pad}</m:{key}>" for key, value in fields.items() if value or (key != "deleting" and dice.one_in(2)))
    facts = Facts(fields["fleet"], fields["name"], uid, host, NOW - age, deleting, hold, sound)
    return f"<metadata><m:instance xmlns:m='{URI}'>{text}</m:instance></metadata>", facts


def make_bases(dice):
    volumes, records = [], {}
    for number in range(dice.randrange(5)):
        base = names.BaseName(dice.choice(("deb", "alp")), DIGEST[:16], f"{number:06x}", "qcow2")
        if not dice.one_in(5):
            volumes.append(Volume("default", str(base), f"/pool/{base}", format="qcow2", physical=1000, mtime=NOW - dice.age()))
        if not dice.one_in(5):
            volumes.append(Volume("default", base.record, f"/pool/{base.record}", format="raw", physical=300, mtime=NOW - dice.age()))
            size, at = dice.choice(((1000, NOW - 5), (1000, NOW - 7), (999, NOW)))
            parsed = record.Record(
                base.key, "qcow2", size, DIGEST, f"sha256:{DIGEST}", "/src", f"sha256:{DIGEST}", "", 2000, at, True)
            if not dice.one_in(10):
                records["default", base.record] = record.Unreadable("broken") if dice.one_in(4) else parsed
    return volumes, records


def make_own_volumes(dice, fleet, name, uid, bases):
    for number in range(dice.randrange(4)):
        kind = dice.choice(("overlay", "seed"))
        volume_name = str(names.InstanceVolumeName(kind, fleet, name, uid, f"{number:06x}"))
        yield Volume(
            "default", volume_name, f"/pool/{volume_name}", format="qcow2" if kind == "overlay" else "iso",
            mtime=None if dice.one_in(10) else NOW - dice.age(), backing_path=dice.choice(bases) if kind == "overlay" else None,
            backing_format="qcow2", unreadable="I/O error" if dice.one_in(40) else None)


def disk_of(path):
    return f"<disk type='file'><driver type='qcow2'/><source file='{path}'/></disk>"


def use(dice, number, target, uses):
    """Something of somebody else's that uses the volume `target` in one of many ways: (volumes, devices of a domain)."""
    aside, name, foreign = f"/srv/f{number}", f"f{number}.qcow2", Volume("default", f"f{number}.qcow2", f"/pool/f{number}.qcow2", format="qcow2")
    way = dice.choice((
        "path", "pool and volume", "link", "linked volume", "json", "relative", "snapshot", "copy", "in no pool", "in no pool, unreadable"))
    if way == "path":
        return [], disk_of(f"//pool/../pool/./{target.name}")
    if way == "pool and volume":
        return [], f"<disk type='volume'><source pool='default' volume='{target.name}'/></disk>"
    if way == "json":
        return [replace(foreign, backing_path="json:" + json.dumps({"driver": "qcow2", "file.filename": target.path}))], ""
    if way == "relative":
        return [replace(foreign, backing_path=target.name)], ""
    if way == "snapshot":
        return [replace(foreign, backing_path=target.path, backing_format="qcow2")], disk_of(foreign.path)
    if way == "linked volume":
        uses.links[foreign.path] = target.path
        link = replace(target, name=name, path=foreign.path)
        return [link, replace(foreign, name=f"o{name}", path=f"/pool/o{name}", backing_path=link.path, backing_format="qcow2")], ""
    if way == "link":
        uses.links[aside] = target.path
        uses.hidden |= not uses.local
        return [], disk_of(aside)
    # The rest lies in no pool, and only a module that sees the file knows what it is on.
    uses.chains[aside] = None if way.endswith("unreadable") else (target.path,)
    uses.hidden |= not uses.local or way.endswith("unreadable")
    if way == "copy":
        mirror = f"<mirror type='file' job='copy'><format type='qcow2'/><source file='{aside}'/><backingStore/></mirror>"
        return [], f"<disk type='file'><driver type='raw'/><source file='/pool/raw'/>{mirror}</disk>"
    return [], disk_of(aside)


def make_uses(dice, volumes):
    """(Uses, further volumes, further domains)."""
    uses, more, domains = Uses(local=dice.one_in(2)), [], []
    for number in range(dice.choice((0, 0, 1, 3)) if volumes else 0):
        target = dice.choice(volumes)
        made, devices = use(dice, number, target, uses)
        uses.paths.add(target.path)
        more += made
        if devices:
            xml = f"<domain><name>f{number}</name><devices>{devices}</devices></domain>"
            snapshots = ()
            if dice.one_in(4):
                # The guest has other disks by now, and could be reverted.
                snapshots, xml = (f"<domainsnapshot>{xml}</domainsnapshot>",), f"<domain><name>f{number}</name></domain>"
            live = dice.one_in(2)
            domains.append(Domain(
                f"f{number}", str(uuid.UUID(int=1000 + number)), "running" if live else "shutoff", active=live, persistent=not live,
                xml=None if live else xml, live_xml=xml if live else None, snapshot_xmls=snapshots))
    return uses, more, domains


def make_world(number):
    dice = Dice(number)
    volumes, records = make_bases(dice)
    bases = (*(volume.path for volume in volumes if volume.name.endswith(".qcow2")), "/pool/gone")
    domains, facts = [], {}
    for index, (fleet, name) in enumerate((fleet, name) for fleet in ("edge", "edge-2") for name in NAMES if dice.one_in(2)):
        uid = names.derive_uid(fleet, name)
        volumes.extend(make_own_volumes(dice, fleet, name, uid, bases))
        if dice.one_in(6):
            continue
        domain_uuid = str(uuid.UUID(int=index + 1)) if dice.one_in(8) else uid
        domain_name = dice.choice((f"{fleet}.{name}",) * 8 + (f"vm{index}", f"{fleet}.zz{index}"))
        metadata, fact = "", Facts(None, "", "", "", 0, False, False, False)
        if not dice.one_in(8):
            metadata, fact = make_mark(dice, fleet, name, uid)
        disks = "".join(
            f"<disk><driver type='qcow2'/><source file='{dice.choice([volume.path for volume in volumes] or ['/pool/gone'])}'/></disk>"
            for _disk in range(dice.randrange(3)))
        xml = f"<domain><name>{domain_name}</name><uuid>{domain_uuid}</uuid>{metadata}<devices>{disks}</devices></domain>"
        hidden = dice.one_in(30)
        domains.append(Domain(
            domain_name, domain_uuid, "shutoff", xml=None if hidden else xml, unreadable="no rights" if hidden else None))
        agrees = fact.agrees and not hidden and domain_uuid == uid and domain_name == f"{fact.fleet}.{fact.name}"
        facts[domain_uuid] = replace(fact, agrees=agrees)
    uses, more, foreign = make_uses(dice, volumes)
    volumes += more
    domains += foreign
    facts.update({domain.uuid: Facts(None, "", "", "", 0, False, False, False) for domain in foreign})
    off = ("off",) if dice.one_in(8) else ()
    jobs = (("default", "pool has asynchronous jobs running"),) if dice.one_in(12) else ()
    uses.hidden |= bool(off or jobs)
    pools = (Pool("default", "p1", "dir", True, "/pool"), *(Pool(name, "p2", "dir", False, "/off") for name in off))
    unreadable = tuple((f"domain {domain.name}", "no rights") for domain in domains if domain.unreadable)
    shared = {"default": "nfs"} if dice.one_in(15) else {}
    return World(Inventory(pools, tuple(volumes), tuple(domains), unreadable, off, jobs), facts, records, uses, shared)


def make_request(number):
    dice = Dice(number)
    live = set()
    for name in NAMES:
        if dice.one_in(4):
            uid = names.derive_uid("edge", name)
            live.add(dice.choice((name, uid, uid.upper())))
    return collect.Request(
        fleet="edge", live=frozenset(live), host=dice.choice(HOSTS), allow_empty_live=True, min_age=dice.choice((0, HOUR, 50 * HOUR)),
        max_delete=dice.choice((("count", 100), ("percent", 100), ("percent", 25), ("count", 0))), keep_latest=dice.one_in(2),
        incomplete_age=dice.choice((12 * HOUR, 24 * HOUR)),
        collect=dice.choice((collect.KINDS, collect.KINDS, *[(kind,) for kind in collect.KINDS])))


numbers = st.integers(0, 2 ** 64)
worlds, requests = numbers.map(make_world), numbers.map(make_request)


def planned(world, request):
    """(Collection, References), or (None, References) where the plan is larger than it may be."""
    seen = {"resolve": lambda path: world.uses.links.get(path, path), "follow": world.uses.chains.get} if world.uses.local else {}
    found = references.used_files(world.inventory, ignore_pools=request.ignore_pools, **seen)
    try:
        return collect.plan(world.inventory, request, NOW, found, world.records, {}, world.shared), found
    except InvalidInput:
        raise
    except Kvm2Error as error:
        assert "max_delete" in error.hint
        return None, found


def may_go(fact, request):
    live_uids = {entry.lower() for entry in request.live}
    return (
        fact.agrees and fact.fleet == request.fleet and not fact.hold and fact.name not in request.live and fact.uid not in live_uids
        and (not request.host or fact.host in ("", request.host)) and (fact.deleting or NOW - fact.created >= request.min_age))


def check_only_instances_that_may_go_are_deleted(world, request):
    result, _found = planned(world, request)
    if result is not None:
        for item in result.instances:
            assert may_go(world.facts[item.uid], request)


def check_no_referenced_volume_is_deleted(world, request):
    result, _found = planned(world, request)
    if result is None:
        return
    doomed = [item.path for item in result.volumes]
    for old in result.bases:
        doomed += [volume.path for volume in (old.base, old.record) if volume is not None]
    texts = [domain.xml or "" for domain in world.inventory.domains]
    backing = {volume.path: volume.backing_path for volume in world.inventory.volumes}
    assert not world.uses.paths.intersection(doomed)
    for path in doomed:
        assert not any(f"'{path}'" in text for text in texts)
        assert path not in backing.values()


def check_what_cannot_be_read_keeps_what_it_might_reference(world, request):
    result, _found = planned(world, request)
    hidden = any(one.unreadable for one in (*world.inventory.domains, *world.inventory.volumes))
    if result is not None and (hidden or world.uses.hidden):
        assert result.volumes == []
        assert result.bases == []
        assert result.blocked


def check_what_another_daemon_could_use_stays(world, request):
    result, _found = planned(world, request)
    if result is not None and world.shared:
        assert result.volumes == []
        assert result.bases == []
        assert not any(item.pool for item in result.collected)


def check_no_instance_goes_whose_volume_somebody_uses(world, request):
    result, _found = planned(world, request)
    if result is not None:
        going = {item.uid for item in result.instances}
        for path in world.uses.paths:
            parsed = names.parse_instance_volume(path.rpartition("/")[2])
            # One that only an unlisted file is known to use is not seen from elsewhere: a volume of one instance is its own.
            assert parsed is None or parsed.uid not in going or (not world.uses.local and world.uses.hidden)


def check_volumes_are_ours_and_old_enough(world, request):
    result, _found = planned(world, request)
    if result is None:
        return
    by_name = {volume.name: volume for volume in world.inventory.volumes}
    for item in result.volumes:
        volume, parsed = by_name[item.name], names.parse_instance_volume(item.name)
        assert parsed.fleet == request.fleet
        assert NOW - volume.mtime >= max(request.min_age, HOUR)
    for old in result.bases:
        parsed = world.records.get(("default", old.name.record))
        if old.record is not None and parsed is None:
            raise AssertionError("a base whose record could not be read")
        complete = old.base is not None and isinstance(parsed, record.Record) and parsed.size == old.base.physical
        least = request.min_age if complete else request.incomplete_age
        for volume in (old.record,) if complete else (old.base, old.record):
            assert volume is None or NOW - volume.mtime >= least


def check_the_newest_base_of_each_key_stays(world, request):
    result, _found = planned(world, replace(request, keep_latest=True))
    if result is None:
        return
    gone = {old.name for old in result.bases}
    by_name = {volume.name: volume for volume in world.inventory.volumes}
    published = {}
    for (_pool, name), parsed in world.records.items():
        base = names.parse_record(name)
        if isinstance(parsed, record.Record) and str(base) in by_name and by_name[str(base)].physical == parsed.size:
            published.setdefault(base.key, []).append((parsed.published_at, str(base), base))
    for candidates in published.values():
        assert max(candidates)[2] not in gone


def check_no_more_instances_than_allowed(world, request):
    result, _found = planned(world, request)
    fleet = [fact for fact in world.facts.values() if fact.agrees and fact.fleet == request.fleet]
    going = [fact for fact in fleet if may_go(fact, request)]
    kind, amount = request.max_delete
    if result is not None:
        assert len(result.instances) <= (amount if kind == "count" else max(1, len(fleet) * amount / 100))
    else:
        assert "domains" in request.collect
        assert len(going) > amount / 100


def check_every_domain_is_accounted_for_once(world, request):
    result, _found = planned(world, replace(request, collect=collect.KINDS))
    if result is None:
        return
    listed = [item for answer in (result.collected, result.kept, result.skipped, result.unreadable) for item in answer]
    assert sorted(item.name for item in listed if item.what == "domain") == sorted(domain.name for domain in world.inventory.domains)
    ours = [volume.name for volume in world.inventory.volumes if volume.name.startswith(names.PREFIX)]
    assert sorted(item.name for item in listed if item.what != "domain") == sorted(ours)
    assert all(item.reason for item in listed)


def check_what_may_go_does_go(world, request):
    """The other properties would hold for a collector that collects nothing."""
    result, _found = planned(world, replace(request, max_delete=("count", 100), collect=("domains",)))
    going = {item.uid for item in result.instances}
    for uid, fact in world.facts.items():
        if may_go(fact, request) and uid not in going:
            item = next(item for item in result.skipped if item.uid == uid)
            assert "is used by" in item.reason or "on shared storage" in item.reason


def check_a_second_look_only_takes_away(world, request):
    first, _found = planned(world, replace(request, max_delete=("count", 100)))
    emptied = replace(world.inventory, domains=world.inventory.domains[1:], volumes=world.inventory.volumes[1:])
    again, _found = planned(replace(world, inventory=emptied), replace(request, max_delete=("count", 100)))
    for kind in ("instances", "volumes", "bases"):
        both = {entry.key for entry in collect.agreed(first, again, kind)}
        assert both == {entry.key for entry in getattr(first, kind)} & {entry.key for entry in getattr(again, kind)}


CHECKS = [value for name, value in sorted(globals().items()) if name.startswith("check_")]


@settings(max_examples=300)
@given(worlds, requests)
def test_nothing_that_may_be_needed_is_deleted(world, request):
    for check in CHECKS:
        check(world, request)


def test_the_worlds_hold_what_the_checks_look_for():
    """A generator that never makes a case would let every check pass."""
    assert len(CHECKS) == 11
    assert CLOCK_SKEW < 2 * HOUR
    wanted = {"instances", "volumes", "bases", "unreadable", "skipped", "kept", "blocked"}
    uses = {"local", "paths", "links", "chains", "hidden"}
    seen = set()

    @settings(derandomize=True, database=None, max_examples=300)
    @given(worlds, requests)
    def gather(world, request):
        result, _found = planned(world, request)
        seen.update(["limit"] if result is None else [kind for kind in wanted if getattr(result, kind)])
        seen.update(kind for kind in uses if getattr(world.uses, kind))
        # Deletions beside users of every kind: what is in use and seen does not keep everything else.
        seen.update(["beside"] if result is not None and world.uses.paths and (result.volumes or result.bases) else [])
        seen.update(["shared"] if world.shared else [])

    gather()
    assert seen == wanted | uses | {"limit", "beside", "shared"}
