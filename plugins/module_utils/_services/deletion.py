# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The declared deletion of instances: one implementation for kvm2_domain, kvm2_gc and everything that finishes an interrupted one.

The order is what makes it safe against creators, replacers, collectors and kills: declare, stop, delete the volumes while the domain still
names them, undefine, destroy what was started meanwhile, sweep up, look again. Several instances take each step together, over one look around.
"""

from __future__ import annotations

from dataclasses import replace

from .._policy import mark, references
from .._policy.domain_spec import console_log_path
from .._policy.errors import CONFLICT, TRANSIENT, Kvm2Error
from .._policy.xml import parse
from . import looks, power
from .belongings import dropped, kind, obstacles, own_volumes

# Something may start the guest again each time that it is off; it rarely wins this often in a row.
ROUNDS = 30


def delete_all(hypervisor, wanted, stop_mode, stop_timeout, clock, did, stopped=power.stop_all):
    """Delete instances (Doomed). Returns {uid: None or Kvm2Error}.

    clock gives seconds since the epoch, for the declaration. did(doomed, act, what, name) is told what was done as soon as it is, since a run may
    end in the middle.
    """
    done = {doomed.uid: _Deeds(doomed, did) for doomed in wanted}
    errors, going = {}, []
    for some in looks.groups(wanted):
        look = looks.shared_look(hypervisor)
        going += _each(hypervisor, errors, some, lambda one, seen=look: _declare(hypervisor, one, seen, clock, done[one.uid]))
    running = []
    going = _each(hypervisor, errors, going, lambda one: running.append(one) if _is_active(hypervisor, one) else None)
    outcome = stopped(hypervisor, {doomed.uid: doomed.domain for doomed in running}, stop_mode, stop_timeout)
    for doomed in running:
        error = outcome[doomed.uid]
        if error is not None:
            errors[doomed.uid] = error
        else:
            done[doomed.uid]("stop", "domain", doomed.domain)
    for some in looks.groups(doomed for doomed in going if doomed.uid not in errors):
        _finish(hypervisor, some, errors, done)
    return {uid: errors.get(uid) for uid in done}


class _Deeds:
    """What was done for one instance."""

    def __init__(self, doomed, did):
        self._doomed, self._did = doomed, did
        self.deleted = []

    def __call__(self, act, what, name):
        if act == "delete":
            self.deleted.append(name)
        self._did(self._doomed, act, what, name)


def _each(hypervisor, errors, wanted, step):
    """Take the step for each of them; returns those for which it went well."""
    return [doomed for doomed in wanted if _attempt(hypervisor, errors, doomed, step)]


def _attempt(hypervisor, errors, doomed, function):
    try:
        with hypervisor.because(doomed.why):
            function(doomed)
    except Kvm2Error as error:
        errors[doomed.uid] = error
        return False
    return True


def _is_active(hypervisor, doomed):
    domain = hypervisor.domain(doomed.uid)
    return domain is not None and domain.active


def _ours(hypervisor, doomed, act):
    """(model.Domain, Mark) of the instance, or (None, None); a conflict where the domain is not this instance."""
    domain = hypervisor.domain(doomed.uid)
    if domain is None:
        return None, None
    parsed = mark.of_domain(domain)
    why = mark.why_not_ours(domain, parsed)
    if why is None and domain.name != doomed.domain:
        why = f"it is named {domain.name}"
    if why is not None:
        raise Kvm2Error(CONFLICT, act, f"instance {doomed.domain} (uid {doomed.uid})", f"the domain with that UUID is not ours: {why}", "It was left alone.")
    return domain, parsed


def _declare(hypervisor, doomed, look, clock, done):
    domain, parsed = _ours(hypervisor, doomed, "delete")
    if domain is None:
        return
    if parsed.hold:
        raise Kvm2Error(CONFLICT, "delete", f"instance {doomed.domain}", f"it is on hold: {parsed.hold}", "Lift the hold first.")
    if doomed.finish and parsed.deleting is None:
        raise _created_anew(doomed)
    inventory, found = look()
    blocked = obstacles(inventory, found, doomed)
    if blocked:
        raise Kvm2Error(CONFLICT, "delete", f"instance {doomed.domain}", "; ".join(blocked), "Remove what uses it first; nothing was changed.")
    if parsed.deleting is not None or not domain.persistent:
        return
    if hypervisor.set_metadata(domain.uuid, mark.PREFIX, mark.URI, mark.to_metadata(replace(parsed, deleting=clock()))):
        done("declare", "domain", doomed.domain)


def _finish(hypervisor, wanted, errors, done):
    left = wanted
    for _attempt_number in range(ROUNDS):
        look, running = looks.shared_look(hypervisor), []
        _each(hypervisor, errors, left, lambda one, seen=look, on=running: _undefine(hypervisor, one, seen, on, done[one.uid]))
        if not running:
            break
        # Between two passes: it may take its time, and no look may be older than that.
        outcome = power.stop_all(hypervisor, {doomed.uid: doomed.domain for doomed in running}, "force", 0)
        errors.update({uid: error for uid, error in outcome.items() if error is not None})
        left = [doomed for doomed in running if doomed.uid not in errors]
    gone = _each(hypervisor, errors, [doomed for doomed in wanted if doomed.uid not in errors], lambda one: _end(hypervisor, one, done[one.uid]))
    look = looks.shared_look(hypervisor)
    swept = _each(hypervisor, errors, gone, lambda one: _sweep(hypervisor, one, look, done[one.uid]))
    named = looks.once(lambda: _named(hypervisor, look()[0]))
    _each(hypervisor, errors, swept, lambda one: _look_again(one, named, done[one.uid]))


def _undefine(hypervisor, doomed, look, running, done):
    """Delete its volumes, then undefine it. One that something has started again is put into `running`, and what it uses is looked at anew later."""
    domain, parsed = _ours(hypervisor, doomed, "delete")
    if domain is None or not domain.persistent:
        return
    if parsed.deleting is None:
        raise _created_anew(doomed)
    if domain.active:
        running.append(doomed)
        return
    _delete_named(hypervisor, domain, doomed, look, done)
    domain, parsed = _ours(hypervisor, doomed, "delete")
    if domain is None:
        return
    if parsed.deleting is None:
        raise _created_anew(doomed)
    _delete_console_log(hypervisor, doomed)
    if hypervisor.undefine(doomed.uid):
        done("undefine", "domain", doomed.domain + dropped(domain, hypervisor.removes_console_logs()))


def _end(hypervisor, doomed, done):
    _destroy_left(hypervisor, doomed, done)
    # A guest that was started meanwhile has written another one.
    _delete_console_log(hypervisor, doomed)


def _delete_console_log(hypervisor, doomed):
    hypervisor.delete_console_log(console_log_path(doomed.domain, doomed.uid))


def _created_anew(doomed):
    return Kvm2Error(
        CONFLICT, "delete", f"instance {doomed.domain}", "somebody created it anew while it was being deleted",
        "Stop whatever else manages it, then run again.")


def _delete_named(hypervisor, domain, doomed, look, done):
    """Delete the volumes that the domain names and that carry its uid, while it still names them: no creator can take them for free ones."""
    inventory, found = look()
    blocked = obstacles(inventory, found, doomed)
    if blocked:
        raise Kvm2Error(CONFLICT, "delete", f"instance {doomed.domain}", "; ".join(blocked), "Remove what uses it first, then run again.")
    named = set()
    for text in domain.xmls:
        named.update(references.paths_of_domain(parse(text), inventory))
    for volume in own_volumes(inventory, doomed.uid):
        if volume.path in named and hypervisor.delete_volume(volume.pool, volume.name):
            done("delete", kind(volume.name), volume.name)


def _destroy_left(hypervisor, doomed, done):
    """Something may have started the guest between stop and undefine: then it goes on without a definition."""
    for _attempt_number in range(ROUNDS):
        domain, parsed = _ours(hypervisor, doomed, "delete")
        if domain is None:
            return
        if domain.persistent:
            if parsed.deleting is None:
                raise _created_anew(doomed)
            raise Kvm2Error(
                TRANSIENT, "delete", f"instance {doomed.domain}",
                "it is still defined" + (", as something starts it again and again" if domain.active else ""), "Stop whatever does so, then run again.")
        if hypervisor.destroy(doomed.uid):
            done("destroy", "domain", doomed.domain)


def _sweep(hypervisor, doomed, look, done):
    """This uid's other unreferenced overlays and seeds go whatever their age."""
    inventory, found = look()
    for volume in own_volumes(inventory, doomed.uid):
        if volume.name not in doomed.keep and not found.users_of(volume.path) and hypervisor.delete_volume(volume.pool, volume.name):
            done("delete", kind(volume.name), volume.name)


def _named(hypervisor, inventory):
    """{name of a file: (a domain that names it, its path)}, read afresh."""
    listing, found = references.Listing(inventory), {}
    for domain in hypervisor.domains():
        for text in domain.xmls:
            found.update({path.rpartition("/")[2]: (domain.name, path) for path in references.paths_of_domain(parse(text), inventory, listing)})
    return found


def _look_again(doomed, named, done):
    """A last look for somebody who uses what was deleted."""
    for name in done.deleted:
        if name in named():
            user, path = named()[name]
            raise Kvm2Error(
                CONFLICT, "delete", f"instance {doomed.domain}", f"domain {user} now names {path}, which was deleted",
                "Converge that domain with on_change: replace.")
