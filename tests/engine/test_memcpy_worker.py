"""The worker that copies without a GPU: stored bytes come back unchanged, wherever they are loaded."""

import pytest
import torch
from vllm.v1.kv_offload.base import (
    CanonicalKVCacheRef,
    CanonicalKVCaches,
    CanonicalKVCacheTensor,
    GPULoadStoreSpec,
)
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec

from tenantzone_runtime.engine.tiers.memcpy_worker import MemcpyOffloadingWorker

BLOCKS, PAGE = 12, 16


@pytest.fixture
def caches():
    """Two layers in one group and one in another, of 12 blocks with 16 bytes a page."""
    generator = torch.Generator().manual_seed(1)
    tensors = [
        CanonicalKVCacheTensor(torch.randint(-128, 127, (BLOCKS, PAGE), dtype=torch.int8, generator=generator), PAGE)
        for _ in range(3)
    ]
    groups = [[CanonicalKVCacheRef(0, PAGE), CanonicalKVCacheRef(1, PAGE)], [CanonicalKVCacheRef(2, PAGE)]]
    return CanonicalKVCaches(tensors, groups)


def worker_of(caches, in_a_chunk, chunk_count):
    """A worker whose tier has a row for each chunk, in which the tensors' pages follow one another."""
    sizes = [cache.page_size_bytes * in_a_chunk for cache in caches.tensors]
    rows = torch.zeros((chunk_count, sum(sizes) + 5), dtype=torch.int8)
    return MemcpyOffloadingWorker(caches, in_a_chunk, rows[:, : sum(sizes)].split(sizes, dim=1))


def blocks(first, second, *, at=(0, 0)):
    return GPULoadStoreSpec([*first, *second], group_sizes=(len(first), len(second)), block_indices=at)


@pytest.mark.parametrize("in_a_chunk", [1, 2, 3])
def test_what_was_stored_comes_back_into_other_blocks(caches, in_a_chunk):
    worker = worker_of(caches, in_a_chunk, chunk_count=12)
    before = [cache.tensor.clone() for cache in caches.tensors]
    chunks = CPULoadStoreSpec([11, *range(12 // in_a_chunk - 1)])
    assert worker.submit_store(1, blocks([5, 0, 3, 1, 2, 4], [8, 6, 9, 7, 11, 10]), chunks)
    for cache in caches.tensors:
        cache.tensor.zero_()
    assert worker.submit_load(2, chunks, blocks([6, 7, 8, 9, 10, 11], [0, 1, 2, 3, 4, 5]))
    for layer in (0, 1):
        assert torch.equal(caches.tensors[layer].tensor[6:12], before[layer][[5, 0, 3, 1, 2, 4]])
        assert not caches.tensors[layer].tensor[:6].any(), "nothing else is written"
    assert torch.equal(caches.tensors[2].tensor[:6], before[2][[8, 6, 9, 7, 11, 10]])
    assert not caches.tensors[2].tensor[6:].any()


def test_a_load_may_begin_in_the_midst_of_a_chunk(caches):
    worker = worker_of(caches, 3, chunk_count=4)
    before = caches.tensors[0].tensor.clone()
    worker.submit_store(1, blocks([0, 1, 2, 3, 4, 5], []), CPULoadStoreSpec([2, 0]))
    caches.tensors[0].tensor.zero_()
    worker.submit_load(2, CPULoadStoreSpec([2, 0]), blocks([11, 10, 9], [], at=(2, 0)))
    assert torch.equal(caches.tensors[0].tensor[[11, 10, 9]], before[[2, 3, 4]])
    assert not caches.tensors[0].tensor[:9].any()


def test_each_transfer_is_reported_once_with_its_bytes(caches):
    worker = worker_of(caches, 1, chunk_count=4)
    worker.submit_store(7, blocks([0, 1], [2]), CPULoadStoreSpec([0, 1, 2]))
    worker.wait({7})
    (result,) = worker.get_finished()
    assert (result.job_id, result.success, result.transfer_size) == (7, True, 2 * 2 * PAGE + PAGE)
    assert worker.get_finished() == []


def test_caches_that_are_not_in_cpu_memory_are_refused():
    caches = CanonicalKVCaches([CanonicalKVCacheTensor(torch.zeros((1, PAGE), device="meta"), PAGE)], [[]])
    with pytest.raises(ValueError, match="meta can't be copied by the CPU"):
        MemcpyOffloadingWorker(caches, 1, [])


@pytest.mark.parametrize(("of_engine", "of_tier"), [(BLOCKS, 0), (-1, 0), (0, 4), (0, -1)])
def test_nothing_outside_is_read_or_written(caches, of_engine, of_tier):
    worker = worker_of(caches, 1, chunk_count=4)
    for copy in (worker.submit_store, lambda job, blocks, chunks: worker.submit_load(job, chunks, blocks)):
        with pytest.raises(IndexError, match="pages"):
            copy(1, blocks([of_engine], []), CPULoadStoreSpec([of_tier]))
