# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever way a file is referenced, it is found; whatever cannot be seen is a reason not to delete."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy import backing, references
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error
from ansible_collections.egress.kvm2.plugins.module_utils._policy.model import Domain, Inventory, Pool, Volume
from ansible_collections.egress.kvm2.plugins.module_utils._policy.xml import parse

FOLDER = "/pool"
BASE = f"{FOLDER}/kvm2-base-debian-12-0123456789abcdef-00ff00.qcow2"
UUID = "11111111-2222-5333-8444-555555555555"


def volume(name="kvm2-base-debian-12-0123456789abcdef-00ff00.qcow2", pool="default", folder=FOLDER, **more):
    return Volume(pool, name, f"{folder}/{name}", format=more.pop("format", "qcow2"), **more)


def pool(name="default", path=FOLDER, active=True):
    return Pool(name, f"uuid of {name}", "dir", active, path)


def domain(devices="", live=None, head="", **more):
    xml = f"<domain type='kvm'><name>edge.a</name>{head}<devices>{devices}</devices></domain>"
    live = None if live is None else f"<domain type='kvm' id='1'><name>edge.a</name><devices>{live}</devices></domain>"
    return Domain("edge.a", UUID, "running", active=live is not None, xml=more.pop("xml", xml), live_xml=live, **more)


def found(volumes=(), domains=(), pools=None, resolve=None, ignore_pools=(), follow=None, **more):
    pools = (pool(),) if pools is None else pools
    return references.used_files(Inventory(tuple(pools), tuple(volumes), tuple(domains), **more), resolve, ignore_pools, follow)


def disk(source, image_format="qcow2", below=""):
    return f"<disk type='file' device='disk'><driver name='qemu' type='{image_format}'/>{source}{below}<target dev='vda'/></disk>"


USES = {
    "disk by file": disk(f"<source file='{BASE}'/>"),
    "disk by device path": disk(f"<source dev='{BASE}'/>", "raw"),
    "disk by pool and volume": disk("<source pool='default' volume='kvm2-base-debian-12-0123456789abcdef-00ff00.qcow2'/>"),
    "backing store": disk(
        "<source file='/pool/o'/>", below=f"<backingStore type='file'><format type='qcow2'/><source file='{BASE}'/></backingStore>"),
    "deeper backing store": disk(
        "<source file='/pool/o'/>",
        below="<backingStore type='file'><format type='qcow2'/><source file='/pool/m'/><backingStore type='file'>"
        f"<format type='qcow2'/><source file='{BASE}'/><backingStore/></backingStore></backingStore>"),
    "backing store by pool and volume": disk(
        "<source file='/pool/o'/>", below="<backingStore type='volume'><format type='qcow2'/><source pool='default' "
        "volume='kvm2-base-debian-12-0123456789abcdef-00ff00.qcow2'/></backingStore>"),
    "mirror": disk(
        "<source file='/pool/o'/>", below=f"<mirror type='file' job='copy'><format type='qcow2'/><source file='{BASE}'/></mirror>"),
    "mirror of old releases": disk("<source file='/pool/o'/>", below=f"<mirror file='{BASE}' format='qcow2'/>"),
    "data file": disk(f"<source file='/pool/o'><dataStore type='file'><format type='raw'/><source file='{BASE}'/></dataStore></source>"),
    "cdrom": f"<disk type='file' device='cdrom'><source file='{BASE}'/><target dev='sda'/></disk>",
    "floppy": f"<disk type='file' device='floppy'><source file='{BASE}'/><target dev='fda'/></disk>",
    "shared folder": "<filesystem type='mount'><source dir='/pool'/><target dir='x'/></filesystem>",
    "shared folder above": "<filesystem type='mount'><source dir='/'/><target dir='x'/></filesystem>",
    "persistent memory": f"<memory model='nvdimm'><source><path>{BASE}</path></source></memory>",
    "serial port into a file": f"<serial type='file'><source path='{BASE}'/></serial>",
    "not in its shortest form": disk(f"<source file='//pool/../pool/./{BASE[6:]}'/>"),
}
HEADS = {
    "nvram": f"<os><nvram template='/usr/share/x.fd'>{BASE}</nvram></os>",
    "nvram in the newer form": f"<os><nvram type='file'><source file='{BASE}'/></nvram></os>",
    "kernel": f"<os><kernel>{BASE}</kernel></os>",
    "initrd": f"<os><initrd>\n  {BASE}\n</initrd></os>",
    "command line": "<q:commandline xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0'><q:arg value='-drive'/>"
                    f"<q:arg value='if=none,file={BASE},id=x'/></q:commandline>",
}


