# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Domains of the fake, with libvirt's codes where it refuses."""

from __future__ import annotations

import errno
import posixpath

from ansible_collections.egress.kvm2.plugins.module_utils._host import classify
from ansible_collections.egress.kvm2.plugins.module_utils._policy.errors import Kvm2Error
from ansible_collections.egress.kvm2.plugins.module_utils._policy.model import Address, Domain
from ansible_collections.egress.kvm2.plugins.module_utils._policy.names import parse_uid
from ansible_collections.egress.kvm2.plugins.module_utils._policy.xml import parse, render

from . import kept_xml
from .calls import libvirt_error, recorded
from .machine import DomainState


class Guests:
    """The part of the Hypervisor interface about domains, over self.machine."""

    def _as_domain(self, state):
        hidden = state.unreadable is not None
        return Domain(
            name=state.name, uuid=state.uuid, state=state.state, reason=state.reason, active=state.active,
            persistent=state.config is not None, autostart=state.autostart, managed_save=state.managed_save,
            snapshots=state.snapshots, checkpoints=state.checkpoints, xml=None if hidden else state.config,
            live_xml=None if hidden else state.live, unreadable=state.unreadable, saved_xml=None if hidden else state.saved)

    def _look(self, state):
        """Each look at a guest that was asked to stop brings its end nearer."""
        if state.stopping is not None:
            state.stopping -= 1
            if state.stopping < 0:
                self.machine.power_off(state)
        return self._as_domain(state)

    @recorded
    def domains(self):
        seen = [self._look(state) for state in tuple(self.machine.domains.values())]
        return tuple(domain for domain in seen if domain.uuid in self.machine.domains)

    @recorded
    def domain(self, uuid):
        state = self.machine.domains.get(parse_uid(uuid))
        if state is None:
            return None
        domain = self._look(state)
        return domain if state.uuid in self.machine.domains else None

    @recorded
    def domain_by_name(self, name):
        for state in tuple(self.machine.domains.values()):
            if state.name == name:
                domain = self._look(state)
                return domain if state.uuid in self.machine.domains else None
        return None

    def _the_domain(self, uuid, act):
        state = self.machine.domains.get(parse_uid(uuid))
        if state is None:
            raise Kvm2Error(
                classify.CONFLICT, act, f"domain {uuid} on {self.uri}", "it has gone", "Something removed it; run again.",
                classify.NO_DOMAIN)
        return state

    # -- definitions

    @recorded
    def define(self, xml):
        tree = parse(xml)
        name = (tree.findtext("name") or "").strip()

        def refuse(code, cause):
            return libvirt_error("define", "define", f"domain {name} on {self.uri}", code, cause)

        machine = self.machine
        if not name:
            raise refuse(classify.XML_ERROR, "name is missing")
        os_type = tree.find("os/type")
        if tree.get("type") not in machine.virt_types:
            raise refuse(classify.INVALID_ARG, f"could not get preferred machine for /usr/bin/qemu-system-x86_64 type={tree.get('type')}")
        if os_type is not None and os_type.get("arch", machine.arch) != machine.arch:
            raise refuse(classify.CONFIG_UNSUPPORTED, f"no emulator for architecture {os_type.get('arch')}")
        if os_type is not None and os_type.get("machine", "pc") not in (*machine.machines, *machine.machines.values()):
            raise refuse(classify.XML_ERROR, f"unsupported machine type '{os_type.get('machine')}'")
        firmware = None if tree.find("os") is None else tree.find("os").get("firmware")
        if firmware is not None and firmware not in machine.firmwares:
            raise refuse(classify.OPERATION_FAILED, f"Unable to find '{firmware}' firmware that fits the configuration")
        uuid = parse_uid(kept_xml.keep(tree, machine).findtext("uuid").strip())
        if uuid is None:
            raise refuse(classify.XML_ERROR, f"malformed uuid {tree.findtext('uuid')}")
        tree.find("uuid").text = uuid
        for other in machine.domains.values():
            if other.name == name and other.uuid != uuid:
                raise refuse(classify.OPERATION_FAILED, f"domain '{name}' already exists with uuid {other.uuid}")
            if other.uuid == uuid and other.name != name:
                raise refuse(classify.OPERATION_FAILED, f"domain '{other.name}' is already defined with uuid {uuid}")
        state = machine.domains.get(uuid)
        if state is None:
            guest = machine.guest
            state = machine.domains[uuid] = DomainState(uuid, name, guest=type(guest)(**vars(guest)))
        state.config = render(tree)
        return self._as_domain(state)

    @recorded
    def set_metadata(self, uuid, prefix, namespace, xml):
        state = self.machine.domains.get(parse_uid(uuid))
        if state is None:
            return False

        def refuse(code, cause):
            return libvirt_error("metadata", "mark", f"domain {state.name} on {self.uri}", code, cause)

        # One element each: a node belongs to one tree.
        for which in ("config", "live"):
            text = getattr(state, which)
            if text is None:
                continue
            element = None if xml is None else kept_xml.with_prefix(xml, prefix, namespace)
            if xml is not None and element is None:
                raise refuse(classify.INTERNAL_ERROR, "failed to create a new XML namespace")
            setattr(state, which, kept_xml.set_metadata(text, namespace, element))
        return True

    @recorded
    def undefine(self, uuid):
        state = self.machine.domains.get(parse_uid(uuid))
        if state is None or state.config is None:
            return False
        state.config, state.autostart, state.managed_save, state.saved_files, state.saved = None, False, False, (), None
        state.snapshots = state.checkpoints = 0
        if not state.active:
            del self.machine.domains[state.uuid]
        return True

    @recorded
    def drop_managed_save(self, uuid):
        state = self.machine.domains.get(parse_uid(uuid))
        if state is None or not state.managed_save:
            return False
        state.managed_save, state.saved_files, state.saved = False, (), None
        return True

    @recorded
    def set_autostart(self, uuid, on):
        state = self._the_domain(uuid, "set the autostart of")
        if state.config is None:
            raise libvirt_error(
                "define", "set the autostart of", f"domain {state.name} on {self.uri}", classify.OPERATION_INVALID,
                "cannot set autostart for transient domain")
        state.autostart = bool(on)

    # -- power

    @recorded
    def start(self, uuid):
        self.boot(self._the_domain(uuid, "start"))

    def boot(self, state):
        """Start as libvirt does; also for a test in which something beside the code starts a guest."""
        machine = self.machine

        def refuse(code, cause, os_error=0):
            return libvirt_error("start", "start", f"domain {state.name} on {self.uri}", code, cause, os_error)

        if state.active:
            if state.state == "running":
                return
            raise refuse(classify.OPERATION_INVALID, "domain is already running")
        opened = {}
        for target, path, writable in kept_xml.disks(state.config, machine):
            file = None if path is None else machine.file(path)
            if file is None:
                raise refuse(classify.SYSTEM_ERROR, f"Cannot access storage file '{path}'", errno.ENOENT)
            below, folder = file, path
            while below.backing[0] is not None:
                folder = posixpath.join(posixpath.dirname(folder), below.backing[0])
                below = machine.file(folder)
                if below is None:
                    raise refuse(classify.SYSTEM_ERROR, f"Cannot access backing file '{folder}'", errno.ENOENT)
            if writable and machine.is_locked(file):
                raise refuse(classify.INTERNAL_ERROR, 'process exited while connecting to monitor: Failed to get "write" lock')
            opened[target] = (file, writable)
        for interface in parse(state.config).findall("devices/interface"):
            self._check_interface(interface, refuse)
        if state.managed_save and state.saved_files != kept_xml.sources(state.config, machine):
            raise RuntimeError(f"domain {state.name} would resume its saved memory over other disks: that corrupts its data")
        machine.started += 1
        state.number = machine.started
        # A saved guest goes on by the definition that it was saved with, whatever was defined since.
        state.live, state.state = state.saved or kept_xml.running(state.config, machine, state.number), "running"
        state.reason = "restored" if state.managed_save else "booted"
        state.open_files, state.stopping, state.asked = opened, None, 0
        state.managed_save, state.saved_files, state.saved = False, (), None
        if state.guest.writes:
            machine.guest_writes(state.uuid)

    def _check_interface(self, interface, refuse):
        source = interface.find("source")
        if interface.get("type") == "network":
            network = self.machine.networks.get(source.get("network"))
            if network is None:
                raise refuse(classify.NO_NETWORK, f"Network not found: no network with matching name '{source.get('network')}'")
            if not network.active:
                raise refuse(classify.OPERATION_INVALID, f"network '{network.name}' is not active")
        elif interface.get("type") == "bridge" and source.get("bridge") not in self.machine.bridges:
            raise refuse(classify.SYSTEM_ERROR, f"Cannot get interface MTU on '{source.get('bridge')}': No such device", errno.ENODEV)

    @recorded
    def resume(self, uuid):
        state = self._the_domain(uuid, "resume")
        if state.state == "running":
            return
        if state.state != "paused":
            raise libvirt_error("stop", "resume", f"domain {state.name} on {self.uri}", classify.OPERATION_INVALID, "domain is not running")
        state.state, state.reason = "running", "unpaused"

    @recorded
    def shutdown(self, uuid):
        state = self.machine.domains.get(parse_uid(uuid))
        if state is None or not state.active:
            return False
        if state.state == "paused":
            raise libvirt_error(
                "stop", "shut down", f"domain {state.name} on {self.uri}", classify.OPERATION_INVALID, "domain is not running")
        if state.guest.stops == "at once":
            self.machine.power_off(state)
        elif state.guest.stops != "never" and state.stopping is None:
            state.stopping = state.guest.stops
        return True

    @recorded
    def destroy(self, uuid):
        state = self.machine.domains.get(parse_uid(uuid))
        if state is None or not state.active:
            return False
        self.machine.power_off(state, "destroyed")
        return True

    # -- running guests

    @recorded
    def block_resize(self, uuid, path, capacity):
        state = self._the_domain(uuid, "grow the disk of")

        def refuse(code, cause):
            return libvirt_error("resize-disk", "grow the disk of", f"domain {state.name} on {self.uri}", code, cause)

        if not state.active:
            raise refuse(classify.OPERATION_INVALID, "domain is not running")
        for target, source, _writable in kept_xml.disks(state.live, self.machine):
            if path in (source, target):
                self._grow(state.open_files[target][0], capacity)
                return
        raise refuse(classify.INVALID_ARG, f"invalid path: {path}")

    @recorded
    def addresses(self, uuid, source):
        state = self.machine.domains.get(parse_uid(uuid))
        if state is None or not state.active:
            return ()
        macs = [mac.get("address") for mac in parse(state.live).findall("devices/interface/mac")]
        if source != "lease":
            reported = state.guest.agent if source == "agent" else state.guest.arp
            return tuple(Address(mac or macs[0], address, 24, source) for mac, address in reported or ())
        state.asked += 1
        if state.asked <= state.guest.polls:
            return ()
        return tuple(Address(mac, address, 24, source) for mac, address in zip(macs, state.guest.addresses, strict=False))

    @recorded
    def why_no_addresses(self, uuid, source):
        return self.machine.guest.unreadable.get(source, "")

    @recorded
    def leases(self):
        return dict(self.machine.leases)

    @recorded
    def agent_answers(self, uuid):
        state = self.machine.domains.get(parse_uid(uuid))
        return state is not None and state.active and state.guest.agent is not None

    @recorded
    def bound_agent(self, uuid, seconds):
        """An agent of the fake answers at once or not at all."""

    @recorded
    def console_tail(self, path, length):
        data = self.machine.consoles.get(path) if self.is_local() else None
        return None if data is None else (data[-length:], len(data) <= length)

    def removes_console_logs(self):
        return self.is_local()

    # No call to libvirt, and a file that no protocol leans on: so it is no step that other runs may come between.
    def delete_console_log(self, path):
        return self.is_local() and self.machine.consoles.pop(path, None) is not None

    @recorded
    def nwfilters(self):
        return self.machine.nwfilters
