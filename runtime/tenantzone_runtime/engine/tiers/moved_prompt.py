"""A prompt whose chunks a migration moves between tiers, although no request has the prompt.

vLLM's tiers treat the prompt as an ended request. So chunks are pinned while they are copied. If a block is allocated
to another request while it is being copied, the copy completes before that request writes to the block.
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from types import SimpleNamespace
from typing import Any, Final

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import TransferJob
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import RequestOffloadState, TransferJobStatus
from vllm.v1.kv_offload.base import GPULoadStoreSpec, LookupResult, OffloadKey, ReqContext, make_offload_key

from tenantzone_runtime.shared.manager.queries import Query

Jobs = dict[int, TransferJob]

_NO_REQUEST: Final = SimpleNamespace(kv_transfer_params=None, is_finished=lambda: True)
"""Takes the place of the request, which does not exist. Has the attributes that vLLM reads from requests."""


class MovedPrompt:
    """A prompt that is being moved.

    Args:
        scheduler: the scheduler's side of the offloading connector, with zones.
        name: an id that no request has.
        tenant: the prompt's tenant.
        hashes: the hashes of the prompt's blocks.
    """

    def __init__(self, scheduler: Any, name: str, tenant: str, hashes: Sequence[bytes]) -> None:
        # `scheduler` has no type, because importing its module, which imports this module, would be circular.
        self._scheduler, self._manager = scheduler, scheduler.manager
        self._name, self.tenant = name, tenant
        self._in_a_chunk = scheduler.config.blocks_per_chunk
        self._hashes = hashes
        group = scheduler.config.kv_group_configs[0]
        ends = range(self._in_a_chunk, len(hashes) + 1, self._in_a_chunk)
        self.keys: list[OffloadKey] = [make_offload_key(hashes[end - 1], group.group_idx) for end in ends]
        self._context = context = ReqContext(req_id=name)
        for tier in (self._manager.primary_tier, *self._manager.secondary_tiers):
            tier.bind(name, tenant)
        policy = self._manager.on_new_request(context)
        self._status = RequestOffloadState(scheduler.config, _NO_REQUEST, context, policy)
        for index, key in enumerate(self.keys, start=1):
            context.set_offload_key_position(key, index * group.tokens_per_chunk)
        scheduler._req_status[name] = self._status
        for tier in self._manager.secondary_tiers:
            tier.know_prompt(context, self.keys)

    def end(self) -> None:
        """End the move. Copies in progress complete, but no copies begin any more."""
        self._status.finished_signaled = True
        self._manager.on_request_finished(self._context)
        if not self._status.transfer_jobs:
            del self._scheduler._req_status[self._name]

    @property
    def is_moving(self) -> bool:
        """Whether any chunks of the prompt are being copied."""
        context = self._context
        return (
            bool(self._status.transfer_jobs)
            or self._manager.is_copying(context)
            or self._manager.shared_tier.request(context).is_storing
        )

    @property
    def query(self) -> Query:
        """The query that finds the prompt's chunks in storages."""
        query: Query = self._manager.shared_tier.request(self._context).query
        return query

    def kept(self, keys: Iterable[OffloadKey]) -> set[OffloadKey]:
        """Returns the keys whose chunks are in CPU memory."""
        return set(self._manager.primary_tier.are_kept(keys, self._context))

    def blocks_of(self, index: int) -> Sequence[int] | None:
        """Returns the ids of the engine's cached blocks for a chunk. None if any block is not cached, or is in use."""
        begin = index * self._in_a_chunk
        block_ids: Sequence[int] | None = self._scheduler.cached_blocks(
            self.tenant, self._hashes[begin : begin + self._in_a_chunk]
        )
        return block_ids

    def store(self, first: int, chunks: Sequence[Sequence[int]]) -> Jobs:
        """Begin to copy chunks from the engine's blocks to CPU memory, from where they can be copied to lower tiers.

        Args:
            first: the index of the first chunk in the prompt.
            chunks: the block ids of each chunk.

        Returns:
            Jobs for the workers in this step. Empty if the zone may not store the chunks in CPU memory.
        """
        scheduler, keys = self._scheduler, self.keys[first : first + len(chunks)]
        output = self._manager.prepare_store(keys, self._context)
        stored = set(output.keys_to_store) if output is not None else set()
        if not stored:
            return {}
        pairs = zip(keys, chunks, strict=True)
        block_ids = [block_id for key, blocks in pairs if key in stored for block_id in blocks]
        job_id = scheduler._generate_job_id()
        self._status.transfer_jobs.add(job_id)
        # If another request gets such a block, make vLLM complete the copy first, as it does for an ended request's
        # blocks.
        for block_id in block_ids:
            scheduler._block_id_to_pending_jobs.setdefault(block_id, set()).add(job_id)
        scheduler._jobs[job_id] = TransferJobStatus(
            req_id=self._name,
            pending_count=scheduler.config.num_workers,
            keys=stored,
            is_store=True,
            deferred_fence_block_ids=block_ids,
        )
        source = GPULoadStoreSpec(block_ids, group_sizes=[len(block_ids)], block_indices=[first * self._in_a_chunk])
        return {job_id: TransferJob(req_id=self._name, src_spec=source, dst_spec=output.store_spec)}

    def let_go(self) -> None:
        """Allow CPU memory to evict the chunks that were stored so far, to make room for the next chunks."""
        self._manager.primary_tier.let_go(self._context)

    def copy_down(self, keys: Sequence[OffloadKey]) -> None:
        """Begin to copy chunks from CPU memory to storages."""
        self._manager.copy_down(keys, self._context)

    def bring_up(self, keys: Iterable[OffloadKey]) -> bool:
        """Begin to load chunks from storages into CPU memory, up to the number that the zone may store there.

        Returns:
            Whether all permitted loads have begun. If not, call this again in a later step.
        """
        self._manager.primary_tier.begin_lookup(self._context)
        looked_up = [self._manager.lookup(key, self._context) for key in keys]
        return LookupResult.RETRY not in looked_up

    def use(self, keys: Iterable[OffloadKey]) -> None:
        """Record that chunks in CPU memory are used now. Chunks that were unused for longer are evicted before them."""
        self._manager.primary_tier.touch(list(keys), self._context)

    def count_kept(self, first: int, most: int) -> int:
        """Returns how many consecutive chunks from ``first`` on, at most ``most``, are in CPU memory."""
        keys = self.keys[first : first + most]
        return sum(1 for _ in takewhile(self.kept(keys).__contains__, keys))
