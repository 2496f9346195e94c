# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kvm2_image: a base is fetched once, verified, and published by its record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Optional, Tuple

from .._host import local
from .._policy import names, record
from .._policy.errors import QUOTA, Kvm2Error
from .._policy.model import Pool
from .._policy.plan import Action, Plan
from .._policy.timestamps import format_time
from .._policy.virtual_size import check_virtual_size
from . import bases, image_options
from .image_options import Checksum
from .pools import sees_pool, usable_pool
from .service import Service, StartOver

# What only an import needs is loaded by the functions that begin one: Ansible sends source, and compiling all of it would take longer than
# everything that a call with a cached base has to do.

# How often an image that changed under the fetch, or whose server cannot go on in the middle, is fetched from its start.
_TRIES = 3


@dataclass(frozen=True)
class Seen:
    """published: the bases that may be used.  why: the reason to import where there are none; length and info (qcow2.ImageInfo): of what would come.
    room: bytes that are free for it in the pool."""

    pool: Pool
    checksum: Optional[Checksum]
    published: Tuple[bases.Published, ...]
    why: str = ""
    length: Optional[int] = None
    info: Optional[Any] = None
    room: Optional[int] = None


class ImageService(Service):
    def __init__(self, params, context):
        super().__init__(params, context)
        self.options = image_options.parse(params, context.check_stop)
        self._turn = None
        self._tries = _TRIES

    # -- observe

    def observe(self, hypervisor):
        seen = self._look(hypervisor)
        if not self.options.present:
            self._check_unused(hypervisor, seen)
            return seen
        if not seen.published and self._turn is None:
            self._turn = self._take_turn(hypervisor, seen)
            self.context.held.append(self._turn)
            if self._turn.held:
                # Whoever had the turn before may have published it.
                seen = self._look(hypervisor)
        if seen.published:
            chosen = record.choose(seen.published)
            check_virtual_size(chosen.record.virtual_size, self.options.max_virtual_size, f"base {chosen.name} in pool {self.options.pool}")
            if self.options.verify == "always":
                from .image_import import read_back
                here = sees_pool(hypervisor, seen.pool)
                for one in seen.published:
                    read_back(hypervisor, one.volume, one.record.size, one.record.digest, self.context, here and local.readable(one.volume.path))
            return seen
        from . import image_content, image_import
        if self.options.sparse:
            image_import.check_sparse(hypervisor, seen.pool)
        length, info = image_content.look(self.options)
        # What was read before the pool's refresh may be old.
        now = hypervisor.pool(self.options.pool) or seen.pool
        return replace(seen, length=length, info=info, room=now.available)

    def _check_unused(self, hypervisor, seen):
        """Raise where one of the bases is in use: then none of them is removed."""
        if not seen.published:
            return
        found = bases.references_of(hypervisor)
        for one in seen.published:
            users = bases.blockers(found, one.volume.path)
            if users:
                raise bases.conflict("remove", f"base {one.name} in pool {self.options.pool}", users)

    def _look(self, hypervisor):
        options = self.options
        pool = usable_pool(hypervisor, options.pool, options.exclusive)
        hypervisor.refresh_pool(options.pool)
        found = bases.published(
            hypervisor, options.pool, hypervisor.volumes(options.pool), lambda name: name.key == options.key and options.format in (None, name.format))
        if not options.present and options.checksum is None and options.source_name is None:
            return Seen(pool, None, found)
        checksum = self._resolve(found)
        pinned, source = str(checksum) if checksum else None, None if checksum else options.source_name
        matching = tuple(
            one for one in found if record.matches(record.identity(options.key, one.name.format, pinned, source), one.name, one.record))
        if options.present and options.refresh and checksum is None and matching:
            from . import image_source
            newest = record.choose(matching)
            if image_source.has_changed(options, newest.record, self.context):
                return Seen(pool, checksum, (), f"the URL no longer gives what base {newest.name} was made from")
        return Seen(pool, checksum, matching, f"no base of {options.key} with this identity is published")

    def _resolve(self, found):
        """The Checksum with its digest known, or None where nothing is pinned."""
        options = self.options
        if options.checksum is None:
            if options.src is None:
                return None
            from . import image_source
            return Checksum("sha256", digest=image_source.digest_of_file(options, self.context))
        if options.checksum.digest is not None:
            return options.checksum
        recorded = [
            one for one in found
            if one.record.checksum_url == options.checksum_url and one.record.source == options.source_name
            and one.record.checksum.startswith(f"{options.checksum.algorithm}:")]
        if recorded and not (options.refresh and options.present):
            return replace(options.checksum, digest=record.choose(recorded).record.checksum.partition(":")[2])
        from . import image_source
        return replace(options.checksum, digest=image_source.digest_of_list(options))

    def _take_turn(self, hypervisor, seen):
        """Of several runs here that want the same image one fetches it, while the others wait, for half of their time at the most."""
        what = "|".join((
            hypervisor.uri, seen.pool.uuid, self.options.key, self.options.format, str(seen.checksum) if seen.checksum else self.options.source_name))

        def waiting(seconds):
            self.context.check_stop()
            self.context.progress(int(seconds), None, "wait")

        return self.context.turn(what, self.context.deadline.remaining() / 2 if self.context.deadline is not None else 3600, waiting)

    # -- plan

    def plan(self, seen):
        options = self.options
        if not options.present:
            return Plan(tuple(
                Action("delete", what, name, why="state is absent", payload={"base": one})
                for one in seen.published for what, name in (("record", one.name.record), ("base", str(one.name)))))
        if seen.published:
            return Plan()
        if seen.checksum is None:
            self.context.warn(
                f"Nothing pins the image {options.source_name}: it is taken as it is served, and served again it may differ. Set checksum.")
        id16 = names.id16_of_digest(seen.checksum.digest) if seen.checksum else names.id16_of_url(options.source_name)
        name = names.BaseName(options.key, id16, self.context.nonce(), options.format)
        size = "of unknown size" if seen.length is None else f"of {seen.length} bytes"
        return Plan((
            Action("fetch", "image", options.source_name, why=seen.why, changes=True),
            Action("create", "base", str(name), why=f"from a source {size}", payload={"name": name}),
            Action("publish", "record", name.record, payload={"name": name})))

    # -- results

    def _result(self, one, fetched):
        rec = one.record
        return {"image": {
            "key": rec.key, "base": str(one.name), "path": one.volume.path, "pool": self.options.pool, "format": rec.format, "size": rec.size,
            "virtual_size": rec.virtual_size, "digest": f"sha256:{rec.digest}", "checksum": rec.checksum or None, "source": rec.source,
            "published": True, "published_at": format_time(rec.published_at), "durable": rec.durable, "fetched": fetched}}

    def _empty(self, seen=None, base=None):
        predicted = seen is not None
        return {"image": {
            "key": self.options.key, "base": base, "path": f"{seen.pool.path}/{base}" if predicted else None, "pool": self.options.pool,
            "format": self.options.format, "size": seen.length if predicted else None,
            "virtual_size": seen.info.virtual_size if predicted and seen.info else None, "digest": None,
            "checksum": str(seen.checksum) if predicted and seen.checksum else None, "source": self.options.source_name, "published": False,
            "published_at": None, "durable": None, "fetched": predicted}}

    def predict(self, seen, plan):
        if not self.options.present:
            return self._empty()
        if seen.published:
            return self._result(record.choose(seen.published), False)
        if seen.length is not None and seen.length > seen.room:
            # The run itself asks nobody beforehand: creating the volume tells it for certain.
            raise Kvm2Error(
                QUOTA, "create", f"base {plan.actions[1].name} in pool {self.options.pool}",
                f"it takes {seen.length} bytes and the pool has {seen.room} free", "Free space in the pool, or use another one.")
        return self._empty(seen, plan.actions[1].name)

    # -- apply

    def apply(self, hypervisor, seen, plan):
        if not self.options.present:
            self._retire(hypervisor, seen, plan)
            return self._empty()
        if seen.published:
            return self._result(record.choose(seen.published), False)
        return self._result(self._import(hypervisor, seen, plan), True)

    def _retire(self, hypervisor, seen, plan):
        pool = self.options.pool
        for one in seen.published:
            users = bases.retire(hypervisor, pool, one.name, one.volume.path)
            for action in plan.actions:
                if action.payload["base"] is one and (users is None or action.what == "record"):
                    self.context.did(action)
            if users:
                raise bases.conflict("remove", f"base {one.name} in pool {pool} (its record is removed: it gets no new overlays)", users)

    def _import(self, hypervisor, seen, plan):
        from .._host import fetch
        from . import image_import
        try:
            return image_import.import_image(hypervisor, self.options, seen, plan, self.context)
        except fetch.Interrupted as error:
            self._tries -= 1
            if not self._tries:
                raise
            self.context.warn(f"{error.message} It is fetched from the start.")
            fetch.wait(fetch.PAUSES[0], self.context.check_stop)
            raise StartOver from error
