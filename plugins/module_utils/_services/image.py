# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kvm2_image: a base is fetched once, verified, and published by its record."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, replace
from typing import Optional, Tuple
from urllib.parse import unquote, urlsplit

from .._host import fetch, local
from .._policy import names, qcow2, record, volume_xml
from .._policy.errors import PERMANENT, TRANSIENT, InvalidInput, Kvm2Error
from .._policy.mark import format_time
from .._policy.model import Pool
from .._policy.plan import Action, Plan
from .._policy.units import parse_duration, parse_size
from . import bases, transfer
from .pools import sees_pool, usable_pool
from .service import Service

_HEX_LENGTH = {"sha256": 64, "sha512": 128}


@dataclass(frozen=True)
class Checksum:
    """algorithm and either the hex digest or the URL of a sums file."""

    algorithm: str
    digest: Optional[str] = None
    url: Optional[str] = None

    def __str__(self):
        return f"{self.algorithm}:{self.digest}"


@dataclass(frozen=True)
class Seen:
    pool: Pool
    checksum: Optional[Checksum]
    identity: Optional[record.Identity]
    published: Tuple[bases.Published, ...]
    length: Optional[int] = None


def parse_checksum(text):
    """Checksum of an option value such as sha256:<hex> or sha512:https://…/SHA512SUMS; None for None."""
    if text is None:
        return None
    algorithm, colon, rest = text.strip().partition(":")
    if not colon or algorithm not in _HEX_LENGTH:
        raise InvalidInput(f"checksum {text!r}", "it does not start with sha256: or sha512:", "Write sha256:<hex>, or sha256:<URL of SHA256SUMS>.")
    if re.match(r"https?://", rest):
        return Checksum(algorithm, url=rest)
    if not re.fullmatch(r"[0-9A-Fa-f]+", rest) or len(rest) != _HEX_LENGTH[algorithm]:
        raise InvalidInput(
            f"checksum {text!r}", f"a {algorithm} checksum has {_HEX_LENGTH[algorithm]} hexadecimal digits", "Copy it again, or give a URL.")
    return Checksum(algorithm, digest=rest.lower())


