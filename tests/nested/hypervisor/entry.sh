#!/bin/sh
# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# What a nested hypervisor runs in place of an init system: libvirt's daemons and sshd, each started again when it ends,
# as an init system would. Arguments: "kvm" where KVM is proven to work, anything else hides the device.
set -eu

[ "${1:-}" = kvm ] || rm -f /dev/kvm

install -d -m 0755 /run/sshd
install -d -m 0700 /root/.ssh
install -m 0600 /etc/kvm2-nested/authorized_keys /root/.ssh/authorized_keys
install -m 0600 /etc/kvm2-nested/ssh_host_ed25519_key /etc/ssh/ssh_host_ed25519_key
printf '%s\n' 'HostKey /etc/ssh/ssh_host_ed25519_key' 'UseDNS no' 'MaxStartups 100' 'MaxSessions 100' > /etc/ssh/sshd_config.d/kvm2-nested.conf

# Both autostart, and exist before the daemon first looks.
install -d -m 0700 /etc/libvirt/storage/autostart /etc/libvirt/qemu/networks/autostart
if [ ! -e /etc/libvirt/storage/default.xml ]; then
    cat > /etc/libvirt/storage/default.xml << EOF
<pool type='dir'>
  <name>default</name>
  <uuid>$(cat /proc/sys/kernel/random/uuid)</uuid>
  <target>
    <path>/var/lib/libvirt/images</path>
  </target>
</pool>
EOF
fi
ln -sf /etc/libvirt/storage/default.xml /etc/libvirt/storage/autostart/default.xml
ln -sf /etc/libvirt/qemu/networks/default.xml /etc/libvirt/qemu/networks/autostart/default.xml

keep() {
    while :; do
        "$@" || true
        echo "$1 has ended; it is started again"
        sleep 1
    done
}
keep virtlogd &
keep libvirtd &
keep /usr/sbin/sshd -D -e &
wait
