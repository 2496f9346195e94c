# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of the collector share: one call of kvm2_gc with its result, and programs that run on a hypervisor."""

from __future__ import annotations

import base64
import gzip
import json

import yaml

POOL = "/var/lib/libvirt/images"
CLEAN_UP = """
import json, libvirt, os, re
domains, files = json.loads({patterns})
connection = libvirt.open("qemu:///system")
for domain in connection.listAllDomains():
    if re.match(domains, domain.name()):
        if domain.isActive():
            domain.destroy()
        domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA | libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)
for name in os.listdir({pool}):
    if re.match(files, name):
        os.remove(os.path.join({pool}, name))
connection.storagePoolLookupByName("default").refresh()
"""


def collect(hypervisors, tmp_path, check=False, arguments=(), on="hv1", **options):
    """The result of one kvm2_gc on the host, which must succeed. With arguments for ansible-playbook, such as --diff."""
    return run_module(hypervisors, tmp_path, "gc", check, arguments, on, **options)


def run_module(hypervisors, tmp_path, module, check=False, arguments=(), on="hv1", **options):
    """The result of one module of the collection on the host, which must succeed; its output is under "output"."""
    result, book = tmp_path / "result.json", tmp_path / f"{module}.yml"
    book.write_text(yaml.safe_dump([{
        "hosts": on, "gather_facts": False, "tasks": [
            {"name": "Run", f"egress.kvm2.kvm2_{module}": options, "register": "found", "check_mode": check},
            {"name": "Keep the result", "ansible.builtin.copy": {"content": "{{ found | to_json }}", "dest": str(result), "mode": "0600"},
             "delegate_to": "localhost", "check_mode": False, "diff": False}]}]), encoding="utf-8")
    done = hypervisors.playbook(book, *arguments)
    return dict(json.loads(result.read_text(encoding="utf-8")), output=done.stdout)


def names(result, answer, what="domain"):
    """Names of the objects of a kind in one list of the result."""
    return sorted(item["name"] for item in result[answer] if item["what"] == what)


def run_python(hypervisors, program, on="hv1"):
    """Output of a Python program on the hypervisor."""
    packed = base64.b64encode(gzip.compress(program.encode())).decode()
    return hypervisors.shell(on, f"echo {packed} | base64 -d | gzip -d | python3 -")


def define(hypervisors, *documents, on="hv1"):
    """Define domains from their XML documents."""
    program = (
        "import json, libvirt\nconnection = libvirt.open('qemu:///system')\n"
        f"for xml in json.loads({json.dumps(json.dumps(documents))}):\n    connection.defineXML(xml)\n")
    run_python(hypervisors, program, on)


def clean_up(hypervisors, domains, files, on="hv1"):
    """Remove every domain and file of the default pool whose name begins with these patterns."""
    run_python(hypervisors, CLEAN_UP.format(patterns=repr(json.dumps([domains, files])), pool=repr(POOL)), on)
