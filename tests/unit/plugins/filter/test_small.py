# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The test transient, and the filters that only hand on."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.egress.kvm2.plugins.filter import (
    cloud_config,
    fleet_drift,
    fleet_endpoints,
    fleet_proxies,
    fleet_share,
    fleet_table,
)
from ansible_collections.egress.kvm2.plugins.module_utils._policy import endpoints, fleet
from ansible_collections.egress.kvm2.plugins.test.transient import TestModule as TransientTest

TRANSIENT = TransientTest().tests()["transient"]


@pytest.mark.parametrize(("result", "expected"), [
    ({"failed": True, "error": {"kind": "transient"}}, True),
    # failed_when may have taken the failure away; what went wrong is still told by the module.
    ({"failed": False, "error": {"kind": "transient"}}, True),
    ({"failed": True, "error": {"kind": "permanent"}}, False),
    ({"failed": True, "error": {"kind": "quota"}}, False),
    ({"failed": True, "error": {"kind": "conflict"}}, False),
    ({"failed": True, "msg": "transient"}, False),
    ({"changed": True}, False),
    ({"skipped": True}, False),
    ({"error": "transient"}, False),
    ({"results": [{"changed": True}, {"failed": True, "error": {"kind": "transient"}}]}, True),
    ({"results": [{"failed": True, "error": {"kind": "permanent"}}, {"failed": True, "error": {"kind": "transient"}}]}, False),
    ({"results": [{"failed": True, "msg": "something else"}, {"failed": True, "error": {"kind": "transient"}}]}, False),
    ({"results": [{"changed": True}]}, False),
    ({"results": []}, False),
])
def test_only_a_failure_of_that_kind_is_transient(result, expected):
    assert TRANSIENT(result) is expected


@pytest.mark.parametrize("result", [None, "failed", [{"error": {"kind": "transient"}}]])
def test_what_is_no_result_is_refused(result):
    with pytest.raises(AnsibleFilterError):
        TRANSIENT(result)


def test_filters_are_the_functions_of_the_policy():
    assert fleet_share.FilterModule().filters() == {"fleet_share": fleet.share}
    assert fleet_endpoints.FilterModule().filters() == {"fleet_endpoints": endpoints.endpoints}
    assert fleet_proxies.FilterModule().filters()["fleet_proxies"]([]) == endpoints.proxies([])
    assert fleet_drift.FilterModule().filters() == {"fleet_drift": endpoints.drift}
    assert fleet_table.FilterModule().filters() == {"fleet_table": endpoints.table}


def test_cloud_config_fails_as_a_filter_does():
    render = cloud_config.FilterModule().filters()["cloud_config"]
    assert render({"a": "b"}) == "#cloud-config\na: b\n"
    with pytest.raises(AnsibleFilterError, match="Give a mapping"):
        render(["a"])
