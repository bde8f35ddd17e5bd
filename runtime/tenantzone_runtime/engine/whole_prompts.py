"""Moves what a prompt's hits need between CPU memory and what is below it: all of a hit, or nothing.

vLLM moves chunk by chunk: it brings up each that it looks for, and hands down each that was stored. Where chunks are of
use together only, a part of them is of no use, and takes room.
"""

import enum
from collections.abc import Sequence
from typing import Any

from vllm.v1.kv_offload.base import OffloadKey, ReqContext
from vllm.v1.kv_offload.tiering.base import TransferJob

from tenantzone_runtime.engine.disk_tier import ZoneDiskTier
from tenantzone_runtime.engine.secondary_tier import ZoneSecondaryTier
from tenantzone_runtime.engine.shared_tier import ZoneSharedTier
from tenantzone_runtime.zones.hit_shape import HitShape

Prompt = Sequence[Sequence[OffloadKey]]
"""For each group, the keys of its chunks from the beginning."""


class BringUp(enum.Enum):
    """What became of bringing up a hit."""

    BEGUN = enum.auto()
    NEEDLESS = enum.auto()
    """Memory lacks nothing of it, or it was begun before."""
    REFUSED = enum.auto()
    """It can't be had from where it is now, or there is no room for it."""


class WholePrompts:
    """The hits of one engine that has CPU memory and something below it.

    Args:
        manager: of the tiers.
        disk: below CPU memory; None: there is none.
        shared: storages that engines share, below both; None: there are none.
        shape: of the model, whose chunks are of use together only.
    """

    def __init__(self, manager: Any, disk: ZoneDiskTier | None, shared: ZoneSharedTier | None, shape: HitShape) -> None:
        self._manager = manager
        self._primary = manager.primary_tier
        self._disk, self._shared = disk, shared
        self._shape = shape
        for tier in (disk, shared):
            if tier is not None:
                tier.moves_whole_hits = True

    def hits(self, context: ReqContext, prompt: Prompt, begin: int, end: int) -> list[int] | None:
        """Where a prompt's longest hits end of which all is here, or in storages, in tokens, the longest first.

        Args:
            context: of the request.
            prompt: its keys.
            begin: tokens that are in the engine's blocks.
            end: in tokens, beyond which nothing is looked for.

        Returns:
            None: more of it may be in storages, and the manager may still say so in time.
        """
        self._manager.note_finished_jobs()
        here = self._hit_here(context, prompt, begin, end)
        there = self._hit_there(context, end) if here < end else 0
        return None if there is None else sorted({here, there}, reverse=True)

    def bring_up(self, context: ReqContext, prompt: Prompt, begin: int, end: int) -> BringUp:
        """Begin to bring up what memory lacks of a prompt's longest hit, unless that was begun for this request before.

        Until it is there, look-ups of it are pending. What memory or what is below has no room for is looked for no
        more, and computed: to bring it up again and again would go on for ever.

        Args:
            context: of the request.
            prompt: its keys.
            begin: tokens that are in the engine's blocks.
            end: of the hit, in tokens.
        """
        keys = self._shape.keys(prompt, end, begin)
        primary = self._primary
        primary.count_on(keys, context)
        lacking = [key for key in keys if not primary.holds(key, context)]
        if not primary.may_bring_up(lacking, context):
            return BringUp.NEEDLESS
        sources = self._sources(lacking, context)
        if not all(tier.may_load(part, context) for tier, part in sources):
            return BringUp.REFUSED
        chunk_ids = dict(zip(lacking, primary.make_room_for_hit(keys, context), strict=False))
        if len(chunk_ids) < len(lacking):
            return BringUp.REFUSED
        for tier, part in sources:
            tier.promise(part, context)
            self._manager.load_from(tier, part, [chunk_ids[key] for key in part], context)
        return BringUp.BEGUN

    def hand_down(self, context: ReqContext) -> None:
        """Begin to store below what memory has of a request's prompt that has ended, hit by hit."""
        hits = self._primary.whole_hits(context)
        if self._disk is not None:
            self._to_disk(self._disk, hits, context)
        if self._shared is not None:
            self._to_storages(self._shared, hits, context)

    def _to_disk(self, disk: ZoneDiskTier, hits: Sequence[Sequence[OffloadKey]], context: ReqContext) -> None:
        for hit in hits:
            job: TransferJob = self._manager.store_job(disk, disk.lacks(hit, context), context)
            disk.store_hit(job, hit)
        for hit in hits:
            # The shortest last: it is of use for more prompts than the others.
            disk.use(hit, context)

    def _to_storages(self, shared: ZoneSharedTier, hits: Sequence[Sequence[OffloadKey]], context: ReqContext) -> None:
        for hit in hits:
            if lacking := shared.lacks(hit, context):
                shared.store_hit(self._manager.store_job(shared, lacking, context), hit)

    def _hit_here(self, context: ReqContext, prompt: Prompt, begin: int, end: int) -> int:
        """Where the longest hit ends of which all is in memory or on the disk, in tokens."""
        primary, disk = self._primary, self._readable_disk(context)

        def is_there(key: OffloadKey) -> bool:
            return bool(primary.holds(key, context)) or (disk is not None and disk.holds(key, context))

        return self._shape.longest(prompt, begin, end, is_there)

    def _hit_there(self, context: ReqContext, end: int) -> int | None:
        """Where the longest hit ends that storages have, in tokens; None: it is not known yet."""
        if self._shared is None or not self._may_read(self._shared, context):
            return 0
        chunks = self._shared.longest_hit(context, end // self._shape.chunk_tokens)
        return None if chunks is None else chunks * self._shape.chunk_tokens

    def _sources(
        self, keys: Sequence[OffloadKey], context: ReqContext
    ) -> list[tuple[ZoneDiskTier | ZoneSharedTier, list[OffloadKey]]]:
        """Which of these chunks come from where: what the disk has, from there."""
        disk = self._readable_disk(context)
        near = {key for key in keys if disk is not None and disk.holds(key, context)}
        parts: list[tuple[ZoneDiskTier | ZoneSharedTier | None, list[OffloadKey]]] = [
            (disk, [key for key in keys if key in near]),
            (self._shared, [key for key in keys if key not in near]),
        ]
        return [(tier, part) for tier, part in parts if part and tier is not None]

    def _readable_disk(self, context: ReqContext) -> ZoneDiskTier | None:
        """The disk, unless it is not for this request, or fails: then what it has may be in storages, too."""
        disk = self._disk
        return disk if disk is not None and disk.is_readable and self._may_read(disk, context) else None

    @staticmethod
    def _may_read(tier: ZoneSecondaryTier, context: ReqContext) -> bool:
        return bool(context.load_tier_filter.allows(tier.medium, tier.locality))
