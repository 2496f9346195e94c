# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Part of the harness's self-test, run on a hypervisor: boot a guest with a seed, ask through its proxy, switch it off.

Reads one JSON object from standard input: name, kind (of the domain), image_url, checksum_url, ask_url, engine, address (one of its own with
the length of its prefix; empty for one by DHCP), firmware, memory (MiB), ssh (whether its default user logs in), patience (seconds until an
answer). Writes one with what was seen.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pycdlib

POOL = pathlib.Path("/var/lib/libvirt/images")
LOGS = pathlib.Path("/var/log/libvirt/qemu")
USER, PASSWORD, WRONG = "probe-user", "right", "wrong"
HASH = "$6$selftest$nKT.dntFYAbNE4wp9P6P96TbsiQZCnn/IdZ/YiWkW6gCFIe786870OsyElRIYDTGuootHG1QSLrBbjRe669KP."  # of PASSWORD
NOTE = "plain: text\n  with 'quotes', \"others\"\n\nand a blank line\n"
NET = "192.168.122.0/24"
# Of each engine: service, port, files (path, owner, mode, content).
ENGINES = {
    "tinyproxy": ("tinyproxy", 3128, [("/etc/tinyproxy/tinyproxy.conf", "root:tinyproxy", "0640", f"""User tinyproxy
Group tinyproxy
Port 3128
Timeout 30
MaxClients 20
Allow 127.0.0.1
Allow {NET}
BasicAuth {USER} {PASSWORD}
PidFile "/run/tinyproxy/tinyproxy.pid"
""")]),
    "squid": ("squid", 3128, [("/etc/squid/squid.conf", "root:root", "0644", f"""http_port 3128
visible_hostname proxy
cache deny all
shutdown_lifetime 1 second
pinger_enable off
access_log stdio:/var/log/squid/access.log
auth_param basic program /usr/lib/squid/basic_ncsa_auth /etc/squid/passwords
auth_param basic children 2 startup=1 idle=1
acl clients src {NET}
acl users proxy_auth REQUIRED
http_access deny !clients
http_access allow users
http_access deny all
"""), ("/etc/squid/passwords", "proxy:proxy", "0600", f"{USER}:{HASH}\n")]),
    "dante": ("danted", 1080, [("/etc/danted.conf", "root:root", "0644", f"""logoutput: stderr
internal: 0.0.0.0 port = 1080
external: eth0
clientmethod: none
socksmethod: username
user.privileged: root
user.unprivileged: nobody
client pass {{
    from: {NET} to: 0/0
}}
socks pass {{
    from: {NET} to: 0/0
    command: connect
}}
""")]),
}
DOMAIN = """<domain type='{kind}'>
  <name>{name}</name>
  <memory unit='MiB'>{memory}</memory>
  <vcpu>1</vcpu>
  <os{firmware}><type arch='x86_64' machine='q35'>hvm</type>{loader}</os>
  <features><acpi/></features>
  <cpu mode='maximum'/>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/><source file='{pool}/{name}.qcow2'/><target dev='vda' bus='virtio'/>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/><source file='{pool}/{name}.iso'/><target dev='vdb' bus='virtio'/><readonly/>
    </disk>
    <interface type='network'><mac address='{mac}'/><source network='default'/><model type='virtio'/></interface>
    <serial type='pty'><log file='{logs}/{name}.console'/></serial>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
  </devices>
</domain>
"""
# The guests' boot loader is not signed; without <nvram/> some daemons take a firmware that has none.
LOADER = "<firmware><feature enabled='no' name='secure-boot'/></firmware><nvram/>"


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


