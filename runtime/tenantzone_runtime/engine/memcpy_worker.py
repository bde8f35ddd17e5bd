"""Copies chunks between an engine's blocks and the CPU memory tier where both are in CPU memory.

vLLM's own worker copies by streams of a GPU, and refuses to start without one.
"""

import time
from collections.abc import Iterator

import torch
from vllm.v1.kv_offload.base import (
    BlockIDsLoadStoreSpec,
    CanonicalKVCaches,
    GPULoadStoreSpec,
    LoadStoreSpec,
    OffloadingWorker,
    TransferResult,
)


class MemcpyOffloadingWorker(OffloadingWorker):
    """Copies when it is asked to, and tells that it is done when it is asked next.

    A chunk is laid out as vLLM lays it out: for each tensor of the KV caches, the pages of its blocks one after the
    other.

    Args:
        kv_caches: of the engine, in CPU memory.
        blocks_per_chunk: how many blocks a chunk holds.
        chunk_count: of the tier.

    Raises:
        ValueError: the KV caches are elsewhere.
    """

    def __init__(self, kv_caches: CanonicalKVCaches, blocks_per_chunk: int, chunk_count: int) -> None:
        for cache in kv_caches.tensors:
            if cache.tensor.device.type != "cpu":
                raise ValueError(
                    f"KV caches on {cache.tensor.device} can't be copied by the CPU: use vLLM's own worker"
                )
        self._blocks_per_chunk = blocks_per_chunk
        self._groups = kv_caches.group_data_refs
        self._blocks = [cache.tensor.view(torch.int8).view((-1, cache.page_size_bytes)) for cache in kv_caches.tensors]
        self._pages = [
            torch.zeros((chunk_count * blocks_per_chunk, cache.page_size_bytes), dtype=torch.int8)
            for cache in kv_caches.tensors
        ]
        self._finished: list[TransferResult] = []

    def submit_store(self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: LoadStoreSpec) -> bool:
        return self._copy(job_id, src_spec, dst_spec, self._blocks, self._pages, is_store=True)

    def submit_load(self, job_id: int, src_spec: LoadStoreSpec, dst_spec: GPULoadStoreSpec) -> bool:
        return self._copy(job_id, dst_spec, src_spec, self._pages, self._blocks, is_store=False)

    def get_finished(self) -> list[TransferResult]:
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids: set[int]) -> None:
        """Nothing to wait for: what was submitted is copied."""

    def _copy(
        self,
        job_id: int,
        of_engine: GPULoadStoreSpec,
        of_tier: LoadStoreSpec,
        sources: list[torch.Tensor],
        targets: list[torch.Tensor],
        *,
        is_store: bool,
    ) -> bool:
        assert isinstance(of_tier, BlockIDsLoadStoreSpec)
        began, copied = time.monotonic(), 0
        for group, (blocks, pages) in enumerate(self._places(of_engine, of_tier)):
            source, target = (blocks, pages) if is_store else (pages, blocks)
            for ref in self._groups[group]:
                size = ref.page_size_bytes
                targets[ref.tensor_idx][target, :size] = sources[ref.tensor_idx][source, :size]
                copied += size * len(blocks)
        self._finished.append(TransferResult(job_id, True, copied, time.monotonic() - began))
        return True

    def _places(
        self, of_engine: GPULoadStoreSpec, of_tier: BlockIDsLoadStoreSpec
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """For each group, the ids of blocks and the rows of the tier that belong together.

        The first block of a group may be in the midst of its chunk, and so may the last.
        """
        blocks, chunks = torch.from_numpy(of_engine.block_ids).long(), torch.from_numpy(of_tier.block_ids).long()
        first_block = first_chunk = 0
        for size, index in zip(of_engine.group_sizes, of_engine.block_indices, strict=True):
            positions = index % self._blocks_per_chunk + torch.arange(size)
            of_group = chunks[first_chunk + positions // self._blocks_per_chunk]
            pages = of_group * self._blocks_per_chunk + positions % self._blocks_per_chunk
            yield blocks[first_block : first_block + size], pages
            first_block += size
            if size:
                first_chunk += int(positions[-1]) // self._blocks_per_chunk + 1
        assert first_chunk == len(chunks), "each chunk has blocks"
