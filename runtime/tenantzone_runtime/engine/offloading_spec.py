"""The tiers below an engine's blocks, as vLLM's offloading makes them: CPU memory, and what there is below it."""

import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import torch
from vllm.platforms import current_platform
from vllm.v1.kv_offload.base import (
    CanonicalKVCaches,
    OffloadingManager,
    OffloadingWorker,
    OffloadKey,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
)
from vllm.v1.kv_offload.config import OffloadingConfig
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.base import TransferJob
from vllm.v1.kv_offload.tiering.manager import PendingPromotion, TieringOffloadingManager
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

from tenantzone_contract.instance import Instance
from tenantzone_runtime.disk.opening import BOUNDS as DISK_BOUNDS
from tenantzone_runtime.disk.opening import open_disk_tier
from tenantzone_runtime.engine.disk_tier import ZoneDiskTier
from tenantzone_runtime.engine.memcpy_worker import MemcpyOffloadingWorker
from tenantzone_runtime.engine.secondary_tier import ZoneSecondaryTier
from tenantzone_runtime.engine.shared_tier import ZoneSharedTier
from tenantzone_runtime.engine.tier_manager import ZoneOffloadingManager
from tenantzone_runtime.engine.whole_prompts import WholePrompts
from tenantzone_runtime.offloading_flags import (
    DiskFlags,
    ManagerFlags,
    TierFlags,
    check_shared_memory,
    read_tier_flags,
)
from tenantzone_runtime.salt import SaltKeySource
from tenantzone_runtime.shared.opening import open_shared_tier
from tenantzone_runtime.shared.settings import SharedSettings
from tenantzone_runtime.shared.writing import Shape
from tenantzone_runtime.zones.hit_shape import HitShape
from tenantzone_runtime.zones.tier import Tier, TransferBounds

logger = logging.getLogger(__name__)

BOUNDS: Final = TransferBounds(stores=1024, loads=1024)
"""Of each zone in CPU memory: copies there and back take no longer than a step, but each pins what it copies."""


ALONE: Final = HitShape(1, (None,))
"""Of a model with one group, each of whose chunks is of use with those before it."""


class ZonePrimaryTier(ZoneOffloadingManager):
    """The CPU memory tier with its memory.

    Args:
        tier: the zones' shares.
        region: the memory, which the workers share.
        enable_events: whether to tell which keys come and go.
    """

    def __init__(self, tier: Tier, region: SharedOffloadRegion, enable_events: bool = False) -> None:
        super().__init__(tier, enable_events)
        self._region = region
        self._view: memoryview = region.create_kv_memoryview()

    def get_kv_memoryview(self) -> memoryview:
        """A row for each chunk."""
        return self._view

    def shutdown(self) -> None:
        super().shutdown()
        self._view.release()
        self._region.cleanup()