def user_data(wish: dict, key: str) -> str:
    """Return the user data: the engine's files and account, a key for the default user, and a text of several lines as YAML has it."""
    service, _port, files = ENGINES[wish["engine"]]
    lines = ["#cloud-config", f"hostname: {wish['name']}", "ssh_authorized_keys:", f"- {key}"]
    if wish["engine"] == "dante":
        lines += ["users:", "- default", f"- name: {USER}", "  lock_passwd: false", f"  passwd: {HASH}"]
    lines.append("write_files:")
    for path, owner, mode, text in files:
        content = base64.b64encode(text.encode()).decode()
        lines += [f"- content: {content}", "  encoding: b64", f"  path: {path}", f"  owner: {owner}", f"  permissions: '{mode}'"]
    lines += ["- path: /etc/note", "  content: |", *(f"    {line}".rstrip() for line in NOTE.splitlines())]
    lines += ["runcmd:", f"- [sh, -c, 'systemctl --no-reload enable {service} && systemctl restart {service}']"]
    return "\n".join(lines) + "\n"


def mac_of(name: str) -> str:
    """Return the MAC address of the guest of that name."""
    return "52:54:00:" + ":".join(f"{byte:02x}" for byte in hashlib.sha256(name.encode()).digest()[:3])


def network_config(name: str, address: str) -> str:
    """Return network-config, version 2: that address, or DHCP where it is empty."""
    entry: dict = {"match": {"macaddress": mac_of(name)}, "set-name": "eth0"}
    if address:
        entry.update({
            "addresses": [address], "routes": [{"to": "0.0.0.0/0", "via": "192.168.122.1"}],
            "nameservers": {"addresses": ["192.168.122.1"], "search": ["example.org"]}})
    else:
        entry.update({"dhcp4": True, "dhcp-identifier": "mac"})
    return json.dumps({"version": 2, "ethernets": {"eth0": entry}})


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


def agent(name: str, command: str, **arguments: object) -> dict | list | int | None:
    """Return the guest agent's answer, None while there is none."""
    text = json.dumps({"execute": command, "arguments": arguments})
    done = subprocess.run(["virsh", "-q", "qemu-agent-command", "--timeout", "5", name, text], check=False, capture_output=True, text=True)
    return json.loads(done.stdout)["return"] if done.returncode == 0 else None


def ask(engine: str, address: str, password: str, url: str) -> dict | str | None:
    """Return the answer through the proxy, "refused" where it wants another password, None while there is none."""
    port = ENGINES[engine][1]
    try:
        return (ask_socks if engine == "dante" else ask_http)(address, port, password, url)
    except OSError:
        return None


def ask_http(address: str, port: int, password: str, url: str) -> dict | str:
    """The same with an HTTP proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": f"http://{USER}:{password}@{address}:{port}"}))
    try:
        with opener.open(url, timeout=10) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        if error.code in (401, 407):
            return "refused"
        raise


def ask_socks(address: str, port: int, password: str, url: str) -> dict | str:
    """The same with a SOCKS5 proxy."""
    host, _slash, path = url.removeprefix("http://").partition("/")
    server, server_port = host.split(":")
    with socket.create_connection((address, port), timeout=10) as link:
        reply = link.makefile("rb")
        link.sendall(bytes([5, 1, 2]))
        if reply.read(2) != bytes([5, 2]):
            raise ConnectionError("no SOCKS5 with passwords")
        link.sendall(bytes([1, len(USER)]) + USER.encode() + bytes([len(password)]) + password.encode())
        verdict = reply.read(2)
        if len(verdict) == 2 and verdict[1]:
            return "refused"
        link.sendall(bytes([5, 1, 0, 1]) + socket.inet_aton(server) + int(server_port).to_bytes(2, "big"))
        if reply.read(10)[:2] != bytes([5, 0]):
            raise ConnectionError("the proxy did not connect")
        link.sendall(f"GET /{path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        return json.loads(reply.read().partition(b"\r\n\r\n")[2])


def leased(name: str) -> str | None:
    """Return the address that the guest of that host name has been given, None while it has none."""
    rows = [row.split() for row in virsh("net-dhcp-leases", "default").splitlines()]
    return next((row[4].partition("/")[0] for row in rows if len(row) > 5 and row[5] == name), None)


def fetched(wish: dict) -> bytes:
    """Return the image, which is what SHA256SUMS says."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    image = direct.open(wish["image_url"], timeout=60).read()
    sums = direct.open(wish["checksum_url"], timeout=60).read().decode().splitlines()
    if f"{hashlib.sha256(image).hexdigest()}  {wish['image_url'].rpartition('/')[2]}" not in sums:
        raise SystemExit("the image is not what SHA256SUMS says")
    return image


