"""Measures how fast the CPU copies blocks to CPU memory and back, compared with memcpy of the same number of bytes.

The KV cache is that of a model with the given number of layers, with a page per layer for each block. Blocks and chunks
are in random order, as in an engine that has been running for long.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable

import torch
from vllm.v1.kv_offload.base import CanonicalKVCacheRef, CanonicalKVCaches, CanonicalKVCacheTensor, GPULoadStoreSpec
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec

from tenantzone_runtime.engine.tiers.memcpy_worker import MemcpyOffloadingWorker

GIB = 2**30


class _Bench:
    """A worker that copies between equal numbers of blocks and chunks."""

    def __init__(self, layers: int, page_bytes: int, total_bytes: int) -> None:
        blocks = total_bytes // (layers * page_bytes)
        self.bytes = blocks * layers * page_bytes
        tensors = [
            CanonicalKVCacheTensor(_memory(blocks, page_bytes), page_size_bytes=page_bytes) for _ in range(layers)
        ]
        groups = [[CanonicalKVCacheRef(layer, page_bytes) for layer in range(layers)]]
        tier = _memory(blocks, layers * page_bytes)
        self._worker = MemcpyOffloadingWorker(
            CanonicalKVCaches(tensors, groups), 1, torch.split(tier, [page_bytes] * layers, dim=1)
        )
        order = random.Random(1)
        self._of_engine = GPULoadStoreSpec(
            order.sample(range(blocks), blocks), group_sizes=(blocks,), block_indices=(0,)
        )
        self._of_tier = CPULoadStoreSpec(order.sample(range(blocks), blocks))
        self._source, self._target = _memory(1, self.bytes), _memory(1, self.bytes)

    def memcpy(self) -> float:
        return self._rate(lambda: self._target.copy_(self._source))

    def store(self) -> float:
        return self._rate(lambda: self._worker.submit_store(1, self._of_engine, self._of_tier))

    def load(self) -> float:
        return self._rate(lambda: self._worker.submit_load(2, self._of_tier, self._of_engine))

    def _rate(self, copy: Callable[[], object]) -> float:
        began = time.perf_counter()
        copy()
        return self.bytes / (time.perf_counter() - began) / GIB


def _memory(rows: int, row_bytes: int) -> torch.Tensor:
    """Returns memory that has been written before, like an engine's."""
    return torch.ones((rows, row_bytes), dtype=torch.int8)


def main() -> None:
    """Measure all sizes in turn, and print medians and their ratios."""
    parser = argparse.ArgumentParser(prog="python -m bench.tiers.copies", description=__doc__)
    parser.add_argument("--layers", type=int, default=32, help="default: %(default)s")
    parser.add_argument("--page-kib", type=int, nargs="+", default=[16, 64, 256], help="default: 16 64 256")
    parser.add_argument("--mib", type=int, default=512, help="that are copied at once; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=7, help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=1, help="of torch; default: %(default)s")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{options.layers} layers, {options.mib} MiB, {options.threads} thread(s), GiB/s (of memcpy)")
    print(f"{'page, KiB':>10}{'memcpy':>10}{'store':>16}{'load':>16}")
    for page in options.page_kib:
        bench = _Bench(options.layers, page << 10, options.mib << 20)
        rates = [(bench.memcpy(), bench.store(), bench.load()) for _ in range(options.rounds + 1)][1:]
        plain, store, load = (statistics.median(each) for each in zip(*rates, strict=True))
        print(
            f"{page:>10}{plain:>10.2f}{store:>9.2f} ({store / plain:.2f}){load:>9.2f} ({load / plain:.2f})", flush=True
        )


if __name__ == "__main__":
    main()