class ZoneTieringManager(TieringOffloadingManager):
    """vLLM's manager of several tiers, in which what zones did not keep in one is not looked for to copy it on."""

    primary_tier: ZonePrimaryTier
    secondary_tiers: list[ZoneSecondaryTier]
    beside: Callable[[], object] = staticmethod(bool)
    """Is called in each step, when requests have been scheduled, and before what they look for is brought up."""

    whole_prompts: WholePrompts | None = None
    """Moves hits between CPU memory and what is below; None: chunks go by themselves, or nothing is below."""

    @property
    def shared_tier(self) -> ZoneSharedTier | None:
        """The storages that engines share; None: there are none."""
        return next((tier for tier in self.secondary_tiers if isinstance(tier, ZoneSharedTier)), None)

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        self._maybe_process_finished_jobs()
        self.beside()
        super().on_schedule_end(context)

    def _flush_pending_cascades(self) -> None:
        # With no tier below nothing waits to go there, and vLLM would look at all requests for that.
        if self.secondary_tiers:
            super()._flush_pending_cascades()

    def move_whole_hits(self, shape: HitShape) -> None:
        """Move what is of use together only between CPU memory and what is below together, if anything is."""
        disk = next((tier for tier in self.secondary_tiers if isinstance(tier, ZoneDiskTier)), None)
        if self.secondary_tiers:
            self.whole_prompts = WholePrompts(self, disk, self.shared_tier, shape)

    def note_finished_jobs(self) -> None:
        """Take note of copies that have ended, once in a step."""
        self._maybe_process_finished_jobs()

    def load_from(
        self, tier: ZoneSecondaryTier, keys: list[OffloadKey], chunk_ids: list[int], req_context: ReqContext
    ) -> None:
        """Begin to bring up chunks, for which there is room, at the end of this step."""
        index = self.secondary_tiers.index(tier)
        sources = self._request_load_sources.setdefault(req_context.req_id, {})
        sources.update(dict.fromkeys(keys, tier.cache_hit_source))
        waiting = self._pending_load_submissions.setdefault(index, {})
        entry = waiting.setdefault(req_context.req_id, PendingPromotion(req_context))
        entry.keys.extend(keys)
        entry.chunk_ids.extend(chunk_ids)

    def store_job(self, tier: ZoneSecondaryTier, keys: Collection[OffloadKey], req_context: ReqContext) -> TransferJob:
        """A job that copies chunks from CPU memory to a tier below, which was told of none yet."""
        return self.create_store_job(keys, req_context, self.secondary_tiers.index(tier))

    def _should_store_to_tier(self, tier: ZoneSecondaryTier, num_blocks: int) -> bool:
        # What is of use together only goes down together, when the request has ended.
        return self.whole_prompts is None and bool(super()._should_store_to_tier(tier, num_blocks))

    def _maybe_finalize_request(self, req_id: str, exclude_tier_idx: int | None = None) -> None:
        state = self._req_state[req_id]
        if self.whole_prompts is not None and state.is_finished and not state.pending_primary_stores:
            self.whole_prompts.hand_down(state.req_context)
        super()._maybe_finalize_request(req_id, exclude_tier_idx)

    def is_copying(self, req_context: ReqContext) -> bool:
        """Whether something of a request is on its way between CPU memory and what is below it."""
        pending = any(req_context.req_id in each for each in self._pending_load_submissions.values())
        return pending or any(job.transfer_job.req_context is req_context for job in self._jobs.values())

    def copy_down(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        """Begin to copy chunks from CPU memory to storages that engines share."""
        tier = self.shared_tier
        assert tier is not None
        tier.submit_store(self.create_store_job(keys, req_context, self.secondary_tiers.index(tier)))

    def on_new_request(
        self, req_context: ReqContext, *, exclude_tier_idx: int | None = None
    ) -> RequestOffloadingContext:
        # vLLM asks only the tiers below.
        self.primary_tier.on_new_request(req_context)
        return super().on_new_request(req_context, exclude_tier_idx=exclude_tier_idx)

    def create_store_job(self, keys: Collection[OffloadKey], req_context: ReqContext, tier_idx: int = 0) -> TransferJob:
        # Of chunks that were just stored some may be gone: purged meanwhile, or of a zone that leaves.
        return super().create_store_job(self.primary_tier.are_kept(keys, req_context), req_context, tier_idx)


class ZoneOffloadingSpec(TieringOffloadingSpec):
    """Makes the tiers that ``--kv-transfer-config`` declares.

    Args:
        config: vLLM's.
        instance: what a tenant's chunks depend on; needed where the manager is made, and there is a tier below it.
        salt_key: the pool's; needed there, too.
        bounds: of each zone in CPU memory.
        shape: of the model's groups; needed there, too, where there are several.
    """

    def __init__(
        self,
        config: OffloadingConfig,
        instance: Callable[[str, str], Instance] | None = None,
        salt_key: SaltKeySource | None = None,
        bounds: TransferBounds = BOUNDS,
        shape: HitShape = ALONE,
    ) -> None:
        self._flags: TierFlags = read_tier_flags(config.extra_config)
        super().__init__(config)
        # Which of them go on is said by each request's zone.
        self.offload_prompt_only = False
        self._manager: ZoneTieringManager | None = None
        self._worker: OffloadingWorker | None = None
        self._instance = instance
        self._salt_key = salt_key
        self._bounds = bounds
        self.shape = shape
        if not self.num_chunks:
            raise ValueError(
                f"cpu_bytes_to_use={self._flags.cpu_bytes} has no room for a chunk, which takes "
                f"{self.kv_bytes_per_chunk} bytes; give the CPU memory tier more"
            )

    def get_manager(self) -> OffloadingManager:
        if self._manager is None:
            self._manager = self._make_manager()
        return self._manager

    def _make_manager(self) -> ZoneTieringManager:
        region = self._open_region(None)
        # Each worker has it by now: under its name nobody needs it any more, and whatever ends this process frees it.
        Path(region.mmap_path).unlink(missing_ok=True)
        region._creator = False
        primary = ZonePrimaryTier(
            Tier("cpu", self.num_chunks, self.kv_bytes_per_chunk, self._bounds),
            region,
            self.kv_events_config.enable_kv_cache_events,
        )
        return ZoneTieringManager(primary, self._tiers_below(primary.get_kv_memoryview()))

    def _tiers_below(self, view: memoryview) -> list[ZoneSecondaryTier]:
        disk, manager = self._flags.disk, self._flags.manager
        tiers: list[ZoneSecondaryTier] = []
        if disk is not None:
            tiers.append(self._disk_tier(view, disk))
        if manager is not None:
            tiers.append(self._shared_tier(view, manager))
        return tiers

    def _disk_tier(self, view: memoryview, flags: DiskFlags) -> ZoneDiskTier:
        salt_key, instance = self._sealed_by()
        if not salt_key.id:
            logger.warning("The disk tier is sealed by a key of this process's own: nothing is found after a restart")
        is_linked = self.shape.is_linked
        tier = open_disk_tier(
            flags.folder,
            flags.bytes,
            self.kv_bytes_per_chunk,
            salt_key=lambda: salt_key.key,
            instance=instance,
            # A prompt that is of use whole is on its way whole.
            bounds=self._bounds if is_linked else DISK_BOUNDS,
            shape=self.shape if is_linked else None,
        )
        return ZoneDiskTier(self, view, "disk", tier, salt_key.poll)

    def _shared_tier(self, view: memoryview, flags: ManagerFlags) -> ZoneSharedTier:
        salt_key, instance = self._sealed_by()
        if not salt_key.id:
            logger.warning("Nothing goes to shared storages until the pool has a salt key")
        tokens = self.config.groups[0].tokens_per_block * self.blocks_per_chunk
        budget = SharedSettings(query_seconds=flags.budget_seconds)
        is_linked = self.shape.is_linked
        tier = open_shared_tier(
            flags.url,
            flags.token_file,
            Shape(self.kv_bytes_per_chunk, tokens, self.shape if is_linked else None),
            salt_key=lambda: salt_key.key,
            has_pool_key=lambda: bool(salt_key.id),
            instance=instance,
            tls=flags.tls,
            # A prompt that is of use whole is on its way whole.
            settings=budget.for_chunks(self._bounds.loads) if is_linked else budget,
        )
        return ZoneSharedTier(self, view, "shared", tier, salt_key.poll)

    def _sealed_by(self) -> tuple[SaltKeySource, Callable[[str], Instance]]:
        """The pool's salt key, and what a tenant's chunks depend on."""
        instance, salt_key = self._instance, self._salt_key
        assert instance is not None
        assert salt_key is not None
        return salt_key, lambda tenant: instance(tenant, salt_key.id)

    def _open_region(self, rank: int | None) -> SharedOffloadRegion:
        size = self.num_chunks * self.kv_bytes_per_chunk
        check_shared_memory(size, self._engine_id)
        return SharedOffloadRegion(
            engine_id=self._engine_id,
            num_chunks=self.num_chunks,
            rank=rank,
            kv_bytes_per_chunk=self.kv_bytes_per_chunk,
            cpu_page_size=self.cpu_page_size_per_worker,
        )

    def get_worker(self, kv_caches: CanonicalKVCaches) -> OffloadingWorker:
        if not current_platform.is_cpu():
            check_shared_memory(self.num_chunks * self.kv_bytes_per_chunk, self._engine_id)
            worker: OffloadingWorker = super().get_worker(kv_caches)
            return worker
        if self._worker is None:
            self._worker = self._make_memcpy_worker(kv_caches)
        return self._worker

    def _make_memcpy_worker(self, kv_caches: CanonicalKVCaches) -> OffloadingWorker:
        region = self._open_region(self.config.parallel.rank)
        in_a_chunk = self.blocks_per_chunk
        pages: list[torch.Tensor] = [
            region.create_next_worker_view(cache.page_size_bytes * in_a_chunk) for cache in kv_caches.tensors
        ]
        return MemcpyOffloadingWorker(kv_caches, in_a_chunk, pages)
