# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules run in the test's own process: real argument parsing and the real pipeline over a Hypervisor of the test's choice."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.egress.kvm2.plugins.module_utils._entry import run
from ansible_collections.egress.kvm2.plugins.module_utils._entry.args import connection_arguments
from ansible_collections.egress.kvm2.plugins.module_utils._host.ending import EndedEarly
from ansible_collections.egress.kvm2.plugins.module_utils._policy import names
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error
from ansible_collections.egress.kvm2.plugins.module_utils._services import clock as pool_clock
from ansible_collections.egress.kvm2.plugins.module_utils._services.service import Context

SERVICES = {
    "image": "ImageService", "overlay": "OverlayService", "domain": "DomainService", "gc": "GcService", "pool_check": "PoolCheckService"}
_count = iter(range(1, 16 ** 6))


def parameters(module, **given):
    """The module's parameters as AnsibleModule would hand them over, defaults filled in."""
    found = importlib.import_module(f"ansible_collections.egress.kvm2.plugins.modules.kvm2_{module}")
    spec = dict(found.ARGUMENTS, **connection_arguments("1h"))
    validated = ArgumentSpecValidator(spec).validate(given)
    if validated.error_messages:
        raise ValueError(validated.error_messages)
    return validated.validated_parameters


def service_of(module):
    found = importlib.import_module(f"ansible_collections.egress.kvm2.plugins.module_utils._services.{module}")
    return getattr(found, SERVICES[module])


def run_module(module, hypervisor, check=False, clock=None, check_stop=None, **given):
    """Run a module; returns the result as a namespace with `failed` and `warnings` besides what the module returns."""
    warnings = []
    nonce = (lambda: names.PREDICTED_NONCE) if check else (lambda: f"{next(_count):06x}")
    context = Context(nonce=nonce, warn=warnings.append, clock=clock or (lambda: hypervisor.machine.now))
    context.check_stop = check_stop or context.check_stop
    if check:
        context.pool_time = pool_clock.newest_seen
    result = {}
    try:
        service = service_of(module)(parameters(module, **given), context)
        plan, result = run.carry_out(service, hypervisor, check)
    except (Kvm2Error, EndedEarly) as error:
        context.failures.insert(0, (None, getattr(error, "error", error)))
    if context.failures:
        return SimpleNamespace(failed=True, warnings=warnings, **run.failure(context, context.failures, result))
    return SimpleNamespace(failed=False, warnings=warnings, **run.finish(plan, result, True))
