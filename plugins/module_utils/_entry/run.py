# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one run pipeline: observe → plan → [check mode stops here] → apply → result. The only check-mode test and the only fail_json."""

from __future__ import annotations

import functools
import gc
import os
import secrets
import sys
import traceback

from ansible.module_utils.basic import AnsibleModule

# What is imported after this one is compiled once.
from .. import _payload
from .._host import ending, libvirt_connection, libvirt_hypervisor, storage, turn
from .._host.controller import ControllerWatch
from .._host.deadline import Deadline
from .._host.ending import EndedEarly, end_now
from .._host.journal import Journal, who
from .._host.status import StatusFile
from .._policy import names, progress
from .._policy.errors import PERMANENT, Kvm2Error, MissingLibrary, kind_of_several
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
    ending.clean_up_code(_payload.ARCHIVE)
    status = StatusFile(os.environ.get(progress.TOKEN))

    def describe(error):
        return failure(context, [(None, error)], {})

    def leave(result):
        status.remove()
        ending.leave(result)

    watch = ControllerWatch(leave, describe=describe)
    context.progress, context.check_stop = status.write, watch.check
    link = _Link(module, watch, leave, describe)
    outcome = _Outcome(describe)
    try:
        with outcome:
            service, hypervisor = _prepare(module, context, link, service_class, longest_timeout if connect else None, connect)
            plan, result = carry_out(service, hypervisor, module.check_mode)
            outcome.failed = bool(context.failures)
            outcome.result = failure(context, context.failures, result) if context.failures else finish(plan, result, module._diff)
    finally:
        clean = link.close()
        storage.close()
        if watch.gone:
            module.log("Ended early: the controller that asked for this work has gone.")
        watch.cancel()
        status.remove()
    _answer(functools.partial(module.fail_json, exception=outcome.trace) if outcome.failed else module.exit_json, outcome.result, clean)


class _Outcome:
    """What a run comes to. Around the work it is the one place that takes every error, also one that nobody expected, so that each gives a result."""

    def __init__(self, describe):
        self._describe = describe
        self.failed, self.result, self.trace = False, {}, None

    def __enter__(self):
        return self

    def __exit__(self, _kind, problem, _trace):
        if not isinstance(problem, Exception):
            return False
        if not isinstance(problem, (Kvm2Error, EndedEarly)):
            self.trace = "".join(traceback.format_exception(type(problem), problem, problem.__traceback__))
            problem = _unexpected(problem)
        self.failed, self.result = True, self._describe(getattr(problem, "error", problem))
        return True


def _prepare(module, context, link, service_class, longest_timeout, connect):
    """(service, hypervisor or None). Wrong input is told before anything is connected to."""
    if connect:
        _require_libraries()
        connection = parse_connection(module.params, longest_timeout)
        context.deadline = link.bound(connection)
        context.check_stop = link.check
    if module.check_mode:
        context.nonce = lambda: names.PREDICTED_NONCE
        context.pool_time = clock.newest_seen
        context.turn = turn.no_turn
    service = service_class(module.params, context)
    return service, link.open(connection) if connect else None


class _Link:
    """The connection of a run, and its deadline."""

    def __init__(self, module, watch, leave, describe):
        self._module, self._watch, self._leave, self._describe = module, watch, leave, describe
        self._deadline = self._hypervisor = None

    def bound(self, connection):
        """The Deadline of the work, from here on."""
        self._deadline = Deadline(connection.timeout, connection.uri, leave=self._leave, describe=self._describe)
        return self._deadline

    def open(self, connection):
        module = self._module
        if connection.is_local:
            # It starts while the connection is opened.
            storage.prepare()
        self._hypervisor = libvirt_hypervisor.LibvirtHypervisor(
            connection.uri, self._deadline, connection.connect_timeout, connection.keepalive_interval, connection.keepalive_count,
            ssh=connection.ssh, run_command=module.run_command, journal=Journal(module._name, who()), step=self.step)
        self._hypervisor.why = f"state {module.params['state']} was asked for" if module.params.get("state") else ""
        return self._hypervisor

    def step(self):
        self._watch.step()
        self._deadline.step()

    def check(self):
        self._watch.check()
        self._deadline.check()

    def close(self):
        """False where something of the connection could not be closed, so that the process has to be ended at once. The deadline is over before:
        what is done stays done, whatever the closing comes to."""
        if self._deadline is not None:
            self._deadline.cancel()
        return self._hypervisor is None or self._hypervisor.close() is not False


def carry_out(service, hypervisor, check):
    """(plan, result): observe → plan → [check mode stops here] → apply, begun anew where apply says so."""
    try:
        while True:
            seen = service.observe(hypervisor)
            plan = service.plan(seen)
            if check:
                result = service.predict(seen, plan)
                # Where something fails, too: what would be done for the rest.
                for action in plan.actions:
                    service.context.did(action)
                return plan, result
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
    for _item, error in failures:
        if isinstance(error, MissingLibrary):
            error.hint = _library_hint([error.library])
    errors = [dict(error.as_dict(), item=item) if item is not None else error.as_dict() for item, error in failures]
    message = errors[0]["message"] if len(errors) == 1 else f"{len(errors)} failures: " + " | ".join(error["message"] for error in errors)
    error = dict(errors[0], kind=kind_of_several(error["kind"] for error in errors))
    return dict(
        result, msg=message, error=error, errors=errors, changed=any(action.changes for action in context.done),
        actions=[action.as_dict() for action in context.done])


def _unexpected(fault):
    text = " ".join(str(fault).split())
    return Kvm2Error(
        PERMANENT, "finish", "the work", f"{type(fault).__name__}: {text}" if text else type(fault).__name__,
        "This is a fault of the collection: report it with the traceback that ANSIBLE_DISPLAY_TRACEBACK=error shows. Running again is safe.")


def _answer(method, result, clean):
    """Print the result and end. Where nobody reads it any more, or something of the connection is blocked, nothing may wait for that."""
    ending.take_last_word()
    # All that has to be closed is closed; without this Python looks through everything it has once more at its end, a twentieth of a call's time.
    gc.freeze()
    try:
        method(**result)
    except SystemExit as ended:
        if not _flush() or not clean:
            end_now(code=ended.code)
        raise
    except BrokenPipeError:
        end_now()


def _flush():
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return False
    return True


def _require_libraries():
    problems = {"libvirt": libvirt_connection.LIBVIRT_IMPORT_ERROR, "lxml": LXML_IMPORT_ERROR}
    missing = [library for library, problem in problems.items() if problem is not None]
    if missing:
        reasons = "; ".join(problems[library].strip().splitlines()[-1] for library in missing)
        raise Kvm2Error(
            PERMANENT, "load", f"the Python {'library' if len(missing) == 1 else 'libraries'} {' and '.join(missing)}",
            f"{sys.executable} cannot import {'it' if len(missing) == 1 else 'them'}: {reasons}",
            _library_hint(missing))


def _library_hint(missing):
    # Needed by hardly any run.
    from .._host import python_libraries
    from .._policy.packages import library_hint
    return library_hint(missing, sys.executable, python_libraries.families())
