"""Builds an engine's CPU memory tier, disk tier and shared tier for vLLM's offloading."""

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

from tenantzone_contract.zone_config.instance import Instance
from tenantzone_runtime.disk.opening import BOUNDS as DISK_BOUNDS
from tenantzone_runtime.disk.opening import open_disk_tier
from tenantzone_runtime.engine.tiers.disk_tier import DiskRequest, ZoneDiskTier
from tenantzone_runtime.engine.tiers.memcpy_worker import MemcpyOffloadingWorker
from tenantzone_runtime.engine.tiers.secondary_tier import AnyTier, ZoneSecondaryTier
from tenantzone_runtime.engine.tiers.shared_tier import SharedRequest, ZoneSharedTier
from tenantzone_runtime.engine.tiers.tier_manager import ZoneOffloadingManager
from tenantzone_runtime.engine.tiers.whole_prompts import WholePrompts
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
from tenantzone_runtime.shared.transfers.writing import Shape
from tenantzone_runtime.zones.tiers.hit_shape import HitShape
from tenantzone_runtime.zones.tiers.tier import Tier, TransferBounds

logger = logging.getLogger(__name__)

BOUNDS: Final = TransferBounds(stores=1024, loads=1024)
"""Maximum number of a zone's chunks in transfer to and from CPU memory. Chunks in transfer can't be evicted."""


ALONE: Final = HitShape(1, (None,))
"""Shape of hits for a model with one KV cache group, where a chunk needs only the chunks before it."""


class ZonePrimaryTier(ZoneOffloadingManager):
    """The CPU memory tier: its manager, and the memory that contains its chunks.

    Args:
        tier: the tier's ledger, with the zones' shares.
        region: the memory, which is shared with the workers that copy chunks.
        enable_events: whether to emit events for added and removed keys.
    """

    def __init__(self, tier: Tier, region: SharedOffloadRegion, enable_events: bool = False) -> None:
        super().__init__(tier, enable_events)
        self._region = region
        self._view: memoryview = region.create_kv_memoryview()

    def get_kv_memoryview(self) -> memoryview:
        """Returns the memory, one row per chunk."""
        return self._view

    def shutdown(self) -> None:
        super().shutdown()
        self._view.release()
        self._region.cleanup()


