#!/usr/bin/python
# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kvm2_domain
short_description: Keep the domains of a fleet's instances as declared
version_added: 0.1.0
author:
  - egress.kvm2 contributors (@egress-kvm2)
description:
  - Makes sure that each of O(instances) has a domain that carries the fleet's ownership mark, is defined over its overlay, has its
    cloud-init seed, and is in the wanted state. Waits for all guests at the same time.
  - The UUID of a domain is the C(uid) of its instance and its name is C(<fleet>.<name>). A domain of that name or UUID that does not carry
    exactly this mark is never stopped, changed or deleted. It is a failure of the kind V(conflict) that names both.
  - An update redefines the domain under the same UUID. MAC addresses never change unless they are given. One that another domain of the
    hypervisor has is refused.
  - Works on a whole set in one call. The failure of one instance does not stop the others; the module then fails at the end with the
    outcome of each.
extends_documentation_fragment:
  - egress.kvm2.connection
  - egress.kvm2.attributes
requirements:
  - pycdlib (Debian package C(python3-pycdlib))
  - PyYAML (Debian package C(python3-yaml)), only with O(meta_data)
notes:
  - O(user_data), O(network_config) and O(meta_data) are strings, so that their content can be kept out of logs. The filter
    P(egress.kvm2.cloud_config#filter) renders a dictionary.
options:
  fleet:
    description:
      - The name of the fleet. Lower-case letters, digits and dashes, at most 32 characters.
    type: str
    required: true
  host:
    description:
      - The hypervisor's name in the fleet definition. It is written into the mark; M(egress.kvm2.kvm2_gc) collects by it.
    type: str
    default: ""
  pool:
    description:
      - The storage pool of overlays and seeds, which has to be active and of the type C(dir), C(fs) or C(netfs).
    type: str
    default: default
  memory:
    description:
      - The guest's memory, as a size with a unit such as V(512MiB). How much of it the balloon gives the guest (C(virsh setmem)) is left to the
        operator.
      - Needed here or for each instance, unless O(state=absent).
    type: str
  vcpus:
    description:
      - The number of virtual processors.
    type: int
    default: 1
  cpu_mode:
    description:
      - The processor model that the guest sees, as libvirt names the modes. By default V(host-model) where the guest runs under KVM, and
        QEMU's own default where it is emulated. V(host-passthrough) becomes V(maximum) for a guest that is emulated, as there is no processor to
        pass through then; RV(instances[].cpu_mode) says which one it is.
    type: str
    choices: [host-model, host-passthrough, maximum]
  machine:
    description:
      - The machine type, such as V(q35) or V(pc). By default the one that the hypervisor takes for its architecture.
    type: str
  firmware:
    description:
      - The firmware that the guest boots by. With V(efi) it is one without secure boot, so that it starts images that nobody signed too; its
        variables are kept in a file of libvirt's that goes together with the instance.
    type: str
    choices: [bios, efi]
    default: bios
  virt_type:
    description:
      - V(kvm) and V(qemu) demand acceleration and emulation. V(auto) takes KVM where libvirt says that guests can have it, and
        RV(instances[].virt_type) says what was chosen. An instance that is there stays what it is.
    type: str
    choices: [auto, kvm, qemu]
    default: auto
  networks:
    description:
      - The guest's interfaces, in order. Each is on a libvirt network or on a bridge of the hypervisor.
      - Needed here or for each instance, unless O(state=absent).
      - A VLAN, an MTU or a filter that somebody set by hand is left alone where none was ever asked for on any interface of the instance.
    type: list
    elements: dict
    suboptions:
      network:
        description:
          - The name of a libvirt network. Excludes O(networks[].bridge).
        type: str
      bridge:
        description:
          - The name of a bridge. Excludes O(networks[].network).
        type: str
      mac:
        description:
          - The MAC address. By default it is derived from the instance's UUID and the number of the interface, and so never changes.
        type: str
      model:
        description:
          - The model of the interface.
        type: str
        default: virtio
      vlan:
        description:
          - The tag of the VLAN that the interface is in, V(1) to V(4094). On a bridge of the kernel it takes libvirt 11.0 or newer and a bridge that
            filters VLANs; on a network, one that can tag frames, such as over an Open vSwitch.
        type: int
      mtu:
        description:
          - The largest packet in bytes, V(68) to V(65535). By default that of the network or bridge.
        type: int
      nwfilter:
        description:
          - The name of a libvirt network filter that the interface's traffic passes. V(clean-traffic) keeps a guest from using the MAC and IPv4
            addresses of others, and lets no IPv6 through.
        type: str
      nwfilter_parameters:
        description:
          - The filter's parameters, such as C(IP) for the addresses that the guest may use. A value is a text or a list of them.
        type: dict
  user_data:
    description:
      - The cloud-init user data, as text that begins with C(#cloud-config), C(#!) or another of the lines that cloud-init knows, or as a MIME
        message. What is compressed with gzip is given in base64. It is not shown in any output.
    type: str
  network_config:
    description:
      - The cloud-init network configuration, as text. By default each interface is matched by its MAC address and asks a DHCP server.
    type: str
  meta_data:
    description:
      - Additional cloud-init metadata, as YAML text. C(instance-id) and C(local-hostname) are always set by the module.
      - It is put behind these two and checked together with them, which needs PyYAML where the module runs (Debian package C(python3-yaml)).
    type: str
  autostart:
    description:
      - Whether the guest is started together with the hypervisor. A proxy should be back after its host was restarted, so it is by default.
    type: bool
    default: true
  console_log:
    description:
      - Whether the guest's serial console is logged to a file on the hypervisor, RV(instances[].console_log). The file goes on from one start
        to the next, libvirt's log daemon keeps it and three older ones at 2 MiB each, and it is removed together with the instance where the
        module runs on the hypervisor as root; elsewhere the removal says which file is left.
      - A running guest gets or loses its log with its next start; that alone restarts nothing. A log that somebody set to another file by hand
        is left alone.
      - With a O(uri) of a user's own daemon, C(/session), nothing is logged whatever this option says, as that daemon may not write there.
    type: bool
    default: true
  on_crash:
    description:
      - What happens to a guest whose kernel crashes. With anything but V(destroy) an x86 guest gets a device that tells of its crash, for which
        its kernel needs the driver C(pvpanic). V(preserve) keeps it as it is, for somebody to look at; the others write its memory to a file
        first, or start it again, or both.
      - Without this option a new guest gets V(destroy), and what somebody set by hand is left alone. Where the option was given once and
        is not any more, it is V(destroy) again.
    type: str
    choices: [destroy, restart, preserve, coredump-destroy, coredump-restart]
  watchdog:
    description:
      - Gives the guest a watchdog device, and says what happens when the guest does not reset it in time. It counts only while something in
        the guest opens it, such as systemd with C(RuntimeWatchdogSec). V(none) is none, also where O(watchdog) gives one to all others.
      - Without this option a watchdog that somebody added by hand is left alone.
    type: str
    choices: [none, reset, poweroff, shutdown, pause]
  cpu_tuning:
    description:
      - Which share of the hypervisor's processors the guest gets. What is left out here is not limited, and left alone where somebody set it by
        hand.
    type: dict
    suboptions:
      shares:
        description:
          - The weight against other guests where processors are short, V(2) to V(10000). A guest with twice the shares gets twice the time.
        type: int
      quota:
        description:
          - The most that each of the guest's processors may use of one of the hypervisor's, in percent.
        type: int
      pin:
        description:
          - The hypervisor's processors that the guest runs on, such as V(0-3,6).
        type: str
  io_tuning:
    description:
      - How much the guest may read from and write to its disk in a second. What is left out here is not limited. Where the whole option is left
        out, limits that somebody set by hand are left alone.
      - A total excludes the limits for reading and writing of the same kind.
    type: dict
    suboptions:
      total_bytes:
        description:
          - Reads and writes together, as a size with a unit such as V(50MiB).
        type: str
      read_bytes:
        description:
          - Reads, as a size with a unit.
        type: str
      write_bytes:
        description:
          - Writes, as a size with a unit.
        type: str
      total_iops:
        description:
          - Reads and writes together, as a number of requests.
        type: int
      read_iops:
        description:
          - Reads, as a number of requests.
        type: int
      write_iops:
        description:
          - Writes, as a number of requests.
        type: int
  xml_extra:
    description:
      - Further devices, each as the XML that libvirt takes for it. One of C(channel), C(controller), C(crypto), C(disk), C(filesystem),
        C(hostdev), C(input), C(interface), C(parallel), C(redirdev), C(shmem), C(smartcard), C(sound), C(tpm), C(video) and C(vsock).
      - They are known again by an alias that the module gives them, which follows from the text. So a device whose text changes is taken out
        and put in anew, one that is not listed any more goes, and what libvirt or somebody adds to it is no difference.
      - A disk needs a target other than C(vda) and C(vdb), an interface a MAC address that no other one has.
        What such a disk holds is nobody's to delete.
    type: list
    elements: str
  instances:
    description:
      - The instances. An empty list does nothing. An option that is given here counts for that instance in the place of the module's
        own option of that name.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description:
          - The name of the instance. Lower-case letters, digits and dashes, at most 32 characters.
        type: str
        required: true
      uid:
        description:
          - The UUID of the instance. By default it is derived from O(fleet) and the name.
        type: str
      overlay:
        description:
          - The volume name of the overlay, as RV(egress.kvm2.kvm2_overlay#module:overlays[].overlay) returns it.
          - By default the one that the domain has; where there is no domain, a young one that was made for it and never written to.
          - A domain with another overlay takes this one only with O(on_change=replace).
        type: str
      hold:
        description:
          - O(hold) for this instance alone.
        type: str
      memory:
        description:
          - O(memory) for this instance alone.
        type: str
      vcpus:
        description:
          - O(vcpus) for this instance alone.
        type: int
      cpu_mode:
        description:
          - O(cpu_mode) for this instance alone.
        type: str
        choices: [host-model, host-passthrough, maximum]
      machine:
        description:
          - O(machine) for this instance alone.
        type: str
      firmware:
        description:
          - O(firmware) for this instance alone.
        type: str
        choices: [bios, efi]
      virt_type:
        description:
          - O(virt_type) for this instance alone.
        type: str
        choices: [auto, kvm, qemu]
      networks:
        description:
          - O(networks) for this instance alone.
        type: list
        elements: dict
        suboptions:
          network:
            description:
              - The name of a libvirt network. Excludes O(instances[].networks[].bridge).
            type: str
          bridge:
            description:
              - The name of a bridge. Excludes O(instances[].networks[].network).
            type: str
          mac:
            description:
              - The MAC address. By default it is derived from the instance's UUID and the number of the interface, and so never changes.
            type: str
          model:
            description:
              - The model of the interface.
            type: str
            default: virtio
          vlan:
            description:
              - The tag of the VLAN that the interface is in, V(1) to V(4094). On a bridge of the kernel it takes libvirt 11.0 or newer and a bridge that
                filters VLANs; on a network, one that can tag frames, such as over an Open vSwitch.
            type: int
          mtu:
            description:
              - The largest packet in bytes, V(68) to V(65535). By default that of the network or bridge.
            type: int
          nwfilter:
            description:
              - The name of a libvirt network filter that the interface's traffic passes. V(clean-traffic) keeps a guest from using the MAC and IPv4
                addresses of others, and lets no IPv6 through.
            type: str
          nwfilter_parameters:
            description:
              - The filter's parameters, such as C(IP) for the addresses that the guest may use. A value is a text or a list of them.
            type: dict
      user_data:
        description:
          - O(user_data) for this instance alone.
        type: str
      network_config:
        description:
          - O(network_config) for this instance alone.
        type: str
      meta_data:
        description:
          - O(meta_data) for this instance alone.
        type: str
      autostart:
        description:
          - O(autostart) for this instance alone.
        type: bool
      console_log:
        description:
          - O(console_log) for this instance alone.
        type: bool
      on_crash:
        description:
          - O(on_crash) for this instance alone.
        type: str
        choices: [destroy, restart, preserve, coredump-destroy, coredump-restart]
      watchdog:
        description:
          - O(watchdog) for this instance alone.
        type: str
        choices: [none, reset, poweroff, shutdown, pause]
      cpu_tuning:
        description:
          - O(cpu_tuning) for this instance alone.
        type: dict
        suboptions:
          shares:
            description:
              - As O(cpu_tuning.shares).
            type: int
          quota:
            description:
              - As O(cpu_tuning.quota).
            type: int
          pin:
            description:
              - As O(cpu_tuning.pin).
            type: str
      io_tuning:
        description:
          - O(io_tuning) for this instance alone.
        type: dict
        suboptions:
          total_bytes:
            description:
              - As O(io_tuning.total_bytes).
            type: str
          read_bytes:
            description:
              - As O(io_tuning.read_bytes).
            type: str
          write_bytes:
            description:
              - As O(io_tuning.write_bytes).
            type: str
          total_iops:
            description:
              - As O(io_tuning.total_iops).
            type: int
          read_iops:
            description:
              - As O(io_tuning.read_iops).
            type: int
          write_iops:
            description:
              - As O(io_tuning.write_iops).
            type: int
      xml_extra:
        description:
          - O(xml_extra) for this instance alone.
        type: list
        elements: str
  state:
    description:
      - V(running) defines what is missing, starts what is off and resumes what somebody paused.
      - V(stopped) defines what is missing and stops what runs, in the way that O(stop) tells.
      - V(defined) defines what is missing and leaves the power state alone.
      - V(absent) stops and deletes the domain together with its overlay, seed, managed save, snapshots, checkpoints, NVRAM, TPM state and console log.
        What of these was dropped is said in the actions. Only volumes that carry the instance's C(uid) in their names are deleted; whatever
        else was attached to the domain stays. An external snapshot, a file of an operator's own over the overlay, stays too, so it has to be
        merged into the overlay first. Options that describe the present state are allowed and do nothing. What is gone already is a success.
      - A deletion that was interrupted is finished first by all states but V(absent), and the instance is then created anew.
    type: str
    choices: [running, stopped, defined, absent]
    default: running
  wait:
    description:
      - What to wait for with O(state=running).
    type: dict
    suboptions:
      for:
        description:
          - V(none) does not wait. V(running) waits until the domain runs. V(address) waits until a guest has an address that is
            neither loopback nor link-local, for which each instance needs one of O(networks). V(agent) waits until the guest's agent answers.
          - Of a guest that this run starts, a lease that was there before the start counts once the guest has asked for it anew, or where it never
            runs out. Of one that runs already each lease counts that has not run out.
          - A guest that is off, crashed, asleep or paused is not waited for, unless libvirt has paused it for a moment. The failure names
            its state, what each source reported, and the last lines of its console where the module can read its log. So whatever a guest
            prints there, secrets too, is in the output of Ansible. Where an earlier log of the same C(uid) was left, its lines may be among them.
        type: str
        choices: [none, running, address, agent]
        default: running
      timeout:
        description:
          - How long to wait at most, as a duration. All guests are waited for at the same time.
        type: str
        default: 5m
      source:
        description:
          - Where addresses are read from. V(lease) asks the DHCP server of a libvirt network, V(agent) the guest's agent, V(arp) the
            hypervisor's neighbour table. V(auto) asks those that can know.
          - The neighbour table tells IPv4 addresses only, and only of guests that the hypervisor itself has talked to. Where the module runs on
            the hypervisor, the kernel's own table is read beside libvirt's answer, since libvirt reads no more than the first 50 or so
            neighbours, and libvirt 9.0 none at all under a recent kernel such as Linux 6.18 (C(wrong nlmsg len)). Over a remote O(uri)
            libvirt's answer is all there is; use V(agent) there.
        type: str
        choices: [auto, lease, agent, arp]
        default: auto
      family:
        description:
          - Which kind of address counts.
        type: str
        choices: [ipv4, ipv6]
        default: ipv4
  stop:
    description:
      - How a guest is stopped.
    type: dict
    suboptions:
      mode:
        description:
          - V(graceful) asks the guest to shut down and powers it off where it has not within O(stop.timeout). V(force) powers it off at
            once. A guest that is paused or stuck is powered off.
        type: str
        choices: [graceful, force]
        default: graceful
      timeout:
        description:
          - How long a guest may take to shut down, as a duration.
        type: str
        default: 60s
  on_change:
    description:
      - What may happen to an instance that is there and differs from what is declared.
      - V(report) changes nothing and lists the drift.
      - V(redefine) lets the persistent definition follow. A running or saved guest goes on, and what waits for its restart is listed as
        pending. A seed that was detached comes back. It is the one that the guest has or, for a guest that is off, the only one of the instance
        that is left beside its overlay, where it is the one that is asked for. A guest that is off is not started without its seed.
      - V(restart) also restarts where something is pending, and drops a managed save for it. A seed that differs, has vanished or
        cannot come back is made anew under another name and with another C(instance-id), so that cloud-init runs again over the same disk.
      - V(replace) also takes a fresh overlay, together with a fresh seed, where overlay or seed need it. The overlay is the one given as
        O(instances[].overlay), as M(egress.kvm2.kvm2_overlay) with O(egress.kvm2.kvm2_overlay#module:replace=true) returns it. Where only
        the seed differs and no other overlay is given, a new one is made on the same base. What the guest had written is gone with the
        former overlay, which is left to M(egress.kvm2.kvm2_gc) together with the former seed.
      - Everything is made and looked at before a guest is stopped. A guest is stopped as O(stop) tells and started again unless
        O(state=stopped); with O(state=defined) it is started again if it ran or was saved.
    type: str
    choices: [report, redefine, restart, replace]
    default: redefine
  max_parallel:
    description:
      - How many instances are restarted or replaced at the same time, as a number or as a percentage of O(instances), at least one. The next
        ones follow when these are up as O(wait) tells.
      - After a failure of any instance the rest is left as it is, and is listed as failed with the state it is in.
    type: str
    default: "1"
  max_requests:
    description:
      - For how many instances the daemon is asked at the same time to start a guest or to store a seed, from 1 to 64. With 1 it is asked for one after
        the other.
      - It works on as many requests of one client as its C(max_client_requests) tells, 5 by default; more of them wait there.
      - The result does not depend on it. Waits for guests that start or stop always overlap.
    type: int
    default: 4
  hold:
    description:
      - Why the instances must not be restarted, replaced, removed or collected. It is written into the mark, and is the reason that all of
        these are refused with. An empty text lifts the hold; without this option it stays as it is.
      - A hold is set and lifted before everything else. With O(state=absent) this option does nothing, as a removal does not lift a hold.
    type: str
seealso:
  - module: egress.kvm2.kvm2_overlay
  - module: egress.kvm2.kvm2_gc
"""

EXAMPLES = r"""
- name: Keep two proxies running and wait for their addresses
  egress.kvm2.kvm2_domain:
    fleet: edge
    host: hv1
    memory: 512MiB
    networks:
      - network: default
    user_data: "{{ {'packages': ['tinyproxy']} | egress.kvm2.cloud_config }}"
    wait:
      for: address
      timeout: 5m
    instances:
      - name: proxy-01
      - name: proxy-02
        memory: 1GiB
  register: proxies

- name: Say where they are
  ansible.builtin.debug:
    msg: "{{ dict(proxies.instances | map(attribute='name') | zip(proxies.instances | map(attribute='primary_address'))) }}"

- name: One with limits, a watchdog, and a filter against spoofed addresses
  egress.kvm2.kvm2_domain:
    fleet: edge
    memory: 512MiB
    networks:
      - network: default
        nwfilter: clean-traffic
        nwfilter_parameters:
          IP: 192.168.122.50
    watchdog: reset
    on_crash: restart
    cpu_tuning:
      quota: 50
    io_tuning:
      total_bytes: 50MiB
      total_iops: 500
    instances:
      - name: proxy-03

- name: Stop one of them, at once
  egress.kvm2.kvm2_domain:
    fleet: edge
    memory: 1GiB
    networks:
      - network: default
    state: stopped
    stop:
      mode: force
    instances:
      - name: proxy-02

- name: Give them more memory, restarting one after the other, each once the one before has its address
  egress.kvm2.kvm2_domain:
    fleet: edge
    memory: 2GiB
    networks:
      - network: default
    on_change: restart
    wait:
      for: address
    instances:
      - name: proxy-01
      - name: proxy-02

- name: Keep one of them as it is, whatever comes
  egress.kvm2.kvm2_domain:
    fleet: edge
    memory: 2GiB
    networks:
      - network: default
    state: defined
    on_change: report
    hold: forensics, ask the security team
    instances:
      - name: proxy-01

- name: Prepare overlays on a newer image
  egress.kvm2.kvm2_overlay:
    fleet: edge
    base: "{{ newer.image.base }}"
    replace: true
    instances:
      - name: proxy-01
      - name: proxy-02
  register: prepared

- name: Replace the disks, two at a time
  egress.kvm2.kvm2_domain:
    fleet: edge
    memory: 2GiB
    networks:
      - network: default
    on_change: replace
    max_parallel: "2"
    instances:
      - name: proxy-01
        overlay: "{{ prepared.overlays[0].overlay }}"
      - name: proxy-02
        overlay: "{{ prepared.overlays[1].overlay }}"

- name: Start both, asking the daemon for one after the other
  egress.kvm2.kvm2_domain:
    fleet: edge
    memory: 2GiB
    networks:
      - network: default
    max_requests: 1
    instances:
      - name: proxy-01
      - name: proxy-02

- name: Remove both, with their volumes
  egress.kvm2.kvm2_domain:
    fleet: edge
    state: absent
    instances:
      - name: proxy-01
      - name: proxy-02
"""

RETURN = r"""
instances:
  description:
    - The instances, in the order of O(instances). One that failed is among them, as it is then, where the failure came after the plan was made; the
      failures themselves are in C(errors).
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: The name of the instance.
      returned: always
      type: str
      sample: proxy-01
    uid:
      description: The UUID of the instance and of its domain.
      returned: always
      type: str
      sample: 0b0d2f1c-2a4d-5f2e-9c56-2f0c6f2f7f11
    domain:
      description: The name of the domain.
      returned: always
      type: str
      sample: edge.proxy-01
    state:
      description:
        - V(provisioning) while a running guest has no address yet, then V(running). V(stopped), V(stopping), V(paused), V(crashed) or
          V(absent) otherwise. In check mode the predicted one.
      returned: always
      type: str
      sample: running
    reason:
      description: Why the domain is in that state, where libvirt tells.
      returned: always
      type: str
      sample: booted
    addresses:
      description: The addresses that were seen.
      returned: always
      type: list
      elements: dict
      contains:
        mac:
          description: The MAC address of the interface.
          returned: always
          type: str
          sample: "52:54:00:12:34:56"
        address:
          description: The address.
          returned: always
          type: str
          sample: 192.168.122.17
        prefix:
          description: The length of the network's prefix.
          returned: always
          type: int
          sample: 24
        source:
          description: Where it was read, V(lease), V(agent) or V(arp).
          returned: always
          type: str
          sample: lease
    primary_address:
      description: The first address of the wanted family on the first interface that has one. V(null) where there is none.
      returned: always
      type: str
      sample: 192.168.122.17
    mac:
      description: The MAC address of the first interface.
      returned: always
      type: str
      sample: "52:54:00:12:34:56"
    macs:
      description: The MAC addresses of all interfaces.
      returned: always
      type: list
      elements: str
      sample: ["52:54:00:12:34:56"]
    overlay:
      description: The volume name of the overlay.
      returned: always
      type: str
      sample: kvm2-edge.proxy-01-0b0d2f1c-2a4d-5f2e-9c56-2f0c6f2f7f11-a1b2c3.qcow2
    seed:
      description: The volume name of the cloud-init seed.
      returned: always
      type: str
      sample: kvm2-edge.proxy-01-0b0d2f1c-2a4d-5f2e-9c56-2f0c6f2f7f11-d4e5f6.iso
    base:
      description: The volume name of the base below the overlay.
      returned: always
      type: str
      sample: kvm2-base-debian-12-0f3a9b1c2d4e5f60-a1b2c3.qcow2
    hold:
      description: The reason of the hold that the instance is on, empty where it is on none. In check mode the predicted one.
      returned: always
      type: str
      sample: ""
    virt_type:
      description: V(kvm), or V(qemu) where the guest is emulated. V(null) where there is no domain, as for the next three.
      returned: always
      type: str
      sample: kvm
    machine:
      description: The machine type as the definition has it.
      returned: always
      type: str
      sample: pc-q35-10.0
    cpu_mode:
      description: The processor model's mode as the definition has it, V(null) where that is QEMU's own.
      returned: always
      type: str
      sample: host-model
    console_log:
      description: The file on the hypervisor that the guest's console is logged to, V(null) where it is not.
      returned: always
      type: str
      sample: /var/log/libvirt/qemu/kvm2-edge.proxy-01-0b0d2f1c-2a4d-5f2e-9c56-2f0c6f2f7f11.console
    drift:
      description: How the instance differs from what is declared and was left as it is, or waits for a restart. Check mode gives what would be left.
      returned: always
      type: list
      elements: dict
      contains:
        field:
          description: What differs.
          returned: always
          type: str
          sample: memory
        have:
          description: What it is.
          returned: always
          type: raw
          sample: 268435456
        want:
          description: What is declared.
          returned: always
          type: raw
          sample: 536870912
        needs:
          description: The value of the option that would let it follow, V(redefine), V(restart) or V(replace).
          returned: always
          type: str
          sample: restart
        pending:
          description: Whether the definition follows already and the running guest waits for its restart.
          returned: always
          type: bool
          sample: true
    actions:
      description: What was done for this instance, or would be done in check mode, in order.
      returned: always
      type: list
      elements: dict
      sample:
        - act: define
          what: domain
          name: edge.proxy-01
          instance: proxy-01
actions:
  description: What was done, or would be done in check mode, in order.
  returned: always
  type: list
  elements: dict
  sample: []
errors:
  description: Every failure, each like RV(error) and with the C(item) that it belongs to.
  returned: failure
  type: list
  elements: dict
  sample: []
error:
  description: Why the module failed, the first failure where there are several.
  returned: failure
  type: dict
  contains:
    kind:
      description:
        - V(transient) says that trying again can help, V(permanent) that the input or the host has to change, V(quota) that there is no
          space, V(conflict) that the object is somebody else's. Of several failures it is V(transient) only where each one is.
      returned: always
      type: str
      sample: conflict
    code:
      description: The error number of libvirt, or V(null).
      returned: always
      type: int
      sample: null
    act:
      description: What was tried.
      returned: always
      type: str
      sample: define
    object:
      description: On what.
      returned: always
      type: str
      sample: domain edge.proxy-01
    hint:
      description: What to do about it, may be empty.
      returned: always
      type: str
      sample: Rename or remove it.
    message:
      description: All of it as a sentence.
      returned: always
      type: str
      sample: "Failed to define domain edge.proxy-01: a domain of that name carries no mark of this collection. Rename or remove it."
"""

from ansible_collections.egress.kvm2.plugins.module_utils._entry.run import run_module
from ansible_collections.egress.kvm2.plugins.module_utils._services.domain import DomainService


def specification(vcpus=None, firmware=None, virt_type=None, autostart=None, console_log=None):
    """The options that describe an instance: once for all instances, with defaults, and once for each, without."""
    return {
        "memory": {"type": "str"},
        "vcpus": {"type": "int", "default": vcpus},
        "cpu_mode": {"type": "str", "choices": ["host-model", "host-passthrough", "maximum"]},
        "machine": {"type": "str"},
        "firmware": {"type": "str", "choices": ["bios", "efi"], "default": firmware},
        "virt_type": {"type": "str", "choices": ["auto", "kvm", "qemu"], "default": virt_type},
        "networks": {
            "type": "list",
            "elements": "dict",
            "options": {
                "network": {"type": "str"},
                "bridge": {"type": "str"},
                "mac": {"type": "str"},
                "model": {"type": "str", "default": "virtio"},
                "vlan": {"type": "int"},
                "mtu": {"type": "int"},
                "nwfilter": {"type": "str"},
                "nwfilter_parameters": {"type": "dict"},
            },
            "mutually_exclusive": [("network", "bridge")],
            "required_one_of": [("network", "bridge")],
        },
        "user_data": {"type": "str", "no_log": True},
        "network_config": {"type": "str", "no_log": True},
        "meta_data": {"type": "str", "no_log": True},
        "autostart": {"type": "bool", "default": autostart},
        "console_log": {"type": "bool", "default": console_log},
        "on_crash": {"type": "str", "choices": ["destroy", "restart", "preserve", "coredump-destroy", "coredump-restart"]},
        "watchdog": {"type": "str", "choices": ["none", "reset", "poweroff", "shutdown", "pause"]},
        "cpu_tuning": {
            "type": "dict",
            "options": {"shares": {"type": "int"}, "quota": {"type": "int"}, "pin": {"type": "str"}},
        },
        "io_tuning": {
            "type": "dict",
            "options": {
                "total_bytes": {"type": "str"},
                "read_bytes": {"type": "str"},
                "write_bytes": {"type": "str"},
                "total_iops": {"type": "int"},
                "read_iops": {"type": "int"},
                "write_iops": {"type": "int"},
            },
        },
        "xml_extra": {"type": "list", "elements": "str"},
    }


ARGUMENTS = {
    "fleet": {"type": "str", "required": True},
    "host": {"type": "str", "default": ""},
    "pool": {"type": "str", "default": "default"},
    "instances": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "name": {"type": "str", "required": True},
            "uid": {"type": "str"},
            "overlay": {"type": "str"},
            "hold": {"type": "str"},
            **specification(),
        },
    },
    "state": {"type": "str", "choices": ["running", "stopped", "defined", "absent"], "default": "running"},
    "wait": {
        "type": "dict",
        "apply_defaults": True,
        "options": {
            "for": {"type": "str", "choices": ["none", "running", "address", "agent"], "default": "running"},
            "timeout": {"type": "str", "default": "5m"},
            "source": {"type": "str", "choices": ["auto", "lease", "agent", "arp"], "default": "auto"},
            "family": {"type": "str", "choices": ["ipv4", "ipv6"], "default": "ipv4"},
        },
    },
    "stop": {
        "type": "dict",
        "apply_defaults": True,
        "options": {
            "mode": {"type": "str", "choices": ["graceful", "force"], "default": "graceful"},
            "timeout": {"type": "str", "default": "60s"},
        },
    },
    "on_change": {"type": "str", "choices": ["report", "redefine", "restart", "replace"], "default": "redefine"},
    "max_parallel": {"type": "str", "default": "1"},
    "max_requests": {"type": "int", "default": 4},
    "hold": {"type": "str"},
    **specification(vcpus=1, firmware="bios", virt_type="auto", autostart=True, console_log=True),
}


def main():
    run_module(DomainService, ARGUMENTS)


if __name__ == "__main__":
    main()