class ImageService(Service):
    def __init__(self, params, context):
        super().__init__(params, context)
        self.key = names.check_label(params["key"], "key")
        self.format = params["format"]
        self.pool = params["pool"]
        self.url, self.src = params["url"], params["src"]
        self.checksum = parse_checksum(params["checksum"])
        largest = params["max_virtual_size"]
        self.max_virtual_size = None if largest == "none" else parse_size(largest, "max_virtual_size")
        if self.url is not None:
            fetch.check_url(self.url, "url")
        if self.checksum is not None and self.checksum.url is not None:
            fetch.check_url(self.checksum.url, "the URL in checksum")
        if self.src is not None and not os.path.isabs(self.src):
            raise InvalidInput(f"src {self.src!r}", "it is not an absolute path", "Give the full path on the machine the module runs on.")
        if params["sparse"]:
            raise InvalidInput("sparse true", "this version stores images fully allocated only", "Leave sparse out.")
        if params["refresh"] != "never":
            raise InvalidInput(
                f"refresh {params['refresh']!r}", "this version asks a URL once only", "Leave refresh out; change key or checksum for another image.")
        self.options = fetch.FetchOptions(
            timeout=parse_duration(params["fetch_timeout"], "fetch_timeout"), headers=params["headers"] or {},
            client_cert=params["client_cert"], client_key=params["client_key"], validate_certs=params["validate_certs"],
            use_proxy=params["use_proxy"], username=params["url_username"], password=params["url_password"],
            force_basic_auth=params["force_basic_auth"], http_agent=params["http_agent"], ca_path=params["ca_path"])

    @property
    def _source_name(self):
        if self.src is not None:
            return self.src
        return None if self.url is None else fetch.identifying(self.url)

    # -- observe

    def observe(self, hypervisor):
        pool = usable_pool(hypervisor, self.pool, self.params["exclusive"])
        hypervisor.refresh_pool(self.pool)
        found = bases.published(
            hypervisor, self.pool, hypervisor.volumes(self.pool), lambda name: name.key == self.key and name.format == self.format)
        if self.params["state"] == "absent" and self.checksum is None and self._source_name is None:
            return Seen(pool, None, None, found)
        checksum = self._resolve(found)
        identity = record.identity(self.key, self.format, str(checksum) if checksum else None, None if checksum else self._source_name)
        matching = tuple(one for one in found if record.matches(identity, one.name, one.record))
        seen = Seen(pool, checksum, identity, matching)
        if self.params["state"] == "absent" or matching:
            return self._verified(hypervisor, seen)
        return replace(seen, length=self._probe())

    def _resolve(self, found):
        """The Checksum with its digest known, or None where nothing is pinned."""
        if self.checksum is None:
            return Checksum("sha256", digest=self._digest_of_src()) if self.src is not None else None
        if self.checksum.digest is not None:
            return self.checksum
        recorded = [
            one for one in found
            if one.record.checksum_url == fetch.shown(self.checksum.url) and one.record.source == self._source_name
            and one.record.checksum.startswith(f"{self.checksum.algorithm}:")]
        if recorded:
            newest = max(recorded, key=lambda one: one.record.published_at)
            return replace(self.checksum, digest=newest.record.checksum.partition(":")[2])
        name = os.path.basename(self.src) if self.src is not None else unquote(urlsplit(self.url or "").path.rpartition("/")[2])
        text = fetch.read_text(self.checksum.url, self.options)
        return replace(self.checksum, digest=record.find_checksum(text, name, self.checksum.algorithm))

    def _digest_of_src(self):
        source = fetch.open_file(self.src)
        try:
            return transfer.digest_of(source.blocks())
        finally:
            source.close()

    def _probe(self):
        if self.url is not None:
            return fetch.probe(self.url, self.options)
        source = fetch.open_file(self.src)
        source.close()
        return source.length

    def _verified(self, hypervisor, seen):
        if self.params["verify"] == "always" and self.params["state"] == "present":
            for one in seen.published:
                self._read_back(hypervisor, str(one.name), one.record.size, one.record.digest)
        return seen

    # -- plan

    def plan(self, seen):
        if self.params["state"] == "absent":
            return Plan(tuple(
                Action("delete", what, name, why="state is absent", payload={"base": one})
                for one in seen.published for what, name in (("record", one.name.record), ("base", str(one.name)))))
        if seen.published:
            return Plan()
        if seen.checksum is None:
            self.context.warn(
                f"Nothing pins the image {self._source_name}: it is taken as it is served, and served again it may differ. Set checksum.")
        id16 = names.id16_of_digest(seen.checksum.digest) if seen.checksum else names.id16_of_url(self._source_name)
        name = names.BaseName(self.key, id16, self.context.nonce(), self.format)
        size = "of unknown size" if seen.length is None else f"of {seen.length} bytes"
        return Plan((
            Action("fetch", "image", self._source_name, why=f"no base of {self.key} with this identity is published", changes=True),
            Action("create", "base", str(name), why=f"from a source {size}", payload={"name": name}),
            Action("publish", "record", name.record, payload={"name": name})))

    # -- results

    def _result(self, one, fetched):
        rec = one.record
        return {"image": {
            "key": self.key, "base": str(one.name), "path": one.volume.path, "pool": self.pool, "format": self.format, "size": rec.size,
            "virtual_size": rec.virtual_size, "digest": f"sha256:{rec.digest}", "checksum": rec.checksum, "source": rec.source, "published": True,
            "published_at": format_time(rec.published_at), "durable": rec.durable, "fetched": fetched}}

    def _empty(self, base=None, path=None, size=None, checksum=None, fetched=False):
        return {"image": {
            "key": self.key, "base": base, "path": path, "pool": self.pool, "format": self.format, "size": size, "virtual_size": None,
            "digest": None, "checksum": checksum, "source": self._source_name, "published": False, "published_at": None, "durable": None,
            "fetched": fetched}}

    def predict(self, seen, plan):
        if self.params["state"] == "absent":
            return self._empty()
        if seen.published:
            return self._result(record.choose(seen.published), False)
        name = plan.actions[1].name
        return self._empty(name, f"{seen.pool.path}/{name}", seen.length, str(seen.checksum) if seen.checksum else None, True)

    # -- apply

    def apply(self, hypervisor, seen, plan):
        if self.params["state"] == "absent":
            self._retire(hypervisor, seen, plan)
            return self._empty()
        if seen.published:
            return self._result(record.choose(seen.published), False)
        return self._result(self._import(hypervisor, seen, plan), True)

    def _retire(self, hypervisor, seen, plan):
        if not seen.published:
            return
        found = bases.references_of(hypervisor)
        for one in seen.published:
            users = bases.blockers(found, one.volume.path)
            if users:
                raise bases.conflict("remove", f"base {one.name} in pool {self.pool}", users)
        for one in seen.published:
            users = bases.retire(hypervisor, self.pool, one.name, one.volume.path)
            for action in plan.actions:
                if action.payload["base"] is one and (users is None or action.what == "record"):
                    self.context.did(action)
            if users:
                raise bases.conflict("remove", f"base {one.name} in pool {self.pool} (its record is removed: it gets no new overlays)", users)

    def _import(self, hypervisor, seen, plan):
        fetching, creating, publishing = plan.actions
        name = creating.payload["name"]
        if self.context.deadline is not None:
            self.context.deadline.working_on("finish within its timeout the import of", f"{self._source_name} into pool {self.pool} on {hypervisor.uri}")
        source = fetch.open_source(self.url, self.options) if self.url is not None else fetch.open_file(self.src)
        try:
            if source.length is None:
                unknown, source = source, fetch.spool(source, self.params["tmpdir"])
                unknown.close()
            head, blocks = transfer.take_head(source.blocks(), qcow2.HEAD)
            info = qcow2.inspect(head, source.length, self.format, source.name, self.max_virtual_size)
            fetched = hashlib.new(seen.checksum.algorithm if seen.checksum else "sha256")
            stored = hashlib.sha256()
            xml = volume_xml.raw_volume(str(name), source.length, mode="0444")
            hypervisor.create_volume(self.pool, xml)
            try:
                digests = (stored,) if fetched.name == "sha256" else (fetched, stored)
                hypervisor.upload(self.pool, str(name), transfer.prefetch(transfer.hashing(blocks, *digests)), source.length)
                digest = stored.hexdigest() if fetched.name == "sha256" else fetched.hexdigest()
                if seen.checksum and digest != seen.checksum.digest:
                    raise Kvm2Error(
                        PERMANENT, "import", source.name, f"its {fetched.name} is {digest} but {seen.checksum.digest} was asked for",
                        "Correct checksum, or find out who changed the image.")
                self.context.did(fetching)
                volume, durable = self._settle(hypervisor, seen, name, source.length, stored.hexdigest())
                self.context.did(creating)
                new = record.Record(
                    key=self.key, format=self.format, size=source.length, digest=stored.hexdigest(), fetched=f"{fetched.name}:{digest}",
                    source=self._source_name, checksum=str(seen.checksum) if seen.checksum else "",
                    checksum_url=fetch.shown(self.checksum.url) if self.checksum and self.checksum.url else "",
                    virtual_size=info.virtual_size, published_at=self.context.clock(), durable=durable, etag=source.etag or "",
                    last_modified=source.last_modified or "")
            except BaseException:
                # Only what this call created, under its own nonce.
                self._clean_up(lambda: hypervisor.delete_volume(self.pool, str(name)))
                raise
            try:
                self._publish(hypervisor, name, new)
                self.context.did(publishing)
            except BaseException:
                # The record may have been seen complete, so somebody may use the base already: it is retired, not deleted.
                self._clean_up(lambda: bases.retire(hypervisor, self.pool, name, volume.path))
                raise
        finally:
            source.close()
        return bases.Published(name, volume, new)

    def _clean_up(self, undo):
        try:
            undo()
        except Kvm2Error as error:
            # The first failure is the one to report; what stays has no valid record, nobody uses it, and the collector takes it.
            self.context.warn(f"Left behind for the collector: {error.message}")

    def _settle(self, hypervisor, seen, name, length, digest):
        """See that the pool stored what was sent, and make it durable. Returns (model.Volume, durable)."""
        obj = f"base {name} in pool {self.pool}"
        hypervisor.refresh_pool(self.pool)
        volume = hypervisor.volume(self.pool, str(name))
        if volume is None:
            raise Kvm2Error(TRANSIENT, "import", obj, "it was removed during the upload", "Run again.")
        if volume.physical != length:
            raise Kvm2Error(TRANSIENT, "import", obj, f"the pool holds {volume.physical} of {length} bytes", "Run again.")
        if volume.format != self.format:
            raise Kvm2Error(
                PERMANENT, "import", obj, f"libvirt takes it for {volume.format} instead of {self.format}", "Check format and the image.")
        if self.params["verify"] != "never":
            self._read_back(hypervisor, str(name), length, digest)
        durable = sees_pool(hypervisor, seen.pool) and local.exists(volume.path)
        if durable:
            local.make_durable(volume.path)
        else:
            self.context.warn(
                f"The {obj} could not be made durable over {hypervisor.uri}: after a power cut check it with verify: always.")
        return volume, durable

    def _read_back(self, hypervisor, name, length, digest):
        found = transfer.digest_of(transfer.prefetch(hypervisor.download(self.pool, name, 0, length)))
        if found != digest:
            raise Kvm2Error(
                PERMANENT, "verify", f"base {name} in pool {self.pool}", f"its sha256 is {found} and not {digest}",
                "The pool's storage gave back other bytes than were sent; do not use this base. Remove its record to have it fetched again.")

    def _publish(self, hypervisor, name, new):
        data = record.render(new)
        hypervisor.create_volume(self.pool, volume_xml.raw_volume(name.record, len(data), mode="0444"))
        hypervisor.upload(self.pool, name.record, [data], len(data))
