#!/bin/sh
# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# mmdebstrap's last hook: what a fresh guest has to be without, and what would only cost it time. Its argument is the root.
set -eu
root=$1

# The engines are installed, the seed starts the one that is wanted.
systemctl --root="$root" --quiet disable tinyproxy.service squid.service danted.service
systemctl --root="$root" --quiet enable ssh.service systemd-networkd.service systemd-resolved.service
# Nothing of this belongs into a guest that lives for an afternoon: regular work, the screen, hot-plugged network cards.
systemctl --root="$root" --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
    e2scrub_reap.service getty@tty1.service cloud-init-hotplugd.socket cloud-init-hotplugd.service

# With a script of System V beside it, enabling a service takes an emulated guest three times as long.
rm -f "$root/etc/init.d/tinyproxy" "$root/etc/init.d/squid" "$root/etc/init.d/danted"
# The same for what cloud-init calls: the command in Python does no more than run this program.
chroot "$root" dpkg-divert --quiet --local --rename --divert /usr/sbin/netplan.full --add /usr/sbin/netplan
cat > "$root/usr/sbin/netplan" << 'EOT'
#!/bin/sh
if [ "$*" = generate ]; then exec /usr/libexec/netplan/generate; fi
exec /usr/sbin/netplan.full "$@"
EOT
chmod 0755 "$root/usr/sbin/netplan"

# Packages come from where user data says (apt: sources), and from nowhere by itself.
rm -rf "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/* "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin
: > "$root/etc/apt/sources.list"

# The identity of a guest is its own.
rm -rf "$root"/etc/ssh/ssh_host_* "$root"/var/lib/cloud "$root"/var/lib/dbus/machine-id "$root"/var/lib/systemd/random-seed
find "$root/var/log" -type f -delete
