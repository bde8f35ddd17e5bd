"""Moves either all chunks of a prompt's hit between CPU memory and lower tiers, or none.

Stock vLLM moves single chunks: it loads each chunk that it looks up, and copies each stored chunk to lower tiers. But
with several KV cache groups, chunks are only useful together, and incomplete hits would waste room.
"""

import enum
from collections.abc import Sequence
from typing import Any

from vllm.v1.kv_offload.base import OffloadKey, ReqContext
from vllm.v1.kv_offload.tiering.base import TransferJob

from tenantzone_runtime.engine.tiers.disk_tier import DiskRequest, ZoneDiskTier
from tenantzone_runtime.engine.tiers.secondary_tier import AnyTier
from tenantzone_runtime.engine.tiers.shared_tier import ZoneSharedTier
from tenantzone_runtime.zones.tiers.hit_shape import HitShape

Prompt = Sequence[Sequence[OffloadKey]]
"""Keys of a prompt's chunks in order, by KV cache group."""


class BringUp(enum.Enum):
    """The outcome of loading a hit."""

    BEGUN = enum.auto()
    NEEDLESS = enum.auto()
    """CPU memory has the whole hit, or a missing chunk was already loaded for this request once."""
    REFUSED = enum.auto()
    """A lower tier can't load the hit now, or CPU memory has no room for the hit."""


class WholePrompts:
    """Finds, loads and stores the hits of one engine that has a tier below CPU memory.

    Args:
        manager: the manager of the tiers.
        disk: the disk tier below CPU memory, or None.
        shared: the tier of shared storages below CPU memory and the disk, or None.
        shape: the shape of the model's hits, whose chunks are only useful together.
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
        """Find a prompt's longest hit in CPU memory and on the disk, and its longest hit in storages.

        Args:
            context: the request's context.
            prompt: the prompt's keys.
            begin: the number of tokens in the engine's blocks.
            end: the maximum end of a hit, in tokens.

        Returns:
            The ends of the hits in tokens, longest hit first. None if storages may have a longer hit, but the KV-cache
            manager has not answered yet.
        """
        self._manager.note_finished_jobs()
        here = self._hit_here(context, prompt, begin, end)
        there = self._hit_there(context, end) if here < end else 0
        return None if there is None else sorted({here, there}, reverse=True)

    def bring_up(self, context: ReqContext, prompt: Prompt, begin: int, end: int) -> BringUp:
        """Begin to load the chunks of a hit that CPU memory lacks. Each chunk is loaded at most once for a request.

        Until the chunks arrive, their look-ups are pending. If the chunks can't be loaded now, the model computes their
        tokens instead, because retrying could repeat forever.

        Args:
            context: the request's context.
            prompt: the prompt's keys.
            begin: the number of tokens in the engine's blocks.
            end: the end of the hit, in tokens.
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
        """Begin to copy an ended request's prompt from CPU memory to lower tiers, hit by hit."""
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
            # The shortest hit comes last, and so is evicted last, because more prompts can use it than longer hits.
            disk.touch(hit, context)

    def _to_storages(self, shared: ZoneSharedTier, hits: Sequence[Sequence[OffloadKey]], context: ReqContext) -> None:
        for hit in hits:
            if lacking := shared.lacks(hit, context):
                shared.store_hit(self._manager.store_job(shared, lacking, context), hit)

    def _hit_here(self, context: ReqContext, prompt: Prompt, begin: int, end: int) -> int:
        """Returns the end in tokens of the longest hit whose chunks are each in CPU memory or on the disk."""
        primary, disk = self._primary, self._readable_disk(context)

        def is_there(key: OffloadKey) -> bool:
            return bool(primary.holds(key, context)) or (disk is not None and disk.holds(key))

        return self._shape.longest(prompt, begin, end, is_there)

    def _hit_there(self, context: ReqContext, end: int) -> int | None:
        """Returns the end in tokens of the longest hit in storages, or None if the manager has not answered yet."""
        if self._shared is None or not self._may_read(self._shared, context):
            return 0
        request = self._shared.request(context)
        chunks = 0 if request is None else request.longest_hit(end // self._shape.chunk_tokens)
        return None if chunks is None else chunks * self._shape.chunk_tokens

    def _sources(self, keys: Sequence[OffloadKey], context: ReqContext) -> list[tuple[AnyTier, list[OffloadKey]]]:
        """Returns the tiers from which to load these chunks, each with its part of the keys. The disk comes first."""
        disk = self._readable_disk(context)
        near = {key for key in keys if disk is not None and disk.holds(key)}
        parts: list[tuple[AnyTier | None, list[OffloadKey]]] = [
            (self._disk, [key for key in keys if key in near]),
            (self._shared, [key for key in keys if key not in near]),
        ]
        return [(tier, part) for tier, part in parts if part and tier is not None]

    def _readable_disk(self, context: ReqContext) -> DiskRequest | None:
        """Returns the request's use of the disk tier, or None if the request can't or must not read the disk."""
        disk = self._disk
        may_read = disk is not None and disk.below.is_readable and self._may_read(disk, context)
        return disk.request(context) if disk is not None and may_read else None

    @staticmethod
    def _may_read(tier: AnyTier, context: ReqContext) -> bool:
        return bool(context.load_tier_filter.allows(tier.medium, tier.locality))
