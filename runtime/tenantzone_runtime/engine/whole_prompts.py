"""Moves what a prompt's hits need between CPU memory and a disk below it: all of a hit, or nothing.

vLLM moves chunk by chunk: it brings up each that it looks for, and hands down each that was stored. Where chunks are of
use together only, a part of them is of no use, and takes room.
"""

from collections.abc import Sequence
from typing import Any

from vllm.v1.kv_offload.base import OffloadKey, ReqContext
from vllm.v1.kv_offload.tiering.base import TransferJob

from tenantzone_runtime.engine.disk_tier import ZoneDiskTier
from tenantzone_runtime.zones.hit_shape import HitShape


class WholePrompts:
    """The hits of one engine that has CPU memory and a disk.

    Args:
        manager: of the tiers.
        disk: below CPU memory; there is nothing else below it.
        shape: of the model, whose chunks are of use together only.
    """

    def __init__(self, manager: Any, disk: ZoneDiskTier, shape: HitShape) -> None:
        self._manager = manager
        self._primary = manager.primary_tier
        self._disk = disk
        self._shape = shape
        disk.moves_whole_hits = True

    def bring_up(self, context: ReqContext, prompt: Sequence[Sequence[OffloadKey]], begin: int, end: int) -> int | None:
        """Begin to bring up what memory lacks of a prompt's longest hit, unless that was begun for this request before.

        Until it is there, look-ups of it are pending. What memory or the disk has no room for is looked for no more,
        and computed: to bring it up again and again would go on for ever.

        Args:
            context: of the request.
            prompt: for each group, the keys of its chunks from the beginning.
            begin: tokens that are in the engine's blocks.
            end: in tokens, beyond which nothing is looked for.

        Returns:
            Where the hit ends that is being brought up, in tokens; None: none is.
        """
        if not context.load_tier_filter.allows(self._disk.medium, self._disk.locality):
            return None
        self._manager.note_finished_jobs()
        primary, disk = self._primary, self._disk

        def is_there(key: OffloadKey) -> bool:
            return bool(primary.holds(key, context)) or disk.holds(key, context)

        hit_end = self._shape.longest(prompt, begin, end, is_there)
        keys = self._shape.keys(prompt, hit_end, begin)
        primary.count_on(keys, context)
        lacking = [key for key in keys if not primary.holds(key, context)]
        if not primary.may_bring_up(lacking, context) or not disk.may_load(lacking, context):
            return None
        chunk_ids = primary.make_room_for_hit(keys, context)
        if len(chunk_ids) < len(lacking):
            return None
        disk.promise(lacking, context)
        self._manager.load_from(disk, lacking, chunk_ids, context)
        return hit_end

    def hand_down(self, context: ReqContext) -> None:
        """Begin to store on the disk what memory has of a request's prompt that has ended, hit by hit."""
        hits = self._primary.whole_hits(context)
        for hit in hits:
            job: TransferJob = self._manager.store_job(self._disk, self._disk.lacks(hit, context), context)
            self._disk.store_hit(job, hit)
        for hit in hits:
            # The shortest last: it is of use for more prompts than the others.
            self._disk.use(hit, context)
