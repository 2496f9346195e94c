# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: table.py TRANSPORTS PLACES FAULTS, each a list with commas or "all", puts every module run that these make behind a
forwarder that goes wrong, and prints a JSON line for each: how long the module took to give up, what it said, what was wrong about it.
table.py TRANSPORTS each takes every fault at one place."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import daemon
import ground
from bounded import PATIENT, call
from forwarder import FAULTS, Forwarder, Place, tcp_listener, unix_listener

# Procedures of libvirt's remote protocol, which never change.
CLOSE, POOL_XML, UPLOAD, DOWNLOAD, ADDRESSES = 2, 88, 208, 209, 353
AT_ONCE = 4
ATTEMPTS = 3
WARD = daemon.Ward()

# Where it goes wrong, and on ssh's own connection after how many bytes of both sides (the greetings, in the exchange of keys, in the work).
PLACES = {
    "open": Place("reply"),
    "small-call": Place("reply", POOL_XML),
    "upload-start": Place("reply", UPLOAD),
    "upload-middle": Place("sent", UPLOAD, 2 * 1024 ** 2),
    "upload-finish": Place("finish", UPLOAD),
    "download": Place("received", DOWNLOAD, 1024 ** 2),
    "event-wait": Place("reply", ADDRESSES, 2),
    "close": Place("reply", CLOSE),
}
WIRE = {
    "greeting": Place("bytes", number=1), "key-exchange": Place("bytes", number=2000), "upload-middle": Place("bytes", number=2 * 1024 ** 2)}
WIRE_FAULTS = ("freeze", "close", "reset", "slow", "garbage")
EACH = (
    ("upload-middle", "freeze"), ("small-call", "mute"), ("upload-start", "close"), ("event-wait", "reset"), ("download", "slow"), ("open", "garbage"),
    ("small-call", "longer"), ("upload-finish", "huge"), ("upload-finish", "twice"), ("close", "freeze"))
# Who answers nonsense from the first word on is no libvirt daemon, and will not become one; bytes that come twice are not what was sent.
PERMANENT = (("open", "garbage"), ("open", "huge"), ("download", "twice"), ("download", "longer"))
# What can be borne: it comes late or twice, or nothing was under way any more when the connection was lost, so that the work goes on over another.
BORNE = ("slow", "twice")
BORNE_THERE = (("upload-finish", "longer"),)
# What only the limit for the whole module ends, or may.
LATE = ("mute", "slow", "longer", "twice")


def limit(place, fault):
    """The seconds from the fault on that apply; the longest where several could."""
    if place in ("open", "greeting", "key-exchange"):
        return ground.limits.connect
    return ground.limits.timeout if fault in LATE else ground.limits.keepalive


def listener_and_uri(transport, name, far):
    """far: is it a way on which a module reads back what it has uploaded?"""
    ssh = f"qemu+ssh://root@127.0.0.1{{}}/system?keyfile={ground.KEY}"
    if transport in ("unix", "ssh"):
        path = f"{ground.FAR_SOCKETS if far else ground.SOCKETS}/{name}.sock"
        uri = f"qemu+unix:///system?socket={path}" if transport == "unix" else f"{ssh.format('')}&proxy=netcat&netcat={ground.NETCAT}&socket={path}"
        return unix_listener(path), uri
    listener = tcp_listener()
    port = listener.getsockname()[1]
    return listener, f"qemu+tcp://127.0.0.1:{port}/system" if transport == "tcp" else ssh.format(f":{port}")


def work(place, name, uri):
    """The module whose run comes by that place."""
    if place in ("open", "small-call", "close", "greeting", "key-exchange"):
        return ground.look(uri)
    if place == "event-wait":
        return ground.domain("one", uri, wait={"for": "address", "timeout": "60s"})
    return ground.image(name, uri)


def judged(*case):
    """The case; once more where the daemon itself had to be helped meanwhile, or this machine became so slow that the limits were over before the
    place came."""
    for attempt in range(ATTEMPTS):
        before = WARD.revived
        told = one(*case, attempt)
        if WARD.look() == before and told["gave_up"] is not None:
            break
        ground.measure()
    ground.tell(**told, attempts=attempt + 1)
    return told["problems"]


