# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long an import takes, against what a shell does for the same, how long a sweep of kvm2_gc, and how long many instances take to be defined:
python3 tests/bench. It asserts nothing.

All sides run on the nested hypervisor hv1 in alternating rounds, and medians are compared, since machines are noisy. The hypervisor gets curl.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

import environment
import nested
from console import ToolError, must, say
from placement import place

HERE = Path(__file__).parent
FOLDER = "/var/lib/kvm2-bench"
PORT = 8099
SHELL = """set -e
curl -sSf -o {folder}/fetched http://127.0.0.1:{port}/{name}
sha256sum {folder}/fetched >/dev/null
virsh -q vol-create-as default bench.img {size} --format raw
virsh -q vol-upload bench.img {folder}/fetched default
"""
CHECKED = "sha256sum /var/lib/libvirt/images/bench.img >/dev/null\nsync /var/lib/libvirt/images/bench.img\n"
VOLUME = """<volume>
  <name>bench.img</name>
  <capacity>{size}</capacity>
  <allocation>{size}</allocation>
  <target><format type="raw"/></target>
</volume>"""
CLEAN = f"virsh -q vol-delete bench.img default >/dev/null; rm -f {FOLDER}/fetched; sync"


def shell(script, seconds=900):
    """Output of a script on the hypervisor; it must succeed."""
    code, text = nested.ask("hv1", script, seconds)
    if code:
        sys.exit(f"a command on the hypervisor ended with {code}:\n{script}\n{text}")
    return text


def timed(script):
    """Seconds that a script takes on the hypervisor, by the hypervisor's own clock."""
    return float(shell(f"exec 2>&1; cat > {FOLDER}/timed << 'END'\n{script}\nEND\nbegan=$(date +%s.%N); sh {FOLDER}/timed >&2; "
                       "echo; echo \"$(date +%s.%N) $began\" | awk '{ print $1 - $2 }'").split()[-1])


