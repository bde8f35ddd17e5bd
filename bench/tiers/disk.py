"""Measures the throughput of storing and loading chunks in the disk tier, sealed, unsealed, and in one plain file."""

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.instance import Instance
from tenantzone_runtime.disk.files.file_system import LocalFileSystem
from tenantzone_runtime.disk.files.layout import bytes_on_disk
from tenantzone_runtime.disk.files.objects import Objects
from tenantzone_runtime.disk.files.sealing import Seal, ZoneSeal
from tenantzone_runtime.disk.tier import Chunks, DiskSettings, DiskTier
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tiers.tier import Tier, TransferBounds

_MIB: Final = 1 << 20
_JOB_CHUNKS: Final = 16
_BOUNDS: Final = TransferBounds(stores=64, loads=64)
_INSTANCE: Final = Instance(
    zone="t",
    model="m",
    weights_revision="r",
    dtype="bfloat16",
    block_size=16,
    blocks_per_chunk=1,
    layout="NHD",
    tensor_parallel_size=1,
    tensor_parallel_rank=0,
    hash_algorithm="sha256",
    hash_seed="",
    salt_key_id="id",
    lora_digest="",
    engine_version="0.32.0",
)


class NoSeal:
    """A seal that leaves the content as it is."""

    folder = "0" * 64

    def sealed_size(self, content_bytes: int) -> int:
        return content_bytes

    def seal(self, content: memoryview, key: bytes, nonce: bytes, sealed: bytearray | memoryview) -> None:
        # Copy the content, because the caller may reuse its memory before the file is written.
        sealed[:] = content

    def open(self, sealed: bytearray | memoryview, key: bytes, nonce: bytes, content: memoryview) -> None:
        content[:] = sealed


class _Bench:
    """Measurements with one chunk size on one disk; each returns the bytes per second written and read."""

    def __init__(self, folder: Path, chunk_bytes: int, count: int, threads: int) -> None:
        self._folder = folder
        self._chunk_bytes = chunk_bytes
        self._threads = threads
        self._content = [memoryview(bytearray(os.urandom(chunk_bytes))) for _ in range(count)]
        # The memory must have been written before, like an engine's, so that page faults are not measured.
        self._target = [memoryview(bytearray(os.urandom(chunk_bytes))) for _ in range(count)]

    @property
    def _bytes(self) -> int:
        return self._chunk_bytes * len(self._content)

    def plain(self) -> tuple[float, float]:
        """Write and then read one file sequentially."""
        path = self._folder / "plain"
        with path.open("wb", buffering=0) as file:
            written = self._rate(lambda: self._write(file.fileno()))
        forget_cached([path])
        with path.open("rb", buffering=0) as file:
            read = self._rate(lambda: [os.readv(file.fileno(), [view]) for view in self._target])
        path.unlink()
        return written, read

    def tier(self, seal: Seal) -> tuple[float, float]:
        """Store and then load chunks in the tier, with as many jobs in flight as a zone may have."""
        root = self._folder / "tier"
        files = LocalFileSystem()
        settings = DiskSettings(readers=self._threads, writers=self._threads, seconds=600.0)
        objects = Objects(root, files, self._chunk_bytes, seal.sealed_size(self._chunk_bytes))
        file_bytes = bytes_on_disk(objects.sealed_bytes)
        tier = Tier("disk", len(self._content), file_bytes, _BOUNDS, time.monotonic())
        disk = DiskTier(objects, tier, lambda tenant, purge: seal, settings)
        zone_config = ZoneConfig(name="t", tenant="t", generation=1)
        disk.apply(make_config(1, PoolConfig(namespace="n", name="p"), (zone_config,)))
        _wait(disk, lambda: disk.is_open)
        zone = tier.zone_for("t", time.monotonic())
        assert zone is not None
        written = self._rate(lambda: self._jobs(disk, zone, disk.store, self._content))
        forget_cached([path for path in root.rglob("*-*") if path.is_file()])
        read = self._rate(lambda: self._jobs(disk, zone, disk.load, self._target))
        assert self._target == self._content, "what was loaded is what was stored"
        disk.apply(make_config(2, PoolConfig(namespace="n", name="p"), ()))
        _wait(disk, lambda: disk.is_at_rest)
        disk.stop()
        files.unlock()
        return written, read

    def _jobs(
        self, disk: DiskTier, zone: Zone, begin: Callable[[int, Zone, Chunks], None], memory: list[memoryview]
    ) -> None:
        under_way = 0
        for number, first in enumerate(range(0, len(memory), _JOB_CHUNKS)):
            while (under_way + 1) * _JOB_CHUNKS > _BOUNDS.stores:
                under_way -= len(_ended(disk))
            chunks = [(index.to_bytes(36), memory[index]) for index in range(first, first + _JOB_CHUNKS)]
            begin(number, zone, chunks)
            under_way += 1
        while under_way:
            under_way -= len(_ended(disk))

    def _write(self, descriptor: int) -> None:
        for view in self._content:
            os.writev(descriptor, [view])
        os.fsync(descriptor)

    def _rate(self, work: Callable[[], object]) -> float:
        began = time.perf_counter()
        work()
        return self._bytes / (time.perf_counter() - began)


