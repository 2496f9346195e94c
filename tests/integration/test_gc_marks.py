# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Marks in every shape they can be in, as domains of a real libvirt, collected for real: exactly the right ones go."""

from __future__ import annotations

import time
import uuid

import pytest

# The collection is importable since conftest.py was loaded.
from ansible_collections.egress.kvm2.plugins.module_utils._policy.mark import CLOCK_SKEW
from ansible_collections.egress.kvm2.plugins.module_utils._policy.names import derive_uid

from .collecting import clean_up, collect, define, names

FLEET = "gcmarks"
URI = "urn:egress:kvm2:instance:1"
OLD, BLANK = "2025-01-01T00:00:00Z", "\n\t   "


# Two neighbours by name, whose uids an operator chose: one of them is live by its name, the other one by its uid.
EXPLICIT = {"explicit-a": "0b0d2f1c-2a4d-4f2e-9c56-2f0c6f2f7f11", "explicit-b": "0b0d2f1c-2a4d-4f2e-9c56-2f0c6f2f7f12"}


def uid_of(name):
    return EXPLICIT.get(name) or derive_uid(FLEET, name)


def fields(instance, **changes):
    values = {"managed": "true", "fleet": FLEET, "name": instance, "uid": uid_of(instance), "createdAt": OLD}
    return {tag: text for tag, text in {**values, **changes}.items() if text is not None}


def element(children, uri=URI, between=""):
    inner = "".join(f"{between}<kvm2:{tag}>{text}</kvm2:{tag}>" for tag, text in children.items())
    return f'<kvm2:instance xmlns:kvm2="{uri}">{inner}{between}</kvm2:instance>'


