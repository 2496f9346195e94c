# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory and processors that guests take together, and which disks they have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._policy import budget, disk_use
from ansible_collections.egress.kvm2.plugins.module_utils._policy.model import Domain, HostFacts, Volume

GIB = 1024 ** 3
FACTS = HostFacts("hv1", "x86_64", 4, 16 * GIB, 11003000, 10000013)


def domain(name, gib=1, vcpus=1, active=True, autostart=False, xml=True, disks=""):
    text = f"<domain type='qemu'><name>{name}</name><uuid>{name}</uuid><memory unit='GiB'>{gib}</memory><vcpu>{vcpus}</vcpu><devices>{disks}</devices></domain>"
    text = text if xml else None
    return Domain(name, name, "running" if active else "shutoff", active=active, autostart=autostart, xml=text, live_xml=text if active else None)


def look(*domains, own=(), memory=None, vcpus=None, memory_ratio=1.0, vcpu_ratio=2.0, available=None):
    use = budget.use_of(domains, frozenset(own))
    found = budget.checks(use, FACTS, memory, vcpus, memory_ratio, vcpu_ratio, available)
    assert all(check.message.endswith(".") and bool(check.hint) == (check.status != "ok") for check in found)
    return {check.name: check.status for check in found}


def test_who_counts():
    use = budget.use_of(
        [domain("a", 2, 3), domain("b", 5, 1, active=False, autostart=True), domain("c", 7, 7, active=False), domain("own", 1, 2),
         domain("own2", 9, 9, active=False, autostart=True), domain("dark", xml=False)], frozenset(("own", "own2")))
    assert use == budget.Use((2 * GIB, 5 * GIB), (3, 1), GIB, 2, ("dark",))


@pytest.mark.parametrize("asked, status", [(None, "ok"), (6 * GIB, "ok"), (6 * GIB + 1, "fail"), (99 * GIB, "fail")])
def test_memory_that_is_asked_for_must_fit_beside_the_others(asked, status):
    assert look(domain("a", 10), memory=asked)["memory budget"] == status
    assert look(domain("a", 10), memory=asked, memory_ratio=9.0)["memory budget"] == "ok"


def test_what_runs_already_is_not_asked_for_again():
    domains = [domain("a", 10), domain("own", 4), domain("own2", 4)]
    own = ("own", "own2")
    assert look(*domains, own=own, memory=8 * GIB)["memory budget"] == "warn"
    assert look(*domains, own=own, memory=8 * GIB + 1)["memory budget"] == "fail"
    assert look(*domains, own=own[:1], memory=4 * GIB)["memory budget"] == "warn"
    assert look(*domains[:2], own=own, memory=6 * GIB)["memory budget"] == "ok"


def test_guests_that_are_too_many_already_are_a_warning():
    assert look(domain("a", 17, 9)) == {"memory budget": "warn", "vcpu budget": "warn"}


def test_guests_that_start_at_boot_are_a_warning():
    assert look(domain("a", 10), domain("b", 7, active=False, autostart=True))["memory budget"] == "warn"
    assert look(domain("a", 10), domain("b", 6, active=False, autostart=True))["memory budget"] == "ok"


@pytest.mark.parametrize("asked, status", [(None, "ok"), (4, "ok"), (5, "fail")])
def test_processors(asked, status):
    assert look(domain("a", 1, 4), vcpus=asked)["vcpu budget"] == status


def test_memory_at_this_moment():
    assert "free memory" not in look(memory=GIB)
    assert look(memory=GIB, available=GIB)["free memory"] == "ok"
    assert look(memory=GIB + 1, available=GIB)["free memory"] == "warn"
    assert "free memory" not in look(domain("own", 2), own=("own",), memory=2 * GIB, available=GIB)


def test_domains_that_cannot_be_read_are_named():
    odd = replace(domain("odd"), live_xml="<domain>")
    use = budget.use_of([domain("dark", xml=False), odd], frozenset())
    assert use.unread == ("dark", "odd") and disk_use.disks([replace(odd, xml=None)], ()) == (frozenset(), frozenset())
    check = budget.checks(use, FACTS, None, None, 1.0, 1.0)[-1]
    assert (check.name, check.status) == ("unreadable domains", "warn") and "dark" in check.message


def test_disks_by_path_and_by_pool():
    volumes = [Volume("p", "v", "/p/v"), Volume("p", "w", "/p/w")]
    disks = (
        "<disk><source file='/p/top'/><backingStore><source file='/p/below'/><backingStore/></backingStore></disk>"
        "<disk><source pool='p' volume='v'/></disk><disk><source file='/p/cd'/><readonly/></disk><disk device='cdrom'/>"
        "<disk><source pool='q' volume='v'/></disk>")
    used, written = disk_use.disks([domain("a", disks=disks), domain("b", xml=False)], volumes)
    assert used == {"/p/top", "/p/below", "/p/v", "/p/cd"}
    assert written == {"/p/top", "/p/v"}
