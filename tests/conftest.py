# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the tests share the processes that pytest-xdist starts (pytest -n): all integration tests in one of them, unit tests file by file in the others."""

from __future__ import annotations

import time

import pytest

INTEGRATION = "tests/integration/"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Integration tests share nested hypervisors and must not meet there; the rest is independent and fills the cores beside them."""
    from xdist.scheduler import LoadScopeScheduling

    class ByKind(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return INTEGRATION if nodeid.startswith(INTEGRATION) else nodeid.partition("::")[0]

    return ByKind(config, log)


class _Announcer:
    """Names each integration test as it starts: they are the long ones, and xdist prints nothing but dots."""

    def __init__(self, config):
        self.config = config

    def pytest_runtest_logstart(self, nodeid):
        if nodeid.startswith(INTEGRATION):
            self.config.pluginmanager.get_plugin("terminalreporter").write(f"\n{time.strftime('%H:%M:%S')} {nodeid}\n", flush=True)


def pytest_configure(config):
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Announcer(config))
