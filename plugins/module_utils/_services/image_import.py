# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Publishing a base: volume, upload, a look at what the pool stored, sync, record. Whatever fails, only what this call made is removed."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from .._host import beside, local, streaming
from .._policy import record, volume_xml
from .._policy.errors import PERMANENT, TRANSIENT, Kvm2Error
from . import bases, transfer
from .image_content import Content
from .pools import sees_pool

# Of a full disk in a sparse stream libvirt 11.3 dies, while 9.0 and 12.8 report it: measured, and nothing in between is trusted.
# Versions as virConnectGetLibVersion counts them, each range without its end.
_SPARSE_STREAMS = ((9000000, 9001000), (12008000, 10 ** 9))
_NOT_SEEN = "this user may not read the file or the pool's folder; run the module with become"
# A longer ETag is done without, so that the record stays small.
_LONGEST_VALIDATOR = 1024


def import_image(hypervisor, options, seen, plan, context):
    """Do the plan: the Published base. options: image_options.ImageOptions; seen: image.Seen; context: service.Context.

    fetch.Interrupted where the source broke off and may be had from its start."""
    if context.deadline is not None:
        context.deadline.working_on("finish within its timeout the import of", f"{options.source_name} into pool {options.pool} on {hypervisor.uri}")
    actions = {action.act: action for action in plan.actions}
    pool_path = seen.pool.path if sees_pool(hypervisor, seen.pool) else None
    importer = Importer(hypervisor, options, seen.pool, seen.checksum, context)
    with Content(options, seen.checksum, pool_path, context) as content:
        return importer.run(actions["create"].payload["name"], content, lambda act: context.did(actions[act]))


class Importer:
    """Brings one image into a pool. options: image_options.ImageOptions; pool: model.Pool; checksum: Checksum or None."""

    def __init__(self, hypervisor, options, pool, checksum, context):
        self._hypervisor = hypervisor
        self._options = options
        self._pool = pool
        self._checksum = checksum
        self._context = context
        # The files of the pool can be seen and synced only where the module runs on the machine of the daemon.
        self._local = sees_pool(hypervisor, pool)

    def run(self, name, content, did):
        """The Published base under `name` (a BaseName) of a Content. did("fetch" | "create" | "publish") is called once that is done."""
        try:
            volume, durable = self._fill(name, content, did)
            did("create")
            new = self._record(content, durable)
        except BaseException:
            # Only what this call created, under its own nonce.
            self._clean_up(lambda: self._hypervisor.delete_volume(self._pool.name, str(name)))
            raise
        try:
            self._publish(name, new)
        except BaseException:
            # The record may have been seen complete, so somebody may use the base already: it is retired, not deleted.
            self._clean_up(lambda: bases.retire(self._hypervisor, self._pool.name, name, volume.path))
            raise
        did("publish")
        return bases.Published(name, volume, new)

    def _clean_up(self, undo):
        try:
            undo()
        except Kvm2Error as error:
            # The first failure is the one to report; what stays has no valid record, nobody uses it, and the collector takes it.
            self._context.warn(f"Left behind for the collector: {error.message}")

    def _fill(self, name, content, did):
        """The volume with what was fetched, as read back, and whether it is durable: (model.Volume, bool)."""
        hypervisor, pool = self._hypervisor, self._pool.name
        options = self._options
        with contextlib.ExitStack() as stack:
            # Their processes start while libvirt makes the volume.
            syncer = stack.enter_context(beside.Syncer(self._context.check_stop)) if self._local else None
            hasher = None
            # Holes that are dug afterwards would not be seen by what has read it before.
            if self._local and options.verify != "never" and not options.sparse:
                hasher = stack.enter_context(beside.Hasher(self._context.check_stop))
            made = hypervisor.create_volume(pool, volume_xml.raw_volume(str(name), content.length, options.mode, options.owner, options.group))
            seen = self._local and local.readable(made.path)
            if not seen:
                syncer = hasher = None
            for helper in (syncer, hasher):
                if helper is not None:
                    helper.begin(made.path)
            # A file that is not seen gets its holes in the stream, where that is safe; over a remote URI check_sparse() has seen to it.
            streamed = options.sparse and not seen and (not self._local or _survives_full_disk(hypervisor.host().libvirt_version))
            # Where the pool's bytes have to have a digest that is known, they are hashed as they are read back, and nowhere else.
            hashed = hasher is None or content.wanted is None
            blocks = stack.enter_context(contextlib.closing(transfer.prefetch(content.blocks(hashed))))
            hypervisor.upload(pool, str(name), blocks, content.length, sparse=streamed)
            if hashed:
                content.check()
            content.check_end()
            if options.sparse and not streamed:
                self._dig(made.path, seen)
            for helper in (syncer, hasher):
                if helper is not None:
                    helper.finish()
            volume = self._look(name, content)
            if options.verify != "never":
                self._verify(volume, content, hashed, hasher, seen)
            did("fetch")
            if syncer is not None:
                syncer.wait()
        if syncer is None:
            why = f": {_NOT_SEEN}" if self._local else ""
            self._context.warn(
                f"The base {name} in pool {pool} could not be made durable over {hypervisor.uri}{why}. After a power cut check it with verify: always.")
        return volume, syncer is not None

    def _verify(self, volume, content, hashed, hasher, seen):
        """Raise where the pool does not hold what it should. hasher: the beside.Hasher that has read it behind the upload, or None."""
        found, wanted = None, content.stored if hashed else content.wanted
        if hasher is not None:
            hasher.wait(lambda: self._context.progress(hasher.done, content.length, "verify"))
            found = hasher.digest
        if found != wanted:
            # Nobody has read it yet, or too early: only now it is known to be all there.
            found = digest_in_pool(self._hypervisor, volume, content.length, self._context, seen)
        if hashed:
            check_digest(volume, found, wanted)
        else:
            content.check_stored(found)

    def _dig(self, path, seen):
        problem = self._hypervisor.dig_holes(path) if seen else _NOT_SEEN
        if problem is not None:
            self._context.warn(f"The file {path} stays fully allocated: {problem}.")

    def _look(self, name, content):
        """See that the pool has what was sent, and takes it for what it is."""
        obj = f"base {name} in pool {self._pool.name}"
        self._hypervisor.refresh_pool(self._pool.name)
        volume = self._hypervisor.volume(self._pool.name, str(name))
        if volume is None:
            raise Kvm2Error(TRANSIENT, "import", obj, "it was removed during the upload", "Run again.")
        if volume.physical != content.length:
            raise Kvm2Error(TRANSIENT, "import", obj, f"the pool holds {volume.physical} of {content.length} bytes", "Run again.")
        if volume.format != self._options.format:
            raise Kvm2Error(
                PERMANENT, "import", obj, f"libvirt takes it for {volume.format} instead of {self._options.format}", "Check format and the image.")
        return volume

    def _record(self, content, durable):
        checksum, options = self._checksum, self._options
        return record.Record(
            key=options.key, format=options.format, size=content.length, digest=content.stored, fetched=content.fetched,
            source=options.source_name, checksum=str(checksum) if checksum else "", checksum_url=options.checksum_url,
            virtual_size=content.info.virtual_size, published_at=self._context.clock(), durable=durable, etag=content.etag,
            last_modified=content.last_modified)

    def _publish(self, name, new):
        if not all(text.isprintable() and len(text) <= _LONGEST_VALIDATOR for text in (new.etag, new.last_modified)):
            new = replace(new, etag="", last_modified="")
        data = record.render(new)
        self._hypervisor.create_volume(self._pool.name, volume_xml.raw_volume(name.record, len(data), mode="0444"))
        self._hypervisor.upload(self._pool.name, name.record, [data], len(data))


