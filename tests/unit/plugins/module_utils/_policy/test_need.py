# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is about to be made, and what of it is there already."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.egress.kvm2.plugins.module_utils._policy import names
from ansible_collections.egress.kvm2.plugins.module_utils._policy.model import Volume
from ansible_collections.egress.kvm2.plugins.module_utils._policy.need import Need, work_out

GIB = 1024 ** 3
NOW = 1_800_000_000


def overlay(name="a", capacity=4 * GIB, fleet="edge", age=86400, nonce="00000a"):
    text = str(names.InstanceVolumeName("overlay", fleet, name, names.derive_uid(fleet, name), nonce))
    return Volume("default", text, f"/pool/{text}", capacity=capacity, mtime=NOW - age, backing_path="/pool/base")


def wanted(*instances, capacity=4 * GIB, **more):
    return Need(fleet="edge", overlays=tuple((name, names.derive_uid("edge", name), capacity) for name in instances), **more)


def needed(need, *volumes, used=None, image_is_there=False):
    """Every volume is some domain's unless `used` says which ones are."""
    paths = {volume.path for volume in volumes} if used is None else {volume.path for volume in used}
    return work_out(need, volumes, paths, NOW, image_is_there)


def test_parts_are_added_up():
    found = needed(Need(fixed=1, instances=3, capacity=10, image=100))
    assert (found.bytes, found.later, found.files) == (131, 0, 8)
    assert found.how == "1 B as asked; 30 B for 3 new disks; 100 B for the image"
    assert needed(Need()).how == "nothing is asked for"


def test_an_image_that_is_there_is_not_needed_again():
    found = needed(Need(image=100, key="deb"), image_is_there=True)
    assert (found.bytes, found.files, found.how) == (0, 0, "nothing for the image, which is published already")


def test_overlays_that_are_there_count_with_what_they_lack():
    both = wanted("a", "b")
    assert needed(both, overlay("a")).bytes == 4 * GIB
    assert needed(both, overlay("a", 3 * GIB), overlay("b")).bytes == GIB
    assert needed(both, overlay("a", 9 * GIB), overlay("b")).bytes == 0
    assert needed(both, overlay("a", fleet="edge-2")).bytes == 8 * GIB
    grown = needed(both, overlay("a", 3 * GIB), overlay("b"))
    assert (grown.files, grown.how) == (0, "1.0 GiB for 2 disks that are there already")


def test_an_old_overlay_that_no_domain_uses_is_not_taken_up():
    one = wanted("a")
    assert needed(one, overlay(age=599), used=()).bytes == 0
    assert needed(one, overlay(age=600), used=()).bytes == 4 * GIB
    old, mine = overlay(), overlay(nonce="00000b", capacity=3 * GIB)
    assert needed(one, old, mine, used=[mine]).bytes == GIB


def test_a_share_of_new_disks_only():
    found = needed(wanted("a", "b", filled=0.25, instances=1, fixed=7), overlay("a", 3 * GIB))
    assert found.bytes == 7 + GIB + GIB
    assert found.later == 3 * GIB
    assert "2 new disks, 25% of their capacity" in found.how


sizes = st.integers(0, 2 ** 50)


@given(st.lists(st.tuples(sizes, st.none() | sizes), max_size=5), st.floats(0.01, 1))
def test_all_disks_fit_into_what_is_counted(disks, filled):
    """What is there, what is needed and what may come later make up every disk's whole capacity."""
    asked, volumes = [], []
    for index, (capacity, there) in enumerate(disks):
        name = f"n{index}"
        asked.append((name, names.derive_uid("edge", name), capacity))
        if there is not None:
            volumes.append(overlay(name, there))
    found = needed(Need(fleet="edge", overlays=tuple(asked), filled=filled), *volumes)
    assert found.bytes + found.later == sum(max(0, capacity - (there or 0)) for capacity, there in disks)
    assert found.bytes >= 0 and found.later >= 0
