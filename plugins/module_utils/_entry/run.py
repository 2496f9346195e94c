# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one run pipeline: observe → plan → [check mode stops here] → apply → result. The only check-mode test and the only fail_json."""

from __future__ import annotations

import os
import secrets
import sys

from ansible.module_utils.basic import AnsibleModule

from .._host import libvirt_connection, libvirt_hypervisor, python_libraries, turn
from .._host.controller import ControllerGone, ControllerWatch
from .._host.deadline import Deadline, end_now
from .._host.journal import Journal, who
from .._host.status import StatusFile
from .._policy import names, progress
from .._policy.errors import PERMANENT, Kvm2Error, kind_of_several
from .._policy.packages import library_hint
from .._policy.xml import LXML_IMPORT_ERROR
from .._services import clock
from .._services.service import Context, StartOver
from .args import connection_arguments, parse_connection


def new_nonce():
    return secrets.token_hex(3)


def run_module(service_class, arguments, timeout="1h", longest_timeout=None, connect=True, **constraints):
    """Run a module: `arguments` is its own argument spec, to which the connection options are added unless connect is False."""
    spec = dict(arguments)
    if connect:
        spec.update(connection_arguments(timeout))
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True, **constraints)
    context = Context(nonce=new_nonce, warn=module.warn)
    context.turn = turn.take
    plan = result = None
    status = StatusFile(os.environ.get(progress.TOKEN))

    def leave():
        status.remove()
        end_now()

    watch = ControllerWatch(leave)
    context.progress, context.check_stop = status.write, watch.check
    try:
        if connect:
            _require_libraries()
            connection = parse_connection(module.params, longest_timeout)
            deadline = context.deadline = Deadline(connection.timeout, connection.uri)
        if module.check_mode:
            context.nonce = lambda: names.PREDICTED_NONCE
            context.pool_time = clock.newest_seen
            context.turn = turn.no_turn
        service = service_class(module.params, context)
        hypervisor = None
        if connect:
            hypervisor = libvirt_hypervisor.LibvirtHypervisor(
                connection.uri, deadline, connection.connect_timeout, connection.keepalive_interval, connection.keepalive_count,
                run_command=module.run_command, journal=Journal(module._name, who()), step=watch.step)
            hypervisor.why = f"state {module.params['state']} was asked for" if module.params.get("state") else ""
        try:
            plan, result = carry_out(service, hypervisor, module.check_mode)
        finally:
            if hypervisor is not None:
                hypervisor.close()
    except Kvm2Error as error:
        _fail(module, context, [(None, error)], {})
    except ControllerGone as gone:
        _fail(module, context, [(None, gone.error)], {})
    finally:
        if watch.gone:
            module.log("Ended early: the controller that asked for this work has gone.")
        watch.cancel()
        status.remove()
        if context.deadline is not None:
            context.deadline.cancel()
    if context.failures:
        _fail(module, context, context.failures, result)
    module.exit_json(**finish(plan, result, module._diff))


def carry_out(service, hypervisor, check):
    """(plan, result): observe → plan → [check mode stops here] → apply, begun anew where apply says so."""
    try:
        while True:
            seen = service.observe(hypervisor)
            plan = service.plan(seen)
            if check:
                return plan, service.predict(seen, plan)
            try:
                return plan, service.apply(hypervisor, seen, plan)
            except StartOver:
                continue
    finally:
        for held in service.context.held:
            held.release()


def finish(plan, result, with_diff):
    """The result of a run that succeeded, in check mode and out of it: changed, actions and diff come from the plan."""
    complete = dict(result, changed=plan.changed, actions=plan.as_list())
    if with_diff:
        complete["diff"] = plan.diff()
    return complete


def failure(context, failures, result):
    """The result of a run in which something failed: what was done, and the first failure as `error`, all of them as `errors`."""
    errors = [dict(error.as_dict(), item=item) if item is not None else error.as_dict() for item, error in failures]
    message = errors[0]["message"] if len(errors) == 1 else f"{len(errors)} failures: " + " | ".join(error["message"] for error in errors)
    error = dict(errors[0], kind=kind_of_several(error["kind"] for error in errors))
    return dict(
        result, msg=message, error=error, errors=errors, changed=any(action.changes for action in context.done),
        actions=[action.as_dict() for action in context.done])


def _fail(module, context, failures, result):
    module.fail_json(**failure(context, failures, result))


def _require_libraries():
    problems = {"libvirt": libvirt_connection.LIBVIRT_IMPORT_ERROR, "lxml": LXML_IMPORT_ERROR}
    missing = [library for library, problem in problems.items() if problem is not None]
    if missing:
        reasons = "; ".join(problems[library].strip().splitlines()[-1] for library in missing)
        raise Kvm2Error(
            PERMANENT, "load", f"the Python {'library' if len(missing) == 1 else 'libraries'} {' and '.join(missing)}",
            f"{sys.executable} cannot import {'it' if len(missing) == 1 else 'them'}: {reasons}",
            library_hint(missing, sys.executable, python_libraries.families()))