def check_sparse(hypervisor, pool):
    """Raise where a sparse image would endanger the daemon: a sparse stream gives the volume's space back while it runs, and what a daemon
    does when the disk then fills up was measured. On the pool's own machine the holes are made afterwards, without such a stream."""
    if sees_pool(hypervisor, pool):
        return
    version = hypervisor.host().libvirt_version
    if not _survives_full_disk(version):
        raise Kvm2Error(
            PERMANENT, "make sparse", f"an image over {hypervisor.uri}",
            f"a full disk in the middle could end its libvirt {version // 10 ** 6}.{version // 1000 % 1000}",
            "Leave sparse out, run the module on the hypervisor itself, or use libvirt 9.0, or 12.8 or newer, there.")


def _survives_full_disk(version):
    return any(first <= version < end for first, end in _SPARSE_STREAMS)


def read_back(hypervisor, volume, length, digest, context, local_file):
    """Raise where what the pool holds as that model.Volume has another sha256 than `digest`. local_file: can this process read the file itself?"""
    check_digest(volume, digest_in_pool(hypervisor, volume, length, context, local_file), digest)


def digest_in_pool(hypervisor, volume, length, context, local_file):
    """Hex sha256 of what the pool holds as that model.Volume; the rest as for read_back."""
    if local_file:
        # Through the daemon each byte would be copied four times more.
        return streaming.sha256(volume.path, lambda done: context.progress(done, length, "verify"), context.check_stop)
    blocks = transfer.watched(hypervisor.download(volume.pool, volume.name, 0, length), length, "verify", context.progress, context.check_stop)
    with contextlib.closing(transfer.prefetch(blocks)) as ahead:
        return transfer.digest_of(ahead)


def check_digest(volume, found, digest):
    if found != digest:
        raise Kvm2Error(
            PERMANENT, "verify", f"base {volume.name} in pool {volume.pool}", f"its sha256 is {found} and not {digest}",
            "The pool's storage gave back other bytes than were sent; do not use this base. Remove its record to have it fetched again.")