def one(transport, place, fault, number, attempt):
    name = f"case-{number}-{attempt}"
    listener, uri = listener_and_uri(transport, name, place == "download")
    wire = transport == "ssh-wire"
    at = (WIRE if wire else PLACES)[place]
    before = ground.files()
    bound = ground.limits.bound(limit(place, fault))
    with Forwarder(listener, ("127.0.0.1", 22) if wire else ground.SOCKET, at, fault, framed=not wire) as forwarder:
        ended = call(*work(place, name, uri))
    problems = ended.problems()
    gave_up = ended.ended - forwarder.fired if forwarder.fired else None
    if gave_up is None:
        problems.append(f"it never came to the place: {ended.output[-800:]}")
    elif gave_up > bound:
        problems.append(f"it took {gave_up:.1f} s of {bound} s")
    problems += verdict(place, fault, ended)
    WARD.look()
    problems += mended(place, name, before)
    error = (ended.result or {}).get("error") or {}
    return {
        "transport": transport, "place": place, "fault": fault, "gave_up": None if gave_up is None else round(gave_up, 2), "bound": bound,
        "failed": ended.failed, "kind": ended.kind, "code": error.get("code"), "msg": error.get("message", ""), "problems": problems}


def verdict(place, fault, ended):
    """What the module should have said and did not."""
    if ended.result is None:
        return []
    if place == "close":
        # The work is done by then, and nobody should hear that it failed.
        return [f"the work was done, and yet: {ended.result}"] if ended.failed else []
    if not ended.failed:
        return [] if fault in BORNE or (place, fault) in BORNE_THERE else ["it succeeded"]
    right = "permanent" if (place, fault) in PERMANENT else "transient"
    return [] if ended.kind == right else [f"its kind is {ended.kind}: {ended.result['msg']}"]


def mended(place, name, before):
    """A quiet second run publishes what the first could not, and what is left half-made is one volume that the collector knows."""
    if work(place, name, ground.LOCAL)[0] != "kvm2_image":
        return []
    module, options = ground.image(name)
    second = call(module, {**options, **PATIENT}).result or {}
    if second.get("failed", True) and "image" not in second:
        return [f"a quiet second run: {second}"]
    whole = {second["image"]["base"], f"{second['image']['base']}.json"}
    files = ground.files()
    left = {one for one in set(files) - set(before) - whole if one.startswith(f"kvm2-base-{name}-")}
    found = [] if whole <= set(files) else [f"{whole - set(files)} are missing"]
    if len(left) > 1 or any(one.endswith(".json") for one in left):
        found.append(f"more is left than a volume without a record: {left}")
    return found


def chosen(text, known):
    names = list(known) if text == "all" else text.split(",")
    if not set(names) <= set(known):
        raise ValueError(f"{text} is not among {list(known)}")
    return names


def main():
    transports = chosen(sys.argv[1], ("unix", "tcp", "ssh", "ssh-wire"))
    cases = []
    for transport in transports:
        wire = transport == "ssh-wire"
        known, faults = (WIRE, WIRE_FAULTS) if wire else (PLACES, FAULTS)
        if sys.argv[2] == "each":
            cases += [(transport, *pair) for pair in EACH]
            continue
        places = [place for place in chosen(sys.argv[2], {**PLACES, **WIRE}) if place in known]
        cases += [(transport, place, fault) for place in places for fault in chosen(sys.argv[3], FAULTS) if fault in faults]
    ground.lay()
    try:
        if any(place == "event-wait" for _transport, place, _fault in cases):
            ground.guest("one", ground.base())
        with ThreadPoolExecutor(AT_ONCE) as pool:
            waiting = [pool.submit(judged, *case, number) for number, case in enumerate(cases)]
            bad = [case for case, future in zip(cases, waiting, strict=True) if future.result()]
    finally:
        ground.clear()
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
