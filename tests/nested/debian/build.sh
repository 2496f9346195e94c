#!/bin/sh
# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Builds the root and writes its file system onto a disk: DISK OFFSET BLOCKS FOLDER mmdebstrap's command line without its target.
# The file system has so many BLOCKS of 4 KiB; FOLDER receives vmlinuz, initrd and boot.efi; $TMPDIR holds the tree meanwhile.
set -eu
disk=$1 offset=$2 blocks=$3 folder=$4
shift 4
root=$TMPDIR/root
"$@" "$root"

echo "I: packing the root"
# mmdebstrap leaves the word for a first boot, on which systemd would enable every service; an empty file stands for "not yet known".
: > "$root/etc/machine-id"
touch "$root/etc/.updated" "$root/var/.updated"
ln -sf ../run/systemd/resolve/stub-resolv.conf "$root/etc/resolv.conf"
rm -f "$root/etc/hostname"
mv "$root"/boot/vmlinuz-* "$folder/vmlinuz"
mv "$root"/boot/initrd.img-* "$folder/initrd"
cp "$root/usr/lib/systemd/boot/efi/systemd-bootx64.efi" "$folder/boot.efi"
rm -f "$root"/vmlinuz* "$root"/initrd.img* "$root"/boot/System.map-*
du -sm "$root"
# Features that the guest's own tools know, whatever release packs it; the folder is new, so nothing needs to be zeroed.
mke2fs -q -F -t ext4 -b 4096 -O ^orphan_file,^metadata_csum_seed -J size=16 -m 1 -L root -U 64656269-616e-4775-8573-740000000003 \
    -E "offset=$offset,lazy_itable_init=0,assume_storage_prezeroed=1" -d "$root" "$disk" "$blocks"
rm -rf "$root"
