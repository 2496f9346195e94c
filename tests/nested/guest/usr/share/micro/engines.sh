# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# shellcheck shell=sh
# Read by /etc/rc: the engines. tinyproxy is always there; squid and dante lie on the disk and are unpacked where the seed configures them.

# Unpack what the seed has a configuration for: KEY of the archive on the boot partition.
unpack() {
    boot=$(findfs LABEL=MICRO 2> /dev/null)
    mount -t vfat -o ro "$boot" /media/boot || return
    (cd / && cpio -idmu 2> /dev/null < "/media/boot/$1.cpio") || say "$1 cannot be unpacked"
    umount /media/boot
    say "unpacked $1"
}

# Run a program, and start it again whenever it ends.
keep() {
    (
        while :; do
            "$@" > /dev/console 2>&1
            say "$1 ended with $?"
            sleep 1
        done
    ) &
}

# Wait until something listens on a port of this guest.
listening() {
    tries=0
    # A socket that listens (0A) on that port, as the kernel lists them; busybox has nothing that only tries a port.
    pattern=$(printf ':%04X 0*:0000 0A' "$2")
    while [ $tries -lt 600 ] && ! grep -q "$pattern" /proc/net/tcp /proc/net/tcp6 2> /dev/null; do
        tries=$((tries + 1))
        usleep 100000
    done
    if [ $tries -lt 600 ]; then say "$1 on port $2"; else say "$1 does not listen on port $2"; fi
}

# What can be done before the network is there.
prepare_engines() {
    if [ -f /etc/squid/squid.conf ]; then
        unpack squid
        mkdir -m 1777 /dev/shm
        chown -R proxy:proxy /var/log/squid /var/spool/squid
    fi
    [ ! -f /etc/danted.conf ] || unpack danted
    [ ! -f /etc/tinyproxy/tinyproxy.conf ] || keep tinyproxy -d -c /etc/tinyproxy/tinyproxy.conf
}

# dante needs the address of its card when it starts, squid reads which name servers to ask.
start_engines() {
    [ ! -f /etc/squid/squid.conf ] || keep squid -N -f /etc/squid/squid.conf
    [ ! -f /etc/danted.conf ] || keep danted -f /etc/danted.conf
}

await_engines() {
    if [ -f /etc/tinyproxy/tinyproxy.conf ]; then
        port=$(awk 'tolower($1) == "port" { print $2 }' /etc/tinyproxy/tinyproxy.conf)
        listening tinyproxy "${port:-8888}"
    fi
    [ ! -f /etc/squid/squid.conf ] || listening squid "$(awk '$1 == "http_port" { print $2; exit }' /etc/squid/squid.conf)"
    [ ! -f /etc/danted.conf ] || listening danted "$(sed -n 's/^internal:.*port *= *\([0-9]*\).*/\1/p' /etc/danted.conf | head -n 1)"
}