def by_ssh(key: pathlib.Path, address: str) -> str:
    """Return what the guest's default user sees of itself and of cloud-init, by ssh with a key; empty where it cannot log in."""
    options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=60"]
    command = "id -un; cloud-init status --wait; test -d /sys/firmware/efi && echo efi || echo bios; cat /proc/uptime; cat /etc/resolv.conf"
    done = subprocess.run(
        ["ssh", "-F", "none", "-i", str(key), "-o", "BatchMode=yes", *options, f"debian@{address}", command],
        check=False, capture_output=True, text=True)
    return done.stdout


def main() -> None:
    """Boot, ask, switch off, clean up."""
    wish = json.load(sys.stdin)
    name, engine = wish["name"], wish["engine"]
    base, overlay, iso, key = (POOL / f"{name}{suffix}" for suffix in ("-base.qcow2", ".qcow2", ".iso", ".key"))
    base.write_bytes(fetched(wish))
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(base), "-F", "qcow2", str(overlay), "4G"], check=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = key.with_name(key.name + ".pub")
    seed(iso, {
        "meta-data": f"instance-id: id-1\nlocal-hostname: {name}\n", "user-data": user_data(wish, public.read_text().strip()),
        "network-config": network_config(name, wish["address"])})
    firmware, loader = (" firmware='efi'", LOADER) if wish["firmware"] == "efi" else ("", "")
    domain = DOMAIN.format(
        kind=wish["kind"], name=name, memory=wish["memory"], firmware=firmware, loader=loader, pool=POOL, logs=LOGS, mac=mac_of(name))
    subprocess.run(["virsh", "-q", "define", "/dev/stdin"], check=True, input=domain, text=True, stdout=subprocess.DEVNULL)
    began = time.monotonic()
    virsh("start", name)
    address = wish["address"].partition("/")[0] or until("an address", wish["patience"], lambda: leased(name))
    addressed = time.monotonic() - began
    answer = until("an answer through the proxy", wish["patience"], lambda: ask(engine, address, PASSWORD, wish["ask_url"]))
    answered = time.monotonic() - began
    wrong = ask(engine, address, WRONG, wish["ask_url"])
    host = until("the guest agent", 60, lambda: agent(name, "guest-get-host-name"))
    handle = agent(name, "guest-file-open", path="/etc/note")
    read = agent(name, "guest-file-read", handle=handle)
    disks = agent(name, "guest-get-fsinfo") or []
    login = by_ssh(key, address) if wish["ssh"] else ""
    began = time.monotonic()
    virsh("shutdown", name, "--mode", "acpi")
    until("shut off", 120, lambda: virsh("domstate", name).strip() == "shut off")
    off = time.monotonic() - began
    virsh("undefine", name, "--nvram")
    console = (LOGS / f"{name}.console").read_text(errors="replace")
    for path in (base, overlay, iso, key, public):
        path.unlink()
    print(json.dumps({
        "address": address, "addressed": addressed, "answered": answered, "answer": answer, "wrong": wrong, "off": off,
        "host_name": host["host-name"], "note": base64.b64decode(read["buf-b64"]).decode() == NOTE, "login": login,
        "root": next((one.get("total-bytes") for one in disks if one["mountpoint"] == "/"), None),
        "console": [line for line in console.splitlines() if line.startswith("micro:")],
    }))


if __name__ == "__main__":
    main()