@pytest.mark.parametrize("devices", USES.values(), ids=USES)
def test_each_way_a_device_uses_a_file(devices):
    assert found([volume()], [domain(devices)]).users_of(BASE) == ("domain edge.a",)
    assert found([volume()], [domain(live=devices)]).users_of(BASE) == ("domain edge.a",)
    if "<filesystem" not in devices:
        named = references.paths_of_domain(parse(domain(devices).xml), Inventory((pool(),), (volume(),), ()))
        assert BASE in named


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_each_way_a_definition_uses_a_file(head):
    assert found([volume()], [domain(head=head)]).users_of(BASE) == ("domain edge.a",)


def test_nothing_uses_it():
    other = volume("other", backing_path="/pool/else", backing_format="raw")
    answer = found([volume(), other], [domain(disk("<source file='/pool/other'/>"))])
    assert answer.users_of(BASE) == ()
    assert answer.blocked == ()


def test_metadata_is_no_reference():
    assert found([volume()], [domain(head=f"<metadata><x:a xmlns:x='urn:x'>{BASE}</x:a></metadata>")]).users_of(BASE) == ()


def test_a_longer_name_is_another_file():
    answer = found([volume()], [domain(disk(f"<source file='{BASE}.old'/>", "raw") + "<filesystem><source dir='/poo'/></filesystem>")])
    assert answer.users_of(BASE) == ()


def test_a_volume_that_the_pool_does_not_list_yet():
    answer = found([], [domain(disk("<source pool='default' volume='new'/>", "raw"))])
    assert answer.users_of("/pool/new") == ("domain edge.a",)


BACKING_NAMES = {
    "absolute": BASE,
    "relative": BASE[6:],
    "relative with dots": "../pool/" + BASE[6:],
    "file prefix": f"file:{BASE}",
    "file URI": f"file://{BASE}",
    "json flat": "json:" + json.dumps({"driver": "qcow2", "file.driver": "file", "file.filename": BASE}),
    "json nested": "json:" + json.dumps({"driver": "qcow2", "file": {"driver": "file", "filename": BASE}}),
    "json deeper": "json:" + json.dumps({"driver": "throttle", "file": {"driver": "qcow2", "file": {"driver": "file", "filename": BASE}}}),
    "json relative": "json:" + json.dumps({"file": {"filename": BASE[6:]}}),
    "json below": "json:" + json.dumps({"driver": "qcow2", "file": {"filename": "/pool/x"}, "backing": {"file": {"filename": BASE}}}),
    "json in json": "json:" + json.dumps({"file": {"filename": "json:" + json.dumps({"driver": "file", "filename": BASE})}}),
    "json with prefix": "json:" + json.dumps({"file.filename": f"file:{BASE}"}),
}


@pytest.mark.parametrize("name", BACKING_NAMES.values(), ids=BACKING_NAMES)
def test_each_form_of_a_backing_name(name):
    answer = found([volume(), volume("x"), volume("o", backing_path=name, backing_format="qcow2")])
    assert answer.users_of(BASE) == ("volume o in pool default",)
    assert answer.blocked == ()


@pytest.mark.parametrize("name", ["nbd://host/x", "https://host/x.qcow2", "rbd:pool/x", 'json:{"driver": "nbd"}'])
def test_backing_files_elsewhere_are_no_files_here(name):
    assert found([volume("o", backing_path=name)]).blocked == ()


@pytest.mark.parametrize("name", [
    "json:{", "json:[]", "json:{}", "json:" + json.dumps({"driver": "qcow2", "file": "node7"}), "fat:rw:/pool", "blkdebug:x:/pool/y",
    "json:" + json.dumps({"file": {"filename": "strange:thing"}})])
def test_backing_names_that_cannot_be_read_block(name):
    (reason,) = found([volume("o", backing_path=name)]).blocked
    assert "volume o in pool default" in reason


@given(st.text(), st.sampled_from(["", "json:", "json:{\"file\":", "file:"]))
def test_any_backing_name_leads_somewhere_or_says_why(text, start):
    answer = backing.read(start + text, FOLDER)
    assert all(path.startswith("/") and "/../" not in path for path in answer.paths)


def test_too_deep_json_is_refused():
    text = '{"file":' * 90 + '{"filename": "/pool/x"}' + "}" * 90
    assert backing.read("json:" + text, FOLDER).problem