class ZoneTieringManager(TieringOffloadingManager):
    """vLLM's manager of several tiers, changed so that it copies to lower tiers only chunks that still exist."""

    primary_tier: ZonePrimaryTier
    secondary_tiers: list[AnyTier]
    before_loads: Callable[[], object] = staticmethod(bool)
    """Called in each step after vLLM has scheduled requests and before it loads their hits."""

    whole_prompts: WholePrompts | None = None
    """Moves whole hits between CPU memory and lower tiers. None if single chunks are moved or no lower tier exists."""

    @property
    def shared_tier(self) -> ZoneSharedTier | None:
        """The tier of storages that engines share, or None if the engine has no such tier."""
        return self._tier(SharedRequest.tier_type)

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        self._maybe_process_finished_jobs()
        self.before_loads()
        super().on_schedule_end(context)

    def _flush_pending_cascades(self) -> None:
        # If there is no lower tier, there is nothing to copy, but vLLM's method would still scan all requests.
        if self.secondary_tiers:
            super()._flush_pending_cascades()

    def move_whole_hits(self, shape: HitShape) -> None:
        """From now on, move only whole hits to and from lower tiers, if any, because single chunks are useless."""
        if self.secondary_tiers:
            self.whole_prompts = WholePrompts(self, self._tier(DiskRequest.tier_type), self.shared_tier, shape)

    def _tier(self, name: str) -> AnyTier | None:
        return next((tier for tier in self.secondary_tiers if tier.tier_type == name), None)

    def note_finished_jobs(self) -> None:
        """Process finished copies, but at most once per step."""
        self._maybe_process_finished_jobs()

    def load_from(self, tier: AnyTier, keys: list[OffloadKey], chunk_ids: list[int], req_context: ReqContext) -> None:
        """Load chunks from a lower tier at the end of this step. The caller must have made room in CPU memory."""
        index = self.secondary_tiers.index(tier)
        sources = self._request_load_sources.setdefault(req_context.req_id, {})
        sources.update(dict.fromkeys(keys, tier.cache_hit_source))
        waiting = self._pending_load_submissions.setdefault(index, {})
        entry = waiting.setdefault(req_context.req_id, PendingPromotion(req_context))
        entry.keys.extend(keys)
        entry.chunk_ids.extend(chunk_ids)

    def store_job(self, tier: AnyTier, keys: Collection[OffloadKey], req_context: ReqContext) -> TransferJob:
        """Returns a job that copies chunks from CPU memory to a lower tier. The caller must submit it to the tier."""
        return self.create_store_job(keys, req_context, self.secondary_tiers.index(tier))

    def _should_store_to_tier(self, tier: AnyTier, num_blocks: int) -> bool:
        # If whole hits are moved, `_maybe_finalize_request` copies all chunks of a prompt after the request has ended.
        return self.whole_prompts is None and bool(super()._should_store_to_tier(tier, num_blocks))

    def _maybe_finalize_request(self, req_id: str, exclude_tier_idx: int | None = None) -> None:
        state = self._req_state[req_id]
        if self.whole_prompts is not None and state.is_finished and not state.pending_primary_stores:
            self.whole_prompts.hand_down(state.req_context)
        super()._maybe_finalize_request(req_id, exclude_tier_idx)

    def is_copying(self, req_context: ReqContext) -> bool:
        """Returns whether chunks of a request are being copied between CPU memory and lower tiers."""
        pending = any(req_context.req_id in each for each in self._pending_load_submissions.values())
        return pending or any(job.transfer_job.req_context is req_context for job in self._jobs.values())

    def copy_down(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        """Begin to copy chunks from CPU memory to the storages that engines share."""
        tier = self.shared_tier
        assert tier is not None
        tier.submit_store(self.create_store_job(keys, req_context, self.secondary_tiers.index(tier)))

    def on_new_request(
        self, req_context: ReqContext, *, exclude_tier_idx: int | None = None
    ) -> RequestOffloadingContext:
        # vLLM's method calls `on_new_request` only for the lower tiers.
        self.primary_tier.on_new_request(req_context)
        return super().on_new_request(req_context, exclude_tier_idx=exclude_tier_idx)

    def create_store_job(self, keys: Collection[OffloadKey], req_context: ReqContext, tier_idx: int = 0) -> TransferJob:
        # Leave out chunks that no longer exist, because they were purged meanwhile or their zone is being removed.
        return super().create_store_job(self.primary_tier.are_kept(keys, req_context), req_context, tier_idx)


class ZoneOffloadingSpec(TieringOffloadingSpec):
    """Builds the tiers that ``--kv-transfer-config`` declares.

    Args:
        config: vLLM's offloading config.
        instance: returns the instance of a tenant's chunks. Required to build a tier below CPU memory.
        salt_key: the pool's salt key. Required to build a tier below CPU memory.
        bounds: the maximum numbers of a zone's chunks in transfer to and from CPU memory.
        shape: which chunks a hit needs. Required to build tiers for a model with several KV cache groups.
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
        # False, because each request's zone decides which chunks are offloaded.
        self.offload_prompt_only = False
        self._manager: ZoneTieringManager | None = None
        self._worker: OffloadingWorker | None = None
        self._instance = instance
        self._salt_key = salt_key
        self._bounds = bounds
        self.shape = shape
        if not self.num_chunks:
            raise ValueError(
                f"cpu_bytes_to_use={self._flags.cpu_bytes} is too small for one chunk of "
                f"{self.kv_bytes_per_chunk} bytes; increase the size of the CPU tier"
            )

    def get_manager(self) -> OffloadingManager:
        if self._manager is None:
            self._manager = self._make_manager()
        return self._manager

    def _make_manager(self) -> ZoneTieringManager:
        region = self._open_region(None)
        # Unlink the file now, because every worker has mapped it. The kernel frees its memory when all processes end.
        Path(region.mmap_path).unlink(missing_ok=True)
        region._creator = False
        primary = ZonePrimaryTier(
            Tier("cpu", self.num_chunks, self.kv_bytes_per_chunk, self._bounds),
            region,
            self.kv_events_config.enable_kv_cache_events,
        )
        return ZoneTieringManager(primary, self._tiers_below(primary.get_kv_memoryview()))

    def _tiers_below(self, view: memoryview) -> list[AnyTier]:
        disk, manager = self._flags.disk, self._flags.manager
        tiers: list[AnyTier] = []
        if disk is not None:
            tiers.append(self._disk_tier(view, disk))
        if manager is not None:
            tiers.append(self._shared_tier(view, manager))
        return tiers

    def _disk_tier(self, view: memoryview, flags: DiskFlags) -> ZoneDiskTier:
        salt_key, instance = self._sealed_by()
        if not salt_key.id:
            logger.warning(
                "The pool has no salt key, so this engine will find nothing in its disk tier after a restart"
            )
        is_linked = self.shape.is_linked
        tier = open_disk_tier(
            flags.folder,
            flags.bytes,
            self.kv_bytes_per_chunk,
            salt_key=lambda: salt_key.key,
            instance=instance,
            # If chunks are linked, the bounds must allow all chunks of a prompt in one transfer.
            bounds=self._bounds if is_linked else DISK_BOUNDS,
            shape=self.shape if is_linked else None,
        )
        return ZoneSecondaryTier(self, view, DiskRequest, tier, salt_key.poll)

    def _shared_tier(self, view: memoryview, flags: ManagerFlags) -> ZoneSharedTier:
        salt_key, instance = self._sealed_by()
        if not salt_key.id:
            logger.warning("This engine stores nothing in shared storages until the pool has a salt key")
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
            # If chunks are linked, the bounds must allow all chunks of a prompt in one transfer.
            settings=budget.for_chunks(self._bounds.loads) if is_linked else budget,
        )
        return ZoneSecondaryTier(self, view, SharedRequest, tier, salt_key.poll)

    def _sealed_by(self) -> tuple[SaltKeySource, Callable[[str], Instance]]:
        """Returns the pool's salt key, and a function that returns the instance of a tenant's chunks."""
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
