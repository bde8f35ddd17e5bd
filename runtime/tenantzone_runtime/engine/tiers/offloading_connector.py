"""The KV connector for ``--kv-transfer-config``: vLLM's offloading connector, with a zone for each request.

Zones support no other connector, because the tiers' ledgers must count all stores and loads.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import gcd
from typing import Any

from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import build_offloading_config
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler,
    RequestOffloadState,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import OffloadingConnectorWorker
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.core.kv_cache_utils import BlockHash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.kv_offload.base import OffloadKey
from vllm.v1.request import Request, RequestStatus

from tenantzone_runtime.engine.blocks.block_pool import ZoneBlockPool
from tenantzone_runtime.engine.blocks.requests import may_be_cached, state_of, zone_of
from tenantzone_runtime.engine.tiers.hit_bounds import bounds_of, shape_of
from tenantzone_runtime.engine.tiers.instances import instance_of
from tenantzone_runtime.engine.tiers.migration import Migration
from tenantzone_runtime.engine.tiers.moved_prompt import Jobs
from tenantzone_runtime.engine.tiers.offloading_spec import ZoneOffloadingSpec, ZoneTieringManager
from tenantzone_runtime.engine.tiers.quiet_requests import QuietRequests
from tenantzone_runtime.engine.tiers.whole_prompts import BringUp, WholePrompts
from tenantzone_runtime.salt import SaltKeySource
from tenantzone_runtime.settings import read_settings
from tenantzone_runtime.zones.blocks.purging import is_under_way
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tiers.offloading import offloads_nothing, tokens_to_offload


class ZoneOffloadingScheduler(OffloadingConnectorScheduler):
    """The scheduler's side of vLLM's offloading. It limits stores and loads to the rights of each request's zone."""

    manager: ZoneTieringManager

    def __init__(self, spec: ZoneOffloadingSpec, vllm_config: VllmConfig, kv_cache_config: KVCacheConfig) -> None:
        super().__init__(spec, vllm_config, kv_cache_config)
        self._shape = spec.shape
        self._quiet = QuietRequests(gcd(*(group.tokens_per_chunk for group in self.config.kv_group_configs)))
        self._preempted: set[str] = set()
        """Ids of requests that were preempted after the last step was scheduled."""
        self._pool: ZoneBlockPool | None = None
        self.migration = Migration(self)
        self._moved: Jobs = {}
        self.manager.before_loads = self._migrate
        if self._shape.is_linked:
            self.manager.move_whole_hits(self._shape)

    def bind(self, request: Request, zone: Zone | None) -> None:
        """Set the zone of a request before it is added.

        Args:
            request: a request that the scheduler has bound.
            zone: the request's zone, or None if the request arrived before any zone was declared.
        """
        if _keeps_out(zone):
            return
        tenant = None if zone is None else zone.spec.tenant
        self.manager.primary_tier.bind(request.request_id, tenant)
        for tier in self.manager.secondary_tiers:
            tier.bind(request.request_id, tenant)

    def on_new_request(self, request: Request) -> None:
        if _keeps_out(zone_of(request)):
            return
        super().on_new_request(request)
        status = self._req_status[request.request_id]
        for tier in self.manager.secondary_tiers:
            tier.know_prompt(status.req_context, status.group_states[0].offload_keys)
        if self._shape.is_linked:
            needed = self._shape.chunks(self._shape.end(request.num_prompt_tokens - 1))
            self.manager.primary_tier.know_prompt(status.req_context, partial(self._hits_of, status), needed)

    def _hits_of(self, status: RequestOffloadState) -> list[list[OffloadKey]]:
        """Returns the keys that each possible hit of a request's prompt needs, longest hit first.

        A hit can end after the prompt's last full chunk, or where earlier prompts branched off. vLLM stores the
        attention windows only at these positions.
        """
        request = status.req
        ends = {self._shape.end(request.num_prompt_tokens - 1), self._shape.end(request.shared_prefix_boundary)}
        prompt = [group.offload_keys for group in status.group_states]
        hits = [self._shape.keys(prompt, end) for end in sorted(ends, reverse=True)]
        return [keys for keys in hits if keys]

    def know_blocks(self, pool: ZoneBlockPool) -> None:
        """Set the engine's block pool, from whose blocks migrations copy."""
        self._pool = pool

    # Loads

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int, max_num_new_tokens: int | None = None
    ) -> tuple[int | None, bool]:
        status = self._req_status.get(request.request_id)
        if status is None:
            return 0, False
        if request.request_id in self._preempted or self.is_looking_up(request):
            # A preempted request can't load chunks yet, because vLLM may still copy its former blocks in the next step.
            return None, False
        primary = self.manager.primary_tier
        primary.begin_lookup(status.req_context)
        # A hit can't exceed the number of chunks that the zone may load. The model computes the rest of the prompt.
        loadable = self._shape.tokens_in(primary.loadable(status.req_context))
        if self._shape.is_linked:
            # Add one, because vLLM subtracts one so that the model computes at least one token.
            loadable += 1
        most = loadable if max_num_new_tokens is None else min(loadable, max_num_new_tokens)
        zone = zone_of(request)
        if zone is not None and is_under_way(zone):
            # Load nothing, because the tiers may still have chunks from before the purge.
            most = 0
        if self.manager.whole_prompts is not None and not request.skip_reading_prefix_cache:
            looked_for = self._bring_up(self.manager.whole_prompts, status, num_computed_tokens, most)
            if looked_for is None:
                if status.deferred_lookup_start_time is None:
                    status.deferred_lookup_start_time = time.monotonic()
                return None, False
            most = looked_for
        return super().get_num_new_matched_tokens(request, num_computed_tokens, most)

    def _bring_up(self, whole: WholePrompts, status: RequestOffloadState, begin: int, most: int) -> int | None:
        """Begin to load the longest hit of a prompt.

        Returns:
            Maximum number of tokens that vLLM may look up from ``begin`` on. None if the hits are not known yet.
        """
        status.update_offload_keys()
        end = self._shape.end(min(status.req.num_tokens, begin + most) - 1)
        prompt = [group.offload_keys for group in status.group_states]
        hits = whole.hits(status.req_context, prompt, begin, end)
        if hits is None:
            return None
        for hit in hits:
            match whole.bring_up(status.req_context, prompt, begin, hit):
                case BringUp.BEGUN:
                    return hit - begin + 1
                case BringUp.NEEDLESS:
                    break
            # This hit can't be loaded, but a shorter hit in another tier may be loadable.
        return most

    def is_looking_up(self, request: Request) -> bool:
        """Returns whether a request waits for an answer about its chunks, or for its chunks to be stored or loaded."""
        status = self._req_status.get(request.request_id)
        if status is None or status.deferred_lookup_start_time is None:
            return False
        if status.transfer_jobs or self.manager.primary_tier.is_awaiting(status.req_context):
            return True
        if any(tier.is_waiting(status.req_context) for tier in self.manager.secondary_tiers):
            return True
        return bool(self._chunks_being_loaded) and not self._chunks_being_loaded.isdisjoint(_keys(status))

    # Stores

    def _calc_num_offloadable_tokens(self, req_status: RequestOffloadState, num_computed_tokens: int) -> int:
        tokens: int = super()._calc_num_offloadable_tokens(req_status, num_computed_tokens)
        request = req_status.req
        if self._shape.is_linked:
            # vLLM stores no attention windows beyond this end, so later chunks could never be part of a hit.
            tokens = min(tokens, self._shape.end(request.num_prompt_tokens - 1))
        zone = zone_of(request)
        if zone is None:
            return tokens
        if not may_be_cached(request, zone):
            return 0
        return tokens_to_offload(zone.spec, request.num_prompt_tokens, tokens)

    def _reachable_store_block_mask(self, group_config: Any, **blocks: Any) -> list[bool] | None:
        window = group_config.sliding_window_size_in_chunks
        if self._shape.is_linked and window is not None:
            # vLLM looks up all chunks that a window may span, but may store one chunk fewer. So enlarge the window to
            # whole chunks.
            spec = replace(group_config.kv_cache_spec, sliding_window=window * group_config.tokens_per_block)
            group_config = group_config._replace(kv_cache_spec=spec)
        mask: list[bool] | None = super()._reachable_store_block_mask(group_config=group_config, **blocks)
        return mask

    def _has_more_to_store(self, status: RequestOffloadState, computed_tokens: int) -> bool:
        tokens = self._calc_num_offloadable_tokens(status, computed_tokens)
        groups = zip(self.config.kv_group_configs, status.group_states, strict=True)
        return any(tokens // group.tokens_per_chunk > state.next_stored_chunk_idx for group, state in groups)

    def preempted(self, request: Request) -> None:
        """Record that a request was preempted and has lost its blocks."""
        self._preempted.add(request.request_id)
        status = self._req_status.get(request.request_id)
        for group in status.group_states if status is not None else ():
            # Forget the ids. Otherwise, if the request ended before it resumed, vLLM would store the blocks' later
            # contents.
            group.block_ids.clear()

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        self._preempted.clear()
        meta = super().build_connector_meta(
            self._quiet.leave_out(
                scheduler_output, self._req_status, self._has_more_to_store, self._current_batch_allocated_block_ids
            )
        )
        if scheduler_output.new_block_ids_to_zero:
            # Workers may zero these blocks before they have copied the blocks' content, so the copies may be wrong.
            zeroed = set(scheduler_output.new_block_ids_to_zero)
            for job in [self._jobs[job_id] for job_id in meta.jobs_to_flush if job_id in self._jobs]:
                sources = [*(job.deferred_fence_block_ids or ()), *(job.fenced_block_ids or ())]
                if job.is_store and not zeroed.isdisjoint(sources):
                    self.manager.primary_tier.lose(job.keys, self._req_status[job.req_id].req_context)
        return meta

    def _build_store_jobs(self, scheduler_output: SchedulerOutput) -> Jobs:
        jobs: Jobs = super()._build_store_jobs(scheduler_output)
        moved, self._moved = self._moved, {}
        return jobs | moved

    # Requests end

    def request_finished(self, request: Request) -> tuple[bool, dict[str, Any] | None]:
        if request.request_id not in self._req_status:
            return False, None
        if request.status == RequestStatus.FINISHED_ERROR:
            self.condemn(request)
        result: tuple[bool, dict[str, Any] | None] = super().request_finished(request)
        self._remember(request)
        return result

    def _remember(self, request: Request) -> None:
        """Record the hashes of an ended request's blocks that may be stored in tiers, for migrations."""
        status, zone = self._req_status.get(request.request_id), zone_of(request)
        if status is None or zone is None or request.status == RequestStatus.FINISHED_ERROR:
            return
        shared = self.manager.shared_tier
        if shared is not None and zone.spec.tenant in shared.below.zones and not self._shape.is_linked:
            group = self.config.kv_group_configs[0]
            tokens = self._calc_num_offloadable_tokens(status, request.num_computed_tokens)
            each = group.hashes_per_chunk // self.config.blocks_per_chunk
            hashes = request.block_hashes[each - 1 : tokens // group.tokens_per_block * each : each]
            self.migration.remember(zone, hashes)

    def condemn(self, request: Request) -> None:
        """Remove from every tier all chunks that a request has stored or is storing, and stop storing its chunks."""
        status = self._req_status.get(request.request_id)
        if status is None:
            return
        for group in status.group_states:
            group.block_ids.clear()
        keys = self.manager.primary_tier.condemn(status.req_context)
        for tier in self.manager.secondary_tiers:
            tier.condemn(status.req_context, keys)

    # Migrations

    def _migrate(self) -> None:
        self._moved = self.migration.turn()

    def held_blocks(self, tenant: str) -> int:
        """Returns the number of the engine's blocks that a tenant's zone holds."""
        zone = self._pool.zones.get(tenant) if self._pool is not None else None
        return 0 if zone is None else zone.held

    def cached_blocks(self, tenant: str, hashes: Sequence[bytes]) -> Sequence[int] | None:
        """Returns the ids of the tenant's cached blocks with these hashes, or None if a block is missing or in use."""
        found = self._pool.cached_blocks(tenant, map(BlockHash, hashes)) if self._pool is not None else None
        # A block that a request got and lost in this step looks cached, but has not been computed.
        return found if found and self._current_batch_allocated_block_ids.isdisjoint(found) else None

    def has_pending_push_work(self) -> bool:
        return self.migration.wants_step or bool(super().has_pending_push_work())

    def reset_cache(self) -> None:
        self.migration.stop_all("the engine's caches were reset")
        super().reset_cache()


class ZoneOffloadingConnector(OffloadingConnector):
    """vLLM's offloading connector, whose tiers are divided among zones."""

    connector_scheduler: ZoneOffloadingScheduler | None

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        KVConnectorBase_V1.__init__(self, vllm_config, role, kv_cache_config)
        config = build_offloading_config(vllm_config, kv_cache_config)
        self._canonical_layout = config.canonical_layout
        self.connector_scheduler = None
        self.connector_worker = None
        if role == KVConnectorRole.WORKER:
            self.connector_worker = OffloadingConnectorWorker(ZoneOffloadingSpec(config), vllm_config, kv_cache_config)
            return
        settings = read_settings(os.environ)
        salt_key = SaltKeySource(settings.salt_dir, settings.seal_key)
        salt_key.poll()
        spec = ZoneOffloadingSpec(
            config,
            instance_of(vllm_config, config, kv_cache_config),
            salt_key,
            bounds_of(vllm_config, config),
            shape_of(config, kv_cache_config),
        )
        self.connector_scheduler = ZoneOffloadingScheduler(spec, vllm_config, kv_cache_config)

    @property
    def scheduler(self) -> ZoneOffloadingScheduler:
        assert self.connector_scheduler is not None, "only the scheduler's side of the connector has a scheduler"
        return self.connector_scheduler

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        if num_external_tokens:
            state_of(request).loaded_tokens = num_external_tokens
        super().update_state_after_alloc(request, blocks, num_external_tokens)


def _keeps_out(zone: Zone | None) -> bool:
    """Returns whether a zone's requests never use tiers."""
    return zone is not None and offloads_nothing(zone.spec)


def _keys(status: RequestOffloadState) -> list[OffloadKey]:
    return [key for group in status.group_states for key in group.offload_keys]
