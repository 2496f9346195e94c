# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether guests get at a pool's files, told from modes and labels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.egress.kvm2.plugins.module_utils._policy import pool_checks
from ansible_collections.egress.kvm2.plugins.module_utils._policy.host_state import Node, User
from ansible_collections.egress.kvm2.plugins.module_utils._policy.model import Pool

QEMU = User(64055, 64055, frozenset((993,)), "libvirt-qemu")
FOLDERS = (Node("/", 0, 0, 0o755), Node("/srv", 0, 0, 0o755), Node("/srv/pool", 0, 0, 0o711))
POOL = Pool("p", "u", "dir", True, "/srv/pool", autostart=True)
# As libvirt 11.3 tells it on Debian 13, and with the other drivers.
SECURITY = """<capabilities><host><secmodel><model>none</model><doi>0</doi></secmodel>
<secmodel><model>apparmor</model><doi>0</doi></secmodel><secmodel><model>dac</model><doi>0</doi>
<baselabel type='kvm'>+64055:+64055</baselabel><baselabel type='qemu'>+64055:+64055</baselabel></secmodel></host></capabilities>"""


def access(folders=FOLDERS, user=QEMU, pool=POOL, bad="fail"):
    return pool_checks.access(pool, folders, user, bad)


def with_mode(mode, **more):
    return (*FOLDERS[:1], replace(FOLDERS[1], mode=mode, **more), FOLDERS[2])


@pytest.mark.parametrize("folders, status", [
    (FOLDERS, "ok"), (with_mode(0o700), "fail"), (with_mode(0o754), "fail"), (with_mode(0o710, gid=993), "ok"), (with_mode(0o710, gid=64055), "ok"),
    (with_mode(0o701, gid=993), "fail"), (with_mode(0o100, uid=64055), "ok"), (with_mode(0o077, uid=64055), "fail"), (with_mode(0o700, acl=True), "skipped")])
def test_a_folder_that_qemu_may_not_enter(folders, status):
    check = access(folders)
    assert check.status == status
    if status == "fail":
        assert "libvirt-qemu" in check.message and "/srv (owner" in check.message and "chmod o+x /srv," in check.hint
        assert access(folders, bad="warn").status == "warn"


def test_root_may_enter_everything():
    assert access(with_mode(0o700), User(0, 0)).status == "ok"


def test_over_a_connection_the_pools_own_folder_counts():
    closed = replace(POOL, folder=Node("/srv/pool", 0, 0, 0o700))
    assert access((), pool=closed).status == "fail"
    assert access((), pool=replace(POOL, folder=Node("/srv/pool", 0, 0, 0o711))).status == "skipped"
    assert access((), pool=POOL).status == access((), user=None).status == "skipped"
    assert "uid 7," in access((), User(7, 7), closed).message
    # Which groups the user is in cannot be told from elsewhere.
    assert access((), User(64055, 64055), replace(POOL, folder=Node("/srv/pool", 0, 993, 0o710))).status == "skipped"


def test_who_qemu_is():
    assert pool_checks.qemu_ids(SECURITY) == (64055, 64055)
    assert pool_checks.security_models(SECURITY) == ("apparmor", "dac")
    for none in ("<capabilities><host/></capabilities>", SECURITY.replace("+64055:+64055", ""), SECURITY.replace("dac", "selinux")):
        assert pool_checks.qemu_ids(none) is None


@pytest.mark.parametrize("path, status", [
    ("/var/lib/libvirt/images", "ok"), ("/srv/pool", "ok"), ("/library", "warn"), ("/etc/pool", "warn"), ("/usr/share/pool", "warn"), ("/usr/shared", "ok")])
def test_apparmor(path, status):
    (check,) = pool_checks.labels(replace(POOL, path=path), ("apparmor", "dac"), (), False)
    assert (check.status, bool(check.hint)) == (status, status == "warn")


@pytest.mark.parametrize("label, status", [
    ("system_u:object_r:virt_image_t:s0", "ok"), ("unconfined_u:object_r:user_home_t:s0", "warn"), (None, "skipped"), ("odd", "skipped")])
def test_selinux(label, status):
    folders = (*FOLDERS[:2], replace(FOLDERS[2], label=label))
    (check,) = pool_checks.labels(POOL, ("selinux", "dac"), folders, True)
    assert check.status == status
    (check,) = pool_checks.labels(replace(POOL, folder=folders[2]), ("selinux", "dac"), (), False)
    assert check.status == status
    if status == "warn":
        assert check.hint == "semanage fcontext -a -t virt_image_t '/srv/pool(/.*)?', then: restorecon -R /srv/pool."


def test_without_such_drivers_nothing_is_said():
    assert list(pool_checks.labels(POOL, ("dac",), FOLDERS, False)) == []


def test_autostart():
    assert pool_checks.autostart(POOL).status == "ok"
    check = pool_checks.autostart(replace(POOL, autostart=False))
    assert (check.status, check.hint) == ("warn", "Have it started: virsh pool-autostart p.")
