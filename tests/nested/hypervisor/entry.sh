#!/bin/sh
# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# What a nested hypervisor runs in place of an init system: libvirt's daemons and sshd, each started again when it ends,
# as an init system would. Argument: "bare" for sshd alone, before the packages are there; "kvm" where KVM is proven to work;
# anything else hides the device.
set -eu

install -d -m 0755 /run/sshd
install -d -m 0700 /root/.ssh
install -m 0600 /etc/kvm2-nested/authorized_keys /root/.ssh/authorized_keys
install -m 0600 /etc/kvm2-nested/ssh_host_ed25519_key /etc/ssh/ssh_host_ed25519_key
printf '%s\n' 'HostKey /etc/ssh/ssh_host_ed25519_key' 'UseDNS no' 'MaxStartups 100' 'MaxSessions 100' > /etc/ssh/sshd_config.d/kvm2-nested.conf

if [ "${1:-}" = bare ]; then
    # Without an init system, no package may try to start what it brings.
    printf '%s\n' '#!/bin/sh' 'exit 101' > /usr/sbin/policy-rc.d
    chmod 0755 /usr/sbin/policy-rc.d
    exec /usr/sbin/sshd -D -e
fi

[ "${1:-}" = kvm ] || rm -f /dev/kvm

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
