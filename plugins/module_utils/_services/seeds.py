# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The seed volume of an instance: made once under a name of its own, and read back before a domain uses it."""

from __future__ import annotations

from .._policy import names, seed, volume_xml
from .._policy.errors import CONFLICT, TRANSIENT, Kvm2Error
from . import creating
from .undoing import undone_by


def _render(name, wanted):
    nonce = names.parse_instance_volume(name).nonce
    return seed.render(wanted.user_data, seed.of_generation(wanted.meta_data, nonce), wanted.network_config)


def make(hypervisor, pool, name, wanted):
    """Create the seed volume; returns its model.Volume. On any error the volume is deleted again."""
    data = _render(name, wanted)
    volume = creating.create_volume(hypervisor, pool, name, volume_xml.seed_volume(name, len(data)))
    with undone_by(lambda: hypervisor.delete_volume(pool, name)):
        hypervisor.upload(pool, name, [data], len(data))
        check(hypervisor, pool, name, wanted)
    return volume


def check(hypervisor, pool, name, wanted):
    """See that the volume holds exactly what is rendered from `wanted`."""
    obj = f"seed {name} in pool {pool}"
    if hypervisor.volume(pool, name) is None:
        raise Kvm2Error(CONFLICT, "read", obj, "it has gone", "Something removed it; run again.")
    if not holds(hypervisor, pool, name, wanted):
        raise Kvm2Error(TRANSIENT, "check", obj, "it does not hold what was written into it", "Run again.")


def holds(hypervisor, pool, name, wanted):
    """Does the volume hold exactly what is rendered from `wanted`?"""
    data = _render(name, wanted)
    return b"".join(hypervisor.download(pool, name, 0, len(data))) == data