def test_users_tell_what_they_are():
    answer = found([volume(), volume("o", backing_path=BASE)], [domain(USES["disk by file"])])
    by_kind = {user.kind: user for user in answer.users_of(BASE)}
    assert by_kind["domain"].uuid == UUID
    assert by_kind["volume"].path == "/pool/o"
    assert "; ".join(answer.users_of(BASE)) == "domain edge.a; volume o in pool default"


def test_symlinks_are_resolved_where_files_are_seen():
    links = {"/pool/link": BASE, "/srv/overlay": "/pool/o"}
    volumes = [volume(), volume("link"), volume("p", backing_path="/pool/link"), volume("o")]
    answer = found(volumes, [domain(disk("<source file='/srv/overlay'/>"))], resolve=lambda path: links.get(path, path))
    assert "volume p in pool default" in answer.users_of(BASE)
    assert answer.users_of("/pool/o") == ("domain edge.a",)
    assert answer.blocked == ()


def test_a_pool_reached_through_a_link():
    def resolve(path):
        return path.replace("/pool/", "/data/pool/", 1) if path.startswith("/pool/") else path
    answer = found([volume(), volume("o", backing_path=BASE)], [domain(disk("<source file='/data/pool/o'/>"))], resolve=resolve)
    assert answer.users_of("/pool/o") == ("domain edge.a",)
    assert answer.blocked == ()


def test_a_volume_that_looks_like_another_may_be_a_link_to_it():
    same = {"physical": 77, "mtime": 5.25, "capacity": 99}
    volumes = [volume(**same), volume("link", **same), volume("p", backing_path="/pool/link", backing_format="qcow2")]
    assert found(volumes).users_of(BASE) == ("volume p in pool default",)
    other = [volume(**{**same, "mtime": 6.25}), *volumes[1:]]
    assert found(other).users_of(BASE) == ()
    assert found(volumes, resolve=lambda path: path).users_of(BASE) == ()


def test_a_copy_that_libvirt_calls_complete_is_followed_all_the_same():
    """After the pivot the copy's own header counts, and names what the copy was made on."""
    copy = "<mirror type='file' job='copy'><format type='qcow2'/><source file='/srv/copy'/><backingStore/></mirror>"
    one = domain(live=disk("<source file='/pool/o'/>", "raw", below=copy))
    assert found([volume()], [one], follow={"/srv/copy": (BASE,)}.get).users_of(BASE) == ("domain edge.a",)
    assert "/srv/copy" in found([volume()], [one]).blocked[0]


# -- what cannot be seen


def test_a_file_in_no_pool_blocks():
    (reason,) = found([volume()], [domain(disk("<source file='/srv/x.qcow2'/>"))]).blocked
    assert "domain edge.a" in reason
    assert "/srv/x.qcow2" in reason


@pytest.mark.parametrize("devices", [
    disk("<source file='/srv/x.iso'/>", "raw"),
    disk("<source file='/srv/x.qcow2'/>", below="<backingStore/>"),
    disk("<source file='/srv/x.qcow2'/>", below="<backingStore><format type='raw'/><source file='/srv/y'/></backingStore>"),
])
def test_a_file_in_no_pool_whose_chain_is_known_does_not_block(devices):
    assert found([volume()], [domain(devices)]).blocked == ()


def test_the_running_guest_tells_the_chain_of_its_definition():
    source = "<source file='/srv/x.qcow2'/>"
    running = disk(source, below=f"<backingStore type='file'><format type='qcow2'/><source file='{BASE}'/><backingStore/></backingStore>")
    answer = found([volume()], [domain(disk(source), live=running)])
    assert answer.blocked == ()
    assert answer.users_of(BASE) == ("domain edge.a",)


def test_a_file_in_no_pool_is_followed_where_it_can_be_read():
    chains = {"/srv/x.qcow2": (BASE,)}
    devices = disk("<source file='/srv/x.qcow2'/>") + disk("<source file='/srv/y.qcow2'/>")
    answer = found([volume()], [domain(devices)], follow=chains.get)
    assert answer.users_of(BASE) == ("domain edge.a",)
    (reason,) = answer.blocked
    assert "/srv/y.qcow2" in reason


def test_a_backing_file_in_no_pool():
    assert found([volume("o", backing_path="/srv/b", backing_format="raw")]).blocked == ()
    (reason,) = found([volume("o", backing_path="/srv/b", backing_format="qcow2")]).blocked
    assert "volume o in pool default" in reason


