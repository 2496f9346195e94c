# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cloud-init configuration of a proxy's guest: the files of its engine, its account, the keys of its operators."""

from __future__ import annotations

import base64

from .engines import ENGINES, SQUID_PASSWORDS
from .password_hash import derive_salt, sha512_crypt


def cloud_config(uid, proxy, settings, keys=(), packages=None, more=None):
    """The mapping that cloud-init gets.

    uid: of the instance.  proxy: {engine, port, allow, user?, password?}.  settings: engines.Settings.  keys: lines for authorized_keys.
    packages: what the guest installs, None for the engine's own.  more: a mapping that is merged into this one, lists appended.
    """
    engine = ENGINES[proxy["engine"]]
    more = more or {}
    config = {"ssh_authorized_keys": list(keys)} if keys else {}
    config["write_files"] = _files(uid, proxy, settings, engine)
    if proxy["engine"] == "dante" and proxy.get("user"):
        config.update(_account(uid, proxy, more))
    config["packages"] = [engine.package] if packages is None else list(packages)
    config["runcmd"] = [["sh", "-c", _start(engine)]]
    return merge(config, more)


def _files(uid, proxy, settings, engine):
    files = [_file(engine.path, engine.owner, engine.mode, engine.render(proxy, settings))]
    if engine.owner.partition(":")[0] not in ("root", "proxy"):
        # The package makes the owner, and it is installed before deferred files are written.
        files[0]["defer"] = True
    if proxy["engine"] == "squid" and proxy.get("user"):
        line = f"{proxy['user']}:{_hashed(uid, proxy)}\n"
        files.append(_file(SQUID_PASSWORDS, "proxy:proxy", "0600", line))
    if engine.drop_in:
        files.append(_file(f"/etc/systemd/system/{engine.service}.service.d/kvm2.conf", "root:root", "0644", engine.drop_in))
    return files


def _file(path, owner, mode, text):
    content = base64.b64encode(text.encode()).decode()
    return {"path": path, "owner": owner, "permissions": mode, "encoding": "b64", "content": content}


def _account(uid, proxy, more):
    """dante knows its clients by the accounts of its guest. `passwd` counts for new accounts only, so that none that is there gets another."""
    # No group of its own: where one of that name is there, as Debian's `operator`, neither this account nor any after it would be made.
    account = {
        "name": proxy["user"], "gecos": "client of the proxy", "system": True, "no_user_group": True, "shell": "/usr/sbin/nologin",
        "lock_passwd": False, "passwd": _hashed(uid, proxy)}
    return {
        # Without a list of users cloud-init makes its default one; with a list it makes those on it.
        "users": [*([] if "users" in more else ["default"]), account],
        # With a password this account could tunnel through sshd, past the list of allowed networks.
        "ssh_pwauth": False,
    }


def _hashed(uid, proxy):
    return sha512_crypt(proxy["password"], derive_salt(uid, proxy["user"]))


def _start(engine):
    """A proxy that the image brings along may have started before its file was written, and beside others."""
    others = " ".join(one.service for one in ENGINES.values() if one is not engine)
    return (
        f"if [ -d /run/systemd/system ]; then for other in {others}; do systemctl disable --now $other.service 2> /dev/null; done; "
        f"systemctl daemon-reload; systemctl enable {engine.service}.service && systemctl restart {engine.service}.service; fi")


def merge(first, second):
    """Two configurations as one: mappings key by key, lists one after the other, of anything else the second."""
    if isinstance(first, dict) and isinstance(second, dict):
        both = dict(first)
        for key, value in second.items():
            both[key] = merge(first[key], value) if key in first else value
        return both
    if isinstance(first, list) and isinstance(second, list):
        return first + second
    return second
