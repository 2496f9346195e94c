# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hold of an instance: an operator's reason, in its mark, why it must not be restarted, replaced, removed or collected."""

from __future__ import annotations

from dataclasses import replace

from .._policy import mark
from .._policy.errors import CONFLICT, InvalidInput, Kvm2Error
from .domain_view import former
from .instances import domain_of


def wanted(text, instance):
    """The hold that an option asks for: None leaves it, "" lifts it. Raises InvalidInput for a text that is no reason."""
    if text is None or text == "":
        return text
    if not text.strip():
        raise InvalidInput(f"hold of instance {instance.name}", "it is blank", "Give the reason, or an empty text to lift the hold.")
    # A text that XML cannot carry is refused here, before anything is looked at.
    mark.to_element(mark.Mark(instance.fleet, instance.name, instance.uid, 1, hold=text))
    return text.strip()


def put(hypervisor, instance, hold):
    """Write the hold into the marks of the definition and of the running guest; "" lifts it."""
    both = (hypervisor.domain(instance.uid), hypervisor.domain_by_name(instance.domain))
    domain = domain_of(instance, tuple(one for one in both if one is not None))
    # setMetadata wants the element without a prefix and adds its own.
    if domain is None or not hypervisor.set_metadata(domain.uuid, mark.PREFIX, mark.URI, mark.to_metadata(_held(domain, hold))):
        raise Kvm2Error(CONFLICT, "hold", f"domain {instance.domain}", "it has gone", "Something removed it; run again.")


def _held(domain, hold):
    """Both marks become this one. What the guest was started with and is asked for no more stays in it, or nothing would tell that it is pending."""
    return replace(mark.of_domain(domain), hold=hold, **{what: " ".join(former(domain, what)) for what in ("macs", "options")})
