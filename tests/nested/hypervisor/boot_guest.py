# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Part of the harness's self-test, run on a hypervisor: boot the micro guest with a seed, ask through its proxy, switch it off.

Reads one JSON object from standard input (image_url, checksum_url, ask_url, name) and writes one with what was seen.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import pathlib
import subprocess
import sys
import time
import urllib.request

import pycdlib

POOL = pathlib.Path("/var/lib/libvirt/images")
LOGS = pathlib.Path("/var/log/libvirt/qemu")
PORT = 3128
CONFIG = f"Port {PORT}\nListen 0.0.0.0\nTimeout 30\nMaxClients 20\nAllow 127.0.0.1\nAllow 192.168.122.0/24\nLogLevel Warning\n"
NOTE = "plain: text\n  with 'quotes', \"others\"\n\nand a blank line\n"
USER_DATA = """#cloud-config
hostname: {name}
write_files:
- content: {config}
  encoding: b64
  path: /etc/tinyproxy/tinyproxy.conf
  permissions: '0600'
- path: /etc/note
  content: |
    plain: text
      with 'quotes', "others"

    and a blank line
runcmd:
- [true]
"""
DOMAIN = """<domain type='{kind}'>
  <name>{name}</name>
  <memory unit='MiB'>128</memory>
  <vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <features><acpi/></features>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/><source file='{pool}/{name}.qcow2'/><target dev='vda' bus='virtio'/>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/><source file='{pool}/{name}.iso'/><target dev='vdb' bus='virtio'/><readonly/>
    </disk>
    <interface type='network'><source network='default'/><model type='virtio'/></interface>
    <serial type='pty'><log file='{logs}/{name}.console'/></serial>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
  </devices>
</domain>
"""


def virsh(*words: str) -> str:
    """Run virsh; return what it prints."""
    return subprocess.run(["virsh", "-q", *words], check=True, capture_output=True, text=True).stdout


def until(what: str, seconds: float, condition):
    """Wait until the condition returns something true; return that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.2)
    consoles = [path.read_text(errors="replace")[-3000:] for path in LOGS.glob("*.console")]
    raise SystemExit("\n".join([f"{what}: not within {seconds} s; the guest's console:", *consoles]))


def seed(path: pathlib.Path, texts: dict[str, str]) -> None:
    """Write a NoCloud seed."""
    iso = pycdlib.PyCdlib()
    iso.new(vol_ident="cidata", joliet=3, rock_ridge="1.09")
    for name, text in texts.items():
        data = text.encode()
        short = "/" + name.replace("-", "")[:8].upper() + ".;1"
        iso.add_fp(io.BytesIO(data), len(data), short, rr_name=name, joliet_path="/" + name)
    iso.write(str(path))
    iso.close()


def agent(name: str, command: str) -> dict | None:
    """Return the guest agent's answer, None while there is none."""
    done = subprocess.run(
        ["virsh", "-q", "qemu-agent-command", "--timeout", "5", name, command], check=False, capture_output=True, text=True
    )
    return json.loads(done.stdout)["return"] if done.returncode == 0 else None


def ask(proxy: str, url: str) -> dict | None:
    """Return the answer through the proxy, None while there is none."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy}))
    try:
        with opener.open(url, timeout=10) as reply:
            return json.load(reply)
    except OSError:
        return None


def leased(name: str) -> str | None:
    """Return the address that the guest of that host name has been given, None while it has none."""
    rows = [row.split() for row in virsh("net-dhcp-leases", "default").splitlines()]
    return next((row[4].partition("/")[0] for row in rows if len(row) > 5 and row[5] == name), None)


def main() -> None:
    """Boot, ask, switch off, clean up."""
    wish = json.load(sys.stdin)
    name = wish["name"]
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    image = direct.open(wish["image_url"], timeout=60).read()
    sums = direct.open(wish["checksum_url"], timeout=60).read().decode()
    if sums.split() != [hashlib.sha256(image).hexdigest(), wish["image_url"].rpartition("/")[2]]:
        raise SystemExit("the image is not what SHA256SUMS says")
    base = POOL / f"{name}-base.qcow2"
    base.write_bytes(image)
    overlay, iso = POOL / f"{name}.qcow2", POOL / f"{name}.iso"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(base), "-F", "qcow2", str(overlay), "1G"], check=True)
    config = base64.b64encode(CONFIG.encode()).decode()
    seed(iso, {"meta-data": f"instance-id: id-1\nlocal-hostname: {name}\n", "user-data": USER_DATA.format(name=name, config=config)})
    domain = DOMAIN.format(kind=wish["kind"], name=name, pool=POOL, logs=LOGS)
    subprocess.run(["virsh", "-q", "define", "/dev/stdin"], check=True, input=domain, text=True, stdout=subprocess.DEVNULL)
    began = time.monotonic()
    virsh("start", name)
    address = until("an address", 180, lambda: leased(name))
    addressed = time.monotonic() - began
    answer = until("an answer through the proxy", 60, lambda: ask(f"http://{address}:{PORT}", wish["ask_url"]))
    answered = time.monotonic() - began
    host = until("the guest agent", 30, lambda: agent(name, '{"execute": "guest-get-host-name"}'))
    handle = agent(name, '{"execute": "guest-file-open", "arguments": {"path": "/etc/note"}}')
    read = agent(name, json.dumps({"execute": "guest-file-read", "arguments": {"handle": handle}}))
    began = time.monotonic()
    virsh("shutdown", name, "--mode", "acpi")
    until("shut off", 30, lambda: virsh("domstate", name).strip() == "shut off")
    off = time.monotonic() - began
    virsh("undefine", name)
    console = (LOGS / f"{name}.console").read_text(errors="replace")
    for path in (base, overlay, iso):
        path.unlink()
    print(json.dumps({
        "address": address, "addressed": addressed, "answered": answered, "answer": answer, "off": off,
        "host_name": host["host-name"], "note": base64.b64decode(read["buf-b64"]).decode() == NOTE,
        "console": [line for line in console.splitlines() if line.startswith("micro:")],
    }))


if __name__ == "__main__":
    main()