class Ansible:
    """ansible-playbook over SSH, pipelined; what the module itself took is noted on the hypervisor."""

    def __init__(self):
        self._venv = environment.ensure()
        self.others = community_libvirt(self._venv)
        paths = os.pathsep.join(str(path) for path in (place(), self.others) if path)
        self._env = dict(environment.venv_env(self._venv), ANSIBLE_COLLECTIONS_PATH=paths, ANSIBLE_PIPELINING="1", ANSIBLE_NOCOLOR="1")

    def play(self, *tasks):
        """Wall time of one ansible-playbook with these tasks."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "play.yml")
            path.write_text(json.dumps([{"hosts": "hv1", "gather_facts": False, "tasks": tasks}]), encoding="utf-8")
            began = time.monotonic()
            done = subprocess.run(
                [self._venv / "bin" / "ansible-playbook", "-i", nested.INVENTORY, path], env=self._env, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if done.returncode:
                sys.exit(done.stdout)
            return time.monotonic() - began

    def modules(self, *tasks):
        """(seconds in the modules of these tasks, the largest peak memory in MiB)."""
        shell(f": > {FOLDER}/log")
        self.play(*[dict(task, environment={"PYTHONPATH": FOLDER, "KVM2_BENCH_LOG": f"{FOLDER}/log"}) for task in tasks])
        noted = [line.split() for line in shell(f"cat {FOLDER}/log").splitlines()]
        if len(noted) < len(tasks):
            sys.exit(f"only {len(noted)} of {len(tasks)} modules noted their time")
        return sum(float(seconds) for seconds, _peak in noted), max(int(peak) for _seconds, peak in noted) / 1024


def community_libvirt(venv):
    """Folder with the collection community.libvirt, taken out of the package ansible; None where that cannot be had."""
    folder = environment.CACHE / "bench"
    collection = folder / "ansible_collections" / "community" / "libvirt"
    if (collection / "FILES.json").exists():
        return folder
    pins = environment.CHECKOUT / "tests" / "requirements" / "bench.txt"
    with tempfile.TemporaryDirectory() as wheels:
        command = [venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "download", "-qq", "--no-deps", "--ignore-requires-python"]
        try:
            must("fetch the package ansible", [*command, "-r", pins, "-d", wheels], env=environment.clean_env())
        except ToolError as error:
            say(f"{error}; the comparison with community.libvirt is left out")
            return None
        with zipfile.ZipFile(next(Path(wheels).glob("ansible-*.whl"))) as wheel:
            names = [name for name in wheel.namelist() if name.startswith("ansible_collections/community/libvirt/")]
            # The one whose presence tells that it is whole comes last.
            for name in sorted(names, key=lambda name: name.endswith("/FILES.json")):
                wheel.extract(name, folder)
    return folder


def community_tasks(name, size, digest):
    """How the same gets into a pool with community.libvirt: it has no module that fills a volume, so a file is fetched and uploaded by virsh."""
    return (
        {"ansible.builtin.get_url": {
            "url": f"http://127.0.0.1:{PORT}/{name}", "checksum": f"sha256:{digest}", "dest": f"{FOLDER}/fetched", "mode": "0600"}},
        {"community.libvirt.virt_volume": {"pool": "default", "state": "present", "xml": VOLUME.format(size=size)}},
        {"ansible.builtin.command": f"virsh -q vol-upload bench.img {FOLDER}/fetched default"})


def put(path, name):
    """Copy a local file to the folder on the hypervisor."""
    with open(path, "rb") as content:
        subprocess.run([str(part) for part in nested.command("ssh", "hv1", f"cat > {FOLDER}/{name}")], stdin=content, check=True)


def prepare(size):
    shell(f"command -v curl >/dev/null || (apt-get -qq update && apt-get -qq install -y curl) >/dev/null; mkdir -p {FOLDER}/served")
    for name in ("sitecustomize.py", "http_server.py"):
        put(HERE / name, name)
    shell(f"head -c {size} /dev/urandom > {FOLDER}/served/random.raw; setsid python3 {FOLDER}/http_server.py {FOLDER}/served {PORT} "
          f">/dev/null 2>&1 < /dev/null & echo $! > {FOLDER}/pid; curl -sS --retry 20 --retry-connrefused -I http://127.0.0.1:{PORT}/random.raw >/dev/null")


def show(name, values, unit="s"):
    print(f"  {name:<58} {statistics.median(values):8.2f} {unit}   ({', '.join(f'{value:.2f}' for value in values)})", flush=True)


def imports(ansible, name, image_format, rounds):
    """Rounds of all sides over one file; prints medians and ratios."""
    size = int(shell(f"stat -c %s {FOLDER}/served/{name}"))
    digest = shell(f"sha256sum {FOLDER}/served/{name}").split()[0]
    script = SHELL.format(folder=FOLDER, port=PORT, name=name, size=size)
    options = {"key": "bench", "url": f"http://127.0.0.1:{PORT}/{name}", "checksum": f"sha256:{digest}", "format": image_format}
    ours, guaranteed, plain, others, peaks, empty = [], [], [], [], [], []
    for _round in range(rounds):
        guaranteed.append(timed(script + CHECKED))
        shell(CLEAN)
        seconds, peak = ansible.modules({"egress.kvm2.kvm2_image": options})
        ours.append(seconds)
        peaks.append(peak)
        empty.append(ansible.modules({"ansible.builtin.ping": {}})[0])
        ansible.play({"egress.kvm2.kvm2_image": {"key": "bench", "format": image_format, "state": "absent"}})
        shell("sync")
        plain.append(timed(script))
        shell(CLEAN)
        if ansible.others:
            others.append(ansible.modules(*community_tasks(name, size, digest))[0])
            shell(CLEAN)
    print(f"\nimport of {name}, {size / 1024 ** 2:.0f} MiB, {rounds} rounds, medians:")
    show("kvm2_image, time in the module", ours)
    show("of that for a module that does nothing (ping)", empty)
    show("(a) curl, sha256sum, vol-upload, sha256sum, sync", guaranteed)
    show("(b) curl, sha256sum, vol-upload", plain)
    if others:
        show("(c) get_url, community.libvirt, vol-upload, in the modules", others)
    show("peak memory of the module (goal: below 100)", peaks, "MiB")
    print(f"  ratio to (a), goal 0.45: {statistics.median(ours) / statistics.median(guaranteed):.2f}")
    print(f"  ratio to (b), goal 0.75: {statistics.median(ours) / statistics.median(plain):.2f}")
    if others:
        print(f"  ratio to (c), goal below 1: {statistics.median(ours) / statistics.median(others):.2f}")


def cached(ansible, rounds):
    """A call that has nothing to do, against ansible.builtin.ping: ten of each in one playbook."""
    size = shell(f"head -c 1048576 /dev/urandom > {FOLDER}/served/small.raw; sha256sum {FOLDER}/served/small.raw").split()[0]
    call = {"egress.kvm2.kvm2_image": {
        "key": "bench", "url": f"http://127.0.0.1:{PORT}/small.raw", "checksum": f"sha256:{size}", "format": "raw"}}
    ansible.play(call)
    pings, ours = [], []
    for _round in range(rounds):
        pings.append(ansible.play(*[{"ansible.builtin.ping": {}}] * 10))
        ours.append(ansible.play(*[call] * 10))
    ansible.play({"egress.kvm2.kvm2_image": {"key": "bench", "format": "raw", "state": "absent"}})
    print(f"\nten cached calls in one playbook, {rounds} rounds, medians:")
    show("kvm2_image", ours)
    show("ansible.builtin.ping", pings)
    print(f"  ratio, goal 1.3: {statistics.median(ours) / statistics.median(pings):.2f}")


def main():
    parser = argparse.ArgumentParser(prog="tests/bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=1024, help="of the random image, in MiB (default: %(default)s)")
    parser.add_argument("--image", type=Path, help="a qcow2 image to import as well; without it the published micro guest")
    args = parser.parse_args()
    nested.harness("start the nested hypervisor", "up", "--hosts", "hv1")
    ansible = Ansible()
    say(f"load of this machine: {os.getloadavg()[0]:.1f}; ratios of a busy machine say little")
    try:
        prepare(args.size * 1024 ** 2)
        put(args.image or nested.CACHE / "images" / "micro.qcow2", "served/image.qcow2")
        imports(ansible, "random.raw", "raw", args.rounds)
        imports(ansible, "image.qcow2", "qcow2", args.rounds)
        cached(ansible, args.rounds)
    finally:
        nested.ask("hv1", f"kill $(cat {FOLDER}/pid); {CLEAN}; rm -rf {FOLDER}", 120)
    for part in ("sweep", "instances"):
        subprocess.run([environment.ensure() / "bin" / "python", "-m", f"tests.bench.{part}"], cwd=HERE.parents[1], check=True)


if __name__ == "__main__":
    main()
