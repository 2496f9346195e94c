# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# shellcheck shell=sh
# Read by /etc/rc: the network cards, as the seed's network-config (version 2) says, or by DHCP where it has none.
# shellcheck disable=SC2154 # name, the guest's host name, comes from /etc/rc

# What the seed says of a card, as lines "key value"; /run/seed/network has such lines of all cards, each with the card's entry before it.
config_of() {
    entry=
    while read -r key value; do
        case $key in
            */match/macaddress) [ "$value" = "$1" ] && entry=${key%%/*} ;;
        esac
    done < /run/seed/network
    [ -n "$entry" ] || return
    while read -r key value; do
        [ "${key%%/*}" = "$entry" ] && echo "${key#*/} $value"
    done < /run/seed/network
}

dhcp() {
    USE_DNS=$2 udhcpc -i "$1" -x "hostname:$name" -s /etc/udhcpc/script -t 40 -T 1 -A 1 -S -b > /dev/null 2>&1
}

# Set up one card as its lines on standard input say. A new name comes first: an address belongs to the card that is up under it.
configure() {
    card=$1
    ask=false use_dns=true to='' search=''
    while read -r key value; do
        case $key in
            set-name) [ "$card" = "$value" ] || { ip link set "$card" name "$value" && card=$value; } ;;
        esac
    done < /run/card
    ip link set "$card" up
    while read -r key value; do
        case $key in
            dhcp4) ask=$value ;;
            dhcp4-overrides/use-dns) use_dns=$value ;;
            addresses/*) ip address add "$value" broadcast + dev "$card" 2> /dev/null || ip address add "$value" dev "$card" ;;
            routes/*/to) to=$value ;;
            routes/*/via) ip route add "$to" via "$value" dev "$card" || say "route $to by $value on $card is not possible" ;;
            gateway4 | gateway6) ip route add default via "$value" dev "$card" || say "gateway $value on $card is not possible" ;;
            nameservers/addresses/*) echo "nameserver $value" >> /etc/resolv.conf ;;
            nameservers/search/*) search="$search $value" ;;
        esac
    done < /run/card
    [ -z "$search" ] || echo "search$search" >> /etc/resolv.conf
    [ "$ask" != true ] || dhcp "$card" "$use_dns"
}

network() {
    ip link set lo up
    for card in /sys/class/net/eth*; do
        [ -e "$card" ] || continue
        line_of "$card/address"
        card=${card##*/}
        if [ -f /run/seed/network ]; then
            config_of "$line" > /run/card
            if [ -s /run/card ]; then configure "$card"; else say "$card is not in the seed's network-config"; fi
        else
            dhcp "$card" true
        fi
    done
}