def main() -> None:
    """Measure all ways in turn, and print medians and their ratios."""
    parser = argparse.ArgumentParser(prog="python -m bench.tiers.disk", description=__doc__)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: a temporary one")
    parser.add_argument("--chunk-mib", type=int, default=4, help="default: %(default)s")
    parser.add_argument("--chunks", type=int, default=128, help="a multiple of 16; default: %(default)s")
    parser.add_argument("--threads", type=int, default=4, help="each way; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    arguments = parser.parse_args()
    if arguments.chunks % _JOB_CHUNKS:
        parser.error(f"--chunks must be a multiple of {_JOB_CHUNKS}")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        bench = _Bench(Path(folder), arguments.chunk_mib * _MIB, arguments.chunks, arguments.threads)
        _print(list(_rounds(bench, arguments.rounds)))


def _rounds(bench: _Bench, count: int) -> Iterator[dict[str, tuple[float, float]]]:
    ways: dict[str, Callable[[], tuple[float, float]]] = {
        "plain file": bench.plain,
        "tier, unsealed": partial(bench.tier, NoSeal()),
        "tier, sealed": partial(bench.tier, ZoneSeal(b"k" * 32, _INSTANCE, "")),
    }
    for _ in range(count):
        # Measure in turn, so that other load on the machine affects all ways alike.
        order = list(ways)
        random.shuffle(order)
        measured = {name: ways[name]() for name in order}
        yield {name: measured[name] for name in ways}


def _print(rounds: list[dict[str, tuple[float, float]]]) -> None:
    print(f"{'':<28}{'write':>10}{'read':>10}")
    for name in rounds[0]:
        written, read = (statistics.median(measured[name][way] for measured in rounds) for way in (0, 1))
        print(f"{name + ', MiB/s':<28}{written / _MIB:>10.0f}{read / _MIB:>10.0f}")
    for name, other in (("tier, sealed", "plain file"), ("tier, sealed", "tier, unsealed")):
        ratios = [statistics.median(one[name][way] / one[other][way] for one in rounds) for way in (0, 1)]
        print(f"{'sealed / ' + other:<28}{ratios[0]:>10.2f}{ratios[1]:>10.2f}")


def _ended(disk: DiskTier) -> list[object]:
    ended = disk.finished()
    assert all(end.is_whole for end in ended), "the disk failed"
    if not ended:
        time.sleep(0.0002)
    return list(ended)


def _wait(disk: DiskTier, condition: Callable[[], bool]) -> None:
    while not condition():
        disk.upkeep()
        disk.finished()
        time.sleep(0.001)


def forget_cached(paths: list[Path]) -> None:
    """Drop these files from the page cache, so that reads go to the disk."""
    for path in paths:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    main()