def time_in(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def cases():
    """{name: (metadata, where it belongs once it is not live)}; what is collected is of a live instance as long as its name is."""
    found = {}

    def case(name, metadata, answer):
        found[name] = (metadata(name) if callable(metadata) else metadata, answer)

    def changed(answer, instance, **changes):
        case(instance, element(fields(instance, **changes)), answer)

    case("one-line", lambda name: element(fields(name)), "collected")
    case("indented", lambda name: element(fields(name), between="\n        "), "collected")
    for label, pad in (("blanks", "   "), ("tabs", "\t\t"), ("newlines", "\n\n"), ("mixed", BLANK)):
        case(f"padded-{label}", lambda name, pad=pad: element({tag: pad + text + pad for tag, text in fields(name).items()}), "collected")
        changed("collected", f"managed-{label}", managed=f"{pad}true{pad}")
        changed("unreadable", f"only-{label}", uid=pad)
    changed("collected", "upper", uid=uid_of("upper").upper())
    changed("collected", "upper-padded", uid=BLANK + uid_of("upper-padded").upper() + BLANK)
    for tag in ("managed", "fleet", "name", "uid", "createdat"):
        real = "createdAt" if tag == "createdat" else tag
        changed("unreadable", f"empty-{tag}", **{real: ""})
        changed("unreadable", f"missing-{tag}", **{real: None})
        case(f"double-{tag}", lambda name, real=real: element(fields(name)).replace(
            "</kvm2:instance>", f"<kvm2:{real}>{fields(name)[real]}</kvm2:{real}></kvm2:instance>"), "unreadable")
    for name in EXPLICIT:
        changed("collected", name)
    # libvirt keeps one element of a namespace.
    case("double-mark", lambda name: element(fields(name)) * 2, "collected")
    changed("unreadable", "no-uuid", uid="no uuid")
    changed("unreadable", "short-uuid", uid=uid_of("short-uuid")[:-1])
    changed("left_alone", "others-uid", uid=uid_of("somebody"))
    changed("unreadable", "not-managed", managed="false")
    for label, text in (("word", "yesterday"), ("zero", "0"), ("epoch", "1970-01-01T00:00:00Z"), ("local", "2025-01-01T00:00:00")):
        changed("unreadable", f"created-{label}", createdAt=text)
    changed("left_alone", "created-future", createdAt="2099-01-01T00:00:00Z")
    changed("kept", "created-ahead", createdAt=time_in(CLOCK_SKEW - 5))
    changed("kept", "created-now", createdAt=time_in(-30))
    changed("collected", "created-offset", createdAt="2025-01-01T02:00:00.25+02:00")
    case("cdata", lambda name: element(fields(name, uid=f"<![CDATA[{uid_of(name)}]]>", managed="<![CDATA[ true ]]>")), "collected")
    case("comments", lambda name: element(fields(name, uid=f"<!-- a -->{uid_of(name)[:9]}<!-- b -->{uid_of(name)[9:]}")), "collected")
    case("empty-deleting", lambda name: element(fields(name, deleting=BLANK)), "collected")
    changed("collected", "declared", createdAt=time_in(-30), deleting=time_in(-20))
    changed("kept", "held", hold="somebody works on it")
    changed("kept", "other-host", host="hv9")
    changed("collected", "same-host", host="hv1")
    changed("left_alone", "other-fleet", fleet="gcmarks-2")
    case("other-space", lambda name: element(fields(name), "urn:egress:kvm2:instance:2"), "left_alone")
    case("other-space-too", lambda name: element(fields(name, uid=uid_of("x")), "urn:egress:kvm2:instance:2") + element(fields(name)), "collected")
    case("foreign-beside", lambda name: '<o:i xmlns:o="urn:libosinfo"><o:uid>1</o:uid></o:i>' + element(fields(name)), "collected")
    case("no-mark", "", "left_alone")
    return found


def domain(name, metadata, uid):
    return (
        f"<domain type='qemu'><name>{name}</name><uuid>{uid}</uuid><memory>65536</memory><metadata>{metadata}</metadata>"
        "<os><type>hvm</type></os></domain>")


@pytest.fixture
def marked(hv1):
    """{case: (metadata, answer)}, all of them defined, besides a domain with another one's mark and one that only has a name of ours."""
    found = cases()
    documents = [domain(f"{FLEET}.{name}", metadata, uid_of(name)) for name, (metadata, _answer) in found.items()]
    documents.append(domain("gcmarks-copied", element(fields("one-line")), uuid.uuid4()))
    documents.append(domain(f"{FLEET}.copied", element(fields("upper")), uuid.uuid4()))
    define(hv1, *documents)
    yield found
    clean_up(hv1, "gcmarks", "kvm2-gcmarks")


def there(hv1):
    return {name for name in hv1.shell("hv1", "virsh -q list --all --name").split() if name.startswith("gcmarks")}


def test_exactly_the_right_ones_go(hv1, marked, tmp_path):
    everything = {f"{FLEET}.{name}" for name in marked} | {"gcmarks-copied", f"{FLEET}.copied"}
    assert there(hv1) == everything
    options = {"fleet": FLEET, "host": "hv1", "max_delete": "100%", "collect": ["domains"]}

    # By uid or by name: no shape of a mark costs a live instance.
    live = [name if number % 2 else uid_of(name).upper() for number, name in enumerate(sorted(marked))]
    assert len(set(live) & {"explicit-a", "explicit-b"}) == 1
    assert collect(hv1, tmp_path, live=live, **options)["collected"] == []
    assert there(hv1) == everything

    goes = sorted(f"{FLEET}.{name}" for name, (_metadata, answer) in marked.items() if answer == "collected")
    predicted = collect(hv1, tmp_path, check=True, arguments=("--diff",), live=["somebody"], **options)
    assert there(hv1) == everything
    assert all(f"-domain {name}: it is not live" in predicted["output"] for name in goes)
    done = collect(hv1, tmp_path, live=["somebody"], **options)
    for answer in ("collected", "kept", "left_alone", "unreadable"):
        wanted = sorted(f"{FLEET}.{name}" for name, (_metadata, where) in marked.items() if where == answer)
        found = [name for name in names(done, answer) if name.startswith(FLEET)]
        assert [name for name in found if "copied" not in name] == wanted, answer
        assert names(predicted, answer) == names(done, answer)
    assert there(hv1) == everything - set(goes)
    # A mark of another domain is nobody's, also under a name of the fleet; each is said.
    assert {"gcmarks-copied", f"{FLEET}.copied"} <= set(names(done, "left_alone"))
    reasons = {item["name"]: item["reason"] for answer in ("kept", "left_alone", "unreadable") for item in done[answer]}
    assert "in the future" in reasons[f"{FLEET}.created-future"]
    assert "tolerated" in reasons[f"{FLEET}.created-ahead"]
    assert "virsh metadata" in reasons[f"{FLEET}.empty-uid"]
