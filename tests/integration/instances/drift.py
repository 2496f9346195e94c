# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: drift.py [KIND…]. Each kind of drift under each on_change, on a guest that runs and on one that is off.

Before each change it is predicted, by which nothing is written; then it is made, and is what was predicted; then nothing more is to be done, and
nothing is.
"""

from __future__ import annotations

import sys

from looking import Asked
from states import FLEET, acts, fields, ground, require

ROLL = ["stop domain", "redefine domain", "start domain"]
NEW_SEED, NEW_OVERLAY = ["create seed"], ["create overlay"]
# Of one that runs and of one that is off: what is done, and what is listed afterwards.
SIZED = {
    "report": ([], "{0}", [], "{0}"), "redefine": (["redefine domain"], "{0} pending", ["redefine domain"], ""),
    "restart": (ROLL, "", ["redefine domain"], ""), "replace": (ROLL, "", ["redefine domain"], "")}
NOTED = {
    "report": ([], "{0}", [], "{0}"),
    **{on_change: (["redefine domain"], "", ["redefine domain"], "") for on_change in ("redefine", "restart", "replace")}}
AUTOSTART = {
    "report": ([], "", [], ""),
    **{on_change: (["disable autostart"], "", ["disable autostart"], "") for on_change in ("redefine", "restart", "replace")}}
SEED = {
    "report": ([], "{0}", [], "{0}"), "redefine": ([], "{0}", [], "{0}"),
    "restart": (NEW_SEED + ROLL, "", [*NEW_SEED, "redefine domain"], ""),
    "replace": (
        [*NEW_OVERLAY, *NEW_SEED, "stop domain", "replace domain", "start domain"], "", [*NEW_OVERLAY, *NEW_SEED, "replace domain"], "")}
OVERLAY = {
    **{on_change: ([], "{0}", [], "{0}") for on_change in ("report", "redefine", "restart")},
    "replace": ([*NEW_SEED, "stop domain", "replace domain", "start domain"], "", [*NEW_SEED, "replace domain"], "")}
# Kind of drift: (field that is listed, options, what follows).
KINDS = {
    "memory": ("memory", {"memory": "96MiB"}, SIZED),
    "vcpus": ("vcpus", {"vcpus": 2}, SIZED),
    "network": ("interface", {"networks": [{"network": "default"}, {"network": "default", "model": "e1000"}]}, SIZED),
    "host": ("mark.host", {"host": "elsewhere"}, NOTED),
    "autostart": ("", {"autostart": False}, AUTOSTART),
    "seed": ("seed", {"user_data": "#!/bin/true\n"}, SEED),
    "overlay": ("overlay", {}, OVERLAY),
}


def one_case(host, base, newer, kind, on_change):
    what = f"{kind} under {on_change}"
    field, options, table = KINDS[kind]
    running, running_drift, off, off_drift = table[on_change]
    host.create(base, ("one",))
    host.create(base, ("two",), state="defined")
    names = ["one", "two"]
    if kind == "overlay":
        names = [{"name": name, "overlay": volume} for name, volume in host.overlays(newer, names, replace=True).items()]
    given = dict(options, names=names, state="defined", on_change=on_change)
    predicted = host.quietly(f"check of {what}", lambda: host.domain(check=True, **given))
    with Asked() as asked:
        done = host.domain(**given)
    require(not done.failed, what, getattr(done, "msg", ""))
    require(acts(predicted.actions) == acts(done.actions), what, acts(predicted.actions), acts(done.actions))
    require(
        [(action.get("why"), action.get("before"), action.get("after")) for action in predicted.actions if action["act"] != "create"]
        == [(action.get("why"), action.get("before"), action.get("after")) for action in done.actions if action["act"] != "create"], what, done.actions)
    require(done.changed == bool(running or off) == bool(asked.writes), what, done.changed, asked.writes)
    for index, (wanted, drift) in enumerate(((running, running_drift), (off, off_drift))):
        require(acts(done.instances[index]["actions"]) == wanted, what, names[index], acts(done.instances[index]["actions"]))
        require(predicted.instances[index]["drift"] == done.instances[index]["drift"], what, names[index], "check", predicted.instances[index]["drift"])
        require(fields(done, index) == [text for text in [drift.format(field)] if text], what, names[index], done.instances[index]["drift"])
    require(host.state("one").isActive() and not host.state("two").isActive(), what, "the power state is another one")
    again = host.quietly(f"{what}, again", lambda: host.domain(**given))
    require(not again.failed and not again.changed, what, "again", again.actions)
    require([one["drift"] for one in again.instances] == [one["drift"] for one in done.instances], what, "again", again.instances)
    host.remove(("one", "two"))
    left = host.module("gc", fleet=FLEET, live=[], allow_empty_live=True, min_age="0s", max_delete="100%", pools=["states"])
    require(not left.failed, what, getattr(left, "msg", ""))


def main():
    host = ground()
    base, newer = host.base(1), host.base(2)
    for kind in sys.argv[1:] or KINDS:
        for on_change in ("report", "redefine", "restart", "replace"):
            one_case(host, base, newer, kind, on_change)
            print(f"{kind} under {on_change}: as it should be", flush=True)


if __name__ == "__main__":
    main()
