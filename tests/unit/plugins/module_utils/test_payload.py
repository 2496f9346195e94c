# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module in an archive, as Ansible sends it: what Python makes of it."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

UTILS = Path(__file__).resolve().parents[4] / "plugins" / "module_utils"
INSIDE = "ansible_collections/egress/kvm2/plugins/module_utils"
# What it prints: how often each file of ours was compiled, and what the statement leaves in `answer`.
PROGRAM = """
import collections, json, sys
compiled, answer = collections.Counter(), None
sys.addaudithook(lambda event, args: compiled.update([args[1]]) if event == "compile" and isinstance(args[1], str) else None)
sys.path.insert(0, sys.argv[1])
exec(sys.argv[2])
print(json.dumps([{name.partition("/module_utils/")[2]: count for name, count in compiled.items() if "/module_utils/_" in name}, answer]))
"""


@pytest.fixture
def payload(tmp_path):
    folder = tmp_path / "ansible_egress.kvm2.kvm2_gc_payload_abc"
    folder.mkdir()
    path = folder / "ansible_egress.kvm2.kvm2_gc_payload.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for parent in (INSIDE, *list(Path(INSIDE).parents)[:-1]):
            archive.writestr(f"{parent}/__init__.py", "")
        for source in UTILS.rglob("*.py"):
            archive.write(source, f"{INSIDE}/{source.relative_to(UTILS)}")
    return path


def run(payload, statement):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, payload, statement.replace("~", INSIDE.replace("/", "."))], capture_output=True, text=True, timeout=60,
        check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_is_imported_afterwards_is_compiled_once(payload):
    used = "from ~._policy import units; from ~._host import ending; answer = units.parse_size('1KiB', 'x')"
    compiled, answer = run(payload, "from ~ import _payload; " + used)
    assert answer == 1024 and compiled.pop("_payload.py") == compiled.pop("__init__.py") == 2
    assert compiled == dict.fromkeys(compiled, 1) and {"_policy/__init__.py", "_policy/units.py", "_policy/errors.py", "_host/ending.py"} <= set(compiled)


def test_a_traceback_shows_the_line(payload):
    _compiled, answer = run(payload, (
        "import traceback\nfrom ~ import _payload\nfrom ~._policy import errors\ntry: errors.Kvm2Error('none', 'do', 'it', '')\n"
        "except ValueError: answer = [traceback.format_exc(), errors.__file__, errors.__package__]"))
    trace, path, package = answer
    assert 'raise ValueError(f"unknown kind of error: {kind}")' in trace and f'File "{path}", line ' in trace
    assert path == f"{payload}/{INSIDE}/_policy/errors.py" and package == f"{INSIDE}/_policy".replace("/", ".")


def test_what_is_not_there_is_not_found(payload):
    _compiled, answer = run(payload, "from ~ import _payload\ntry: import ~._policy.nothing\nexcept ModuleNotFoundError as error: answer = error.name")
    assert answer == f"{INSIDE}/_policy/nothing".replace("/", ".")


def test_the_folder_of_the_archive_goes_with_a_process_that_is_ended(payload):
    _compiled, answer = run(
        payload, "from ~ import _payload; from ~._host import ending; ending.clean_up_code(_payload.ARCHIVE); answer = list(ending.SCRATCH)")
    assert answer == [str(payload.parent)]


def test_outside_an_archive_nothing_is_changed():
    _compiled, answer = run(".", "import sys; before = list(sys.meta_path); import importlib.util as u\n"
                            f"spec = u.spec_from_file_location('x.y', {str(UTILS / '_payload.py')!r}); module = u.module_from_spec(spec)\n"
                            "spec.loader.exec_module(module); answer = [before == sys.meta_path, module.ARCHIVE]")
    assert answer == [True, ""]
