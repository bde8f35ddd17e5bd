"""Stock vLLM's offloading on an engine without a GPU: vLLM's spec and managers, with a worker that copies on the CPU.

vLLM's own worker needs a GPU. Nothing else is replaced, so the bench compares the offloading policies.
"""

from vllm.v1.kv_offload.base import CanonicalKVCaches, OffloadingWorker
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

from tenantzone_runtime.engine.tiers.memcpy_worker import MemcpyOffloadingWorker


class CpuWorkerSpec(TieringOffloadingSpec):
    """vLLM's tiering spec with the worker replaced."""

    def get_worker(self, kv_caches: CanonicalKVCaches) -> OffloadingWorker:
        region = SharedOffloadRegion(
            engine_id=self.config.engine_id,
            num_chunks=self.num_chunks,
            rank=self.config.parallel.rank,
            kv_bytes_per_chunk=self.kv_bytes_per_chunk,
            cpu_page_size=self.cpu_page_size_per_worker,
        )
        pages = [
            region.create_next_worker_view(cache.page_size_bytes * self.blocks_per_chunk) for cache in kv_caches.tensors
        ]
        return MemcpyOffloadingWorker(kv_caches, self.blocks_per_chunk, pages)
