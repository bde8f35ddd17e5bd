"""Copies chunks between the blocks of an engine without a GPU and the CPU memory tier.

vLLM's worker copies with GPU streams, and does not start without a GPU.
"""

import time
from collections.abc import Iterable, Iterator
from ctypes import memmove

import numpy as np
import numpy.typing as npt
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
    """Copies synchronously on submission, and reports completion at the next poll.

    As in vLLM, a chunk contains the pages of its blocks, in order, for each tensor of the KV caches.

    Args:
        kv_caches: the engine's KV caches, in CPU memory.
        blocks_per_chunk: the number of blocks of a chunk.
        pages: the tier's memory for each tensor of the KV caches. A row contains the pages of one chunk's blocks, in
            order. Rows need not be adjacent.

    Raises:
        ValueError: the KV caches are not in CPU memory.
    """

    def __init__(self, kv_caches: CanonicalKVCaches, blocks_per_chunk: int, pages: Iterable[torch.Tensor]) -> None:
        for cache in kv_caches.tensors:
            if cache.tensor.device.type != "cpu":
                raise ValueError(
                    f"KV caches on {cache.tensor.device} can't be copied by the CPU; use vLLM's own worker"
                )
        self._blocks_per_chunk = blocks_per_chunk
        self._groups = kv_caches.group_data_refs
        self._blocks = [cache.tensor.view(torch.int8).view((-1, cache.page_size_bytes)) for cache in kv_caches.tensors]
        self._pages = [torch.unflatten(rows, 1, (blocks_per_chunk, -1)) for rows in pages]
        self._finished: list[TransferResult] = []

    def submit_store(self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: LoadStoreSpec) -> bool:
        return self._copy(job_id, src_spec, dst_spec, is_store=True)

    def submit_load(self, job_id: int, src_spec: LoadStoreSpec, dst_spec: GPULoadStoreSpec) -> bool:
        return self._copy(job_id, dst_spec, src_spec, is_store=False)

    def get_finished(self) -> list[TransferResult]:
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids: set[int]) -> None:
        """Do nothing, because submitted copies are already complete."""

    def _copy(self, job_id: int, of_engine: GPULoadStoreSpec, of_tier: LoadStoreSpec, *, is_store: bool) -> bool:
        assert isinstance(of_tier, BlockIDsLoadStoreSpec)
        began, copied = time.monotonic(), 0
        for group, (block_ids, parts) in enumerate(self._places(of_engine, of_tier)):
            blocks, places = np.array(block_ids).reshape(-1, 1), np.array(parts).reshape(-1, 2)
            for ref in self._groups[group]:
                size = ref.page_size_bytes
                engine, tier = self._blocks[ref.tensor_idx], self._pages[ref.tensor_idx]
                of_blocks, of_chunks = addresses(engine, blocks, size), addresses(tier, places, size)
                targets, sources = (of_chunks, of_blocks) if is_store else (of_blocks, of_chunks)
                # Copy page by page, because gathering all pages first would copy each byte twice. Copy by address,
                # because indexing and copying a tensor of 16 KiB takes twice as long as copying the bytes.
                for target, source in zip(targets, sources, strict=True):
                    memmove(target, source, size)
                copied += size * len(blocks)
        self._finished.append(TransferResult(job_id, True, copied, time.monotonic() - began))
        return True

    def _places(
        self, of_engine: GPULoadStoreSpec, of_tier: BlockIDsLoadStoreSpec
    ) -> Iterator[tuple[list[int], list[tuple[int, int]]]]:
        """Iterate over the groups. Each item has the ids of a group's blocks, and the chunk and position of each block.

        A position is relative to the chunk. A group may begin and end within a chunk.
        """
        blocks, chunks = of_engine.block_ids.tolist(), of_tier.block_ids.tolist()
        first_block = first_chunk = 0
        for size, index in zip(of_engine.group_sizes, of_engine.block_indices, strict=True):
            positions = range(index % self._blocks_per_chunk, index % self._blocks_per_chunk + size)
            steps = [divmod(position, self._blocks_per_chunk) for position in positions]
            yield blocks[first_block : first_block + size], [(chunks[first_chunk + row], part) for row, part in steps]
            first_block += size
            if size:
                first_chunk += steps[-1][0] + 1
        assert first_chunk == len(chunks), "a chunk has no blocks"


def addresses(memory: torch.Tensor, places: npt.NDArray[np.int64], size: int) -> list[int]:
    """Returns the memory address of each place.

    Args:
        memory: a tensor of bytes whose last dimension is contiguous.
        places: the places, each as the indices of a row of ``memory``.
        size: the number of bytes to read or write at each place.

    Raises:
        IndexError: a place is outside the memory, or its row has fewer than ``size`` bytes.
    """
    *shape, row = memory.shape
    *strides, step = memory.stride()
    if (places < 0).any() or (places >= shape).any():
        raise IndexError(f"pages {places.min(0)} to {places.max(0)} are not all within memory of shape {shape}")
    if size > row or step != 1:
        raise IndexError(f"can't copy {size} bytes from rows of {row} elements with a stride of {step}")
    begins: list[int] = (memory.data_ptr() + places @ np.array(strides)).tolist()
    return begins
