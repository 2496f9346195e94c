# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a hypervisor: tls.py has its daemon listen for TLS, and prints what a module says with each kind of certificates. Beside it lie those that it
takes: ca.pem and what is signed by it, cert.pem with key.pem, for localhost and for clients, and other-… of another authority."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time

import daemon
import ground
from bounded import quiet
from ways_in import refused

HERE = os.path.dirname(os.path.abspath(__file__))
SERVER, CONFIGURATION, PORT = f"{ground.FOLDER}/tls", f"{ground.FOLDER}/libvirtd.conf", 16514
# What libvirt wants to find in the folder of a client, and what of ours that is.
FILES = {"cacert.pem": "ca.pem", "clientcert.pem": "cert.pem", "clientkey.pem": "key.pem"}


@contextlib.contextmanager
def listening():
    """The daemon of this machine listens for TLS inside."""
    shutil.copytree(HERE, SERVER, ignore=lambda _folder, names: [name for name in names if not name.endswith(".pem")])
    own = {"ca_file": "ca.pem", "cert_file": "cert.pem", "key_file": "key.pem"}
    with open("/etc/libvirt/libvirtd.conf", encoding="utf-8") as usual, open(CONFIGURATION, "w", encoding="utf-8") as file:
        file.write(usual.read())
        file.write(f'\nlisten_tls = 1\nlisten_tcp = 0\nlisten_addr = "127.0.0.1"\ntls_port = "{PORT}"\n')
        file.writelines(f'{option} = "{SERVER}/{name}"\n' for option, name in own.items())
    with daemon.replaced("--listen", "--config", CONFIGURATION):
        yield


def folder(name, **others):
    """The path of a client's certificates; others: the files that one is made of in the place of ours."""
    path = f"{ground.FOLDER}/{name}"
    os.makedirs(path)
    for wanted, ours in FILES.items():
        for one in others.get(ours.partition(".")[0], [ours]):
            with open(f"{HERE}/{one}", "rb") as source, open(f"{path}/{wanted}", "ab") as file:
                shutil.copyfileobj(source, file)
    return path


def uri(path, host="localhost"):
    return f"qemu+tls://{host}:{PORT}/system?pkipath={path}"


def main():
    ground.lay()
    try:
        good, refusals = folder("good"), []
        with listening():
            began = time.monotonic()
            quiet(*ground.look(uri(good)))
            ground.tell(case="good certificates", took=round(time.monotonic() - began, 2), problems=[])
            # And work, with a stream each way.
            published = quiet(*ground.image("over-tls", uri(good)))["image"]
            ground.tell(case="an import", published=published["published"], problems=[] if published["published"] else [published])
            other = {"cert": ["other-cert.pem"], "key": ["other-key.pem"]}
            for case, words, where in (
                    ("another authority than the server's", ["peer's certificate", "pkipath"], uri(folder("other", ca=["other-ca.pem"], **other))),
                    ("no certificate of the client", ["or there is none"], uri(folder("no-client", cert=[], key=[]))),
                    ("a client that the server does not know", ["does not accept"], uri(folder("unknown", ca=["ca.pem", "other-ca.pem"], **other))),
                    ("a client of another authority than it trusts", ["validation", "pkipath"], uri(folder("other-client", **other))),
                    ("a name that is not the server's", ["peer's certificate", "server's certificate names"], uri(good, "127.0.0.1")),
                    ("no certificates at all", ["certificate", "pkipath"], uri(f"{ground.FOLDER}/none"))):
                refusals.append(refused(case, "permanent", words, where))
    finally:
        daemon.mend()
        ground.clear()
    sys.exit(any(refusals))


if __name__ == "__main__":
    main()