def test_unreadable_things_block():
    answer = found(
        [volume(), volume("v", unreadable="gone bad")], [Domain("d", UUID, "shutoff", unreadable="no rights"), domain(xml="<domain")],
        unreadable=(("pool x", "I/O error"),), unrefreshed=(("slow", "a job runs"),))
    assert len(answer.blocked) == 5
    for words in ("volume v in pool default", "domain d cannot be read: no rights", "domain edge.a", "pool x cannot be read", "pool slow"):
        assert any(words in reason for reason in answer.blocked), words


def test_an_inactive_pool_blocks_unless_it_is_vouched_for():
    pools = [pool(), pool("off", "/off", active=False)]
    (reason,) = found([volume()], pools=pools, inactive_pools=("off",)).blocked
    assert "pool off" in reason
    assert found([volume()], pools=pools, inactive_pools=("off",), ignore_pools=("off",)).blocked == ()


def test_a_file_that_is_gone_from_a_listed_pool_does_not_block():
    gone = disk("<source file='/pool/gone.qcow2'/>")
    answer = found([volume("o", backing_path="/pool/gone.qcow2", backing_format="qcow2")], [domain(gone)])
    assert answer.blocked == ()
    assert answer.users_of("/pool/gone.qcow2") == ("domain edge.a", "volume o in pool default")
    deeper = disk("<source file='/pool/below/gone.qcow2'/>")
    for more in ({"unrefreshed": (("default", "busy"),)}, {"unreadable": (("pool default", "I/O error"),)}, {"pools": [pool(active=False)]}):
        assert any("/pool/gone.qcow2" in reason for reason in found([], [domain(gone)], **more).blocked)
    assert any("/pool/below/gone.qcow2" in reason for reason in found([], [domain(deeper)]).blocked)


@pytest.mark.parametrize("document", [
    f"<domainsnapshot><name>one</name><disks>{USES['disk by file']}</disks></domainsnapshot>",
    f"<domainsnapshot><domain><devices>{USES['disk by file']}</devices></domain></domainsnapshot>",
    f"<domainsnapshot><inactiveDomain><devices>{USES['disk by file']}</devices></inactiveDomain></domainsnapshot>",
    f"<domainsnapshot><memory snapshot='external' file='{BASE}'/></domainsnapshot>"])
def test_what_only_a_snapshot_names_is_in_use(document):
    seen = found([volume()], [domain(snapshot_xmls=(document,))])
    assert [str(user) for user in seen.users_of(BASE)] == ["domain edge.a"] and not seen.blocked


def test_what_lies_below_a_disk_that_only_a_snapshot_names_must_be_seen_too():
    aside = disk("<source file='/srv/aside.qcow2'/>")
    document = f"<domainsnapshot><domain><devices>{aside}</devices></domain></domainsnapshot>"
    hidden = found([volume()], [domain(snapshot_xmls=(document,))])
    assert "/srv/aside.qcow2" in hidden.blocked[0]
    seen = found([volume()], [domain(snapshot_xmls=(document,))], follow=lambda path: (BASE,))
    assert [str(user) for user in seen.users_of(BASE)] == ["domain edge.a"]


def test_storage_that_does_not_answer_is_named_once_and_keeps_nobody_from_the_rest():
    def resolve(path):
        if path.startswith("/dead/"):
            raise Kvm2Error("transient", "look at", f"the storage of {path}", "no answer within 20 s", "See.")
        return path
    dead = [volume(name, "dead", "/dead") for name in ("a.qcow2", "b.qcow2")]
    seen = found([volume(), *dead], [domain(USES["disk by file"])], [pool(), pool("dead", "/dead")], resolve)
    assert seen.blocked == ("what lies in /dead cannot be seen: no answer within 20 s",)
    assert [str(user) for user in seen.users_of(BASE)] == ["domain edge.a"] and not seen.users_of("/dead/a.qcow2")


def test_a_snapshot_that_cannot_be_read_is_a_reason_for_doubt():
    assert "domain edge.a cannot be read" in found([volume()], [domain(snapshot_xmls=("<domainsnapshot",))]).blocked[0]


def test_a_folder_that_only_a_snapshot_shares_is_in_use():
    document = f"<domainsnapshot><domain><devices><filesystem><source dir='{FOLDER}'/></filesystem></devices></domain></domainsnapshot>"
    assert found([volume()], [domain(snapshot_xmls=(document,))]).users_of(BASE)
