# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The services on a hypervisor without Ansible, for tests that run them in processes of their own instead of as modules."""

from __future__ import annotations

import base64
import io
import tarfile
import time
from pathlib import Path

import ansible

from .conftest import CHECKOUT

# An argument of a program has at most 128 KiB.
PIECE = 100000
# However slow the machine is, no program goes on for ever.
LONGEST = 3600


def packed(*programs):
    """The collection's services, what runs them in a process, and the programs, as a tar archive."""
    inside, data = Path("ansible_collections/egress/kvm2"), io.BytesIO()
    parts = {inside / part: CHECKOUT / part for part in ("plugins/module_utils", "plugins/modules", "tests/unit/running.py")}
    parts.update({program.name: program for program in programs})
    library = Path(ansible.__file__).parent
    parts.update({f"ansible/{part}": library / part for part in ("release.py", "module_utils")})
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        # What Ansible's own file of that name asks for is not needed here.
        archive.addfile(tarfile.TarInfo("ansible/__init__.py"))
        for name, path in parts.items():
            archive.add(path, str(name), filter=lambda entry: None if "__pycache__" in entry.name else entry)
    return data.getvalue()


def ship(hypervisors, folder, *programs, on="hv1"):
    """Put the services and the programs into a folder on the hypervisor, which is to be the programs' PYTHONPATH."""
    text = base64.b64encode(packed(*programs)).decode()
    hypervisors.shell(on, f"mkdir -p {folder}; rm -f {folder}/packed")
    for begin in range(0, len(text), PIECE):
        hypervisors.shell(on, f"printf %s {text[begin:begin + PIECE]} >> {folder}/packed")
    hypervisors.shell(on, f"cd {folder} && base64 -d packed | tar -xz && rm packed")


def run_long(hypervisors, folder, script, on="hv1"):
    """Run a shell script in that folder, with what was shipped importable, however long it takes; its end is waited for in short commands."""
    hypervisors.shell(on, f"""cat > {folder}/script <<'END'
cd {folder}
export PYTHONPATH=.
{script}
touch ended
END
setsid sh {folder}/script < /dev/null > {folder}/output 2>&1 &""")
    deadline = time.monotonic() + LONGEST
    while "ended" not in hypervisors.shell(on, f"cd {folder}; for _ in $(seq 60); do [ -e ended ] && break; sleep 0.5; done; ls").split():
        assert time.monotonic() < deadline
