"""Measures how long a tier's work outside of steps holds the scheduler's lock, in parts and all at once.

One tenant holds all chunks of a tier. Then all of them are removed, because the tenant's limit is lowered, its zone is
purged, the chunks exceed their TTL, or the pool's salt key changes. The disk's files are simulated, so only
TenantZone's own work is timed. The tier's threads run at the same time, as in an engine.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from vllm.v1.kv_offload.base import ReqContext, make_offload_key

from bench.scheduler.lock_holds import TimedLock
from bench.tiers.disk import NoSeal
from tenantzone_contract.zone_config.config import PoolConfig, RuntimeConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.tiers import TierShare
from tenantzone_runtime.disk.files.file_system import FileFacts
from tenantzone_runtime.disk.files.objects import Objects
from tenantzone_runtime.disk.tier import CHUNKS_AT_ONCE, DiskSettings, DiskTier
from tenantzone_runtime.engine.tiers import tier_manager
from tenantzone_runtime.engine.tiers.tier_manager import ZoneOffloadingManager
from tenantzone_runtime.housekeeping.turns import hold_in_turns
from tenantzone_runtime.zones.model.parts import ALL
from tenantzone_runtime.zones.tiers.tier import Tier, TransferBounds

CHUNK_BYTES: Final = 4096
TTL_SECONDS: Final = 1e-3
"""TTL of chunks, short enough that all chunks have exceeded it when they are checked."""
_AT_ONCE: Final = 64


class _NoFiles:
    """A file system on which each operation succeeds at once and stores nothing."""

    def lock(self, path: Path) -> None: ...

    def has_locked(self, path: Path) -> bool:
        return True

    def make_folder(self, path: Path) -> None: ...

    def folders(self, path: Path) -> list[Path]:
        return []

    def files(self, path: Path) -> list[FileFacts]:
        return []

    def write(self, path: Path, content: bytearray) -> None: ...

    def read(self, path: Path, content: bytearray) -> bool:
        return True

    def rename(self, source: Path, target: Path) -> None: ...

    def mark_used(self, path: Path) -> None: ...

    def remove(self, path: Path) -> None: ...

    def remove_folder(self, path: Path) -> None: ...


class _Memory:
    """A tier of CPU memory that one tenant fills."""

    def __init__(self, chunks: int, at_once: int) -> None:
        vars(tier_manager).update(CHUNKS_AT_ONCE=at_once)
        self._tier = ZoneOffloadingManager(Tier("cpu", chunks, CHUNK_BYTES, TransferBounds(chunks, chunks)))
        self._chunks = chunks
        self.apply, self.upkeep, self.forget_all = self._tier.apply, self._tier.upkeep, self._tier.forget_all

    def fill(self) -> None:
        request = ReqContext("request")
        self._tier.bind("request", "acme")
        self._tier.on_new_request(request)
        keys = [make_offload_key(number.to_bytes(32), 0) for number in range(self._chunks)]
        self._tier.prepare_store(keys, request)
        self._tier.complete_store(keys, request)
        self._tier.on_request_finished(request)

    @property
    def held(self) -> int:
        return self._tier.tier.ledger.held_blocks

    def close(self) -> None: ...


class _Disk:
    """A tier of a disk that one tenant fills."""

    def __init__(self, chunks: int, at_once: int) -> None:
        objects = Objects(Path("/nowhere"), _NoFiles(), CHUNK_BYTES, CHUNK_BYTES)
        tier = Tier("disk", chunks, CHUNK_BYTES, TransferBounds(_AT_ONCE, _AT_ONCE), time.monotonic())
        self._disk = DiskTier(objects, tier, lambda tenant, purge: NoSeal(), DiskSettings(seconds=600.0))
        self._chunks = chunks
        self.apply = partial(self._disk.apply_in_parts, at_once=at_once)
        self.upkeep = partial(self._disk.upkeep_in_parts, at_once)
        self.forget_all = partial(self._disk.renew_in_parts, at_once)

    def fill(self) -> None:
        while not self._disk.is_open:
            self._disk.upkeep()
        zone = self._disk.tier.zone_for("acme", time.monotonic())
        assert zone is not None
        memory = memoryview(bytearray(CHUNK_BYTES))
        for first in range(0, self._chunks, _AT_ONCE):
            last = min(first + _AT_ONCE, self._chunks)
            self._disk.store(first, zone, [(number.to_bytes(36), memory) for number in range(first, last)])
            while not self._disk.finished():
                time.sleep(0)

    @property
    def held(self) -> int:
        return self._disk.tier.ledger.held_blocks

    def close(self) -> None:
        self._disk.stop()


_GENERATIONS = count(1)


def _config(limit: str = "100%", purge: str = "", ttl: float | None = None) -> RuntimeConfig:
    shares = (
        TierShare(tier="cpu", limit=limit, ttl_seconds=ttl),
        TierShare(tier="disk", limit=limit, ttl_seconds=ttl),
    )
    zone = ZoneConfig(name="acme", tenant="acme", generation=1, tiers=shares, purge=purge)
    return make_config(next(_GENERATIONS), PoolConfig(namespace="n", name="p"), (zone,))


_CHANGES: Final[dict[str, Callable[[_Memory | _Disk], Iterator[object]]]] = {
    "limit lowered": lambda tier: tier.apply(_config(limit="1%")),
    "purge": lambda tier: tier.apply(_config(purge="once")),
    "zone removed": lambda tier: tier.apply(make_config(next(_GENERATIONS), PoolConfig(namespace="n", name="p"), ())),
    "too old": lambda tier: tier.upkeep(),
    "another salt key": lambda tier: tier.forget_all(),
}


def _hold(tier: _Memory | _Disk, chunks: int, change: str) -> list[float]:
    """Returns the duration of each hold of the lock, in milliseconds."""
    lock = TimedLock()
    for _ in tier.apply(_config(ttl=TTL_SECONDS if change == "too old" else None)):
        pass
    tier.fill()
    assert tier.held >= 0.99 * chunks, "it is full"
    time.sleep(2 * TTL_SECONDS)
    with lock.timing(change):
        hold_in_turns(lock, _CHANGES[change](tier))
    assert tier.held <= 0.011 * chunks, "all of it goes"
    tier.close()
    return sorted(1000 * wall for wall, _ in lock.holds[change])


def main() -> None:
    """Time each change in parts and all at once, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=100_000, help="default: %(default)s")
    chunks = parser.parse_args().chunks
    print(f"{chunks:,} chunks of one tenant; holds of the lock on the wall, in ms")
    print(f"{'':<28}{'in parts: holds':>17}{'median':>9}{'p99':>8}{'longest':>9}{'in one go':>11}")
    for name, make, at_once in (("CPU memory", _Memory, tier_manager.CHUNKS_AT_ONCE), ("disk", _Disk, CHUNKS_AT_ONCE)):
        for change in _CHANGES:
            parts = _hold(make(chunks, at_once), chunks, change)
            (whole,) = _hold(make(chunks, ALL), chunks, change)[-1:]
            times = f"{statistics.median(parts):>9.2f}{parts[int(len(parts) * 0.99)]:>8.2f}{parts[-1]:>9.2f}"
            print(f"{name + ', ' + change:<28}{len(parts):>17,}{times}{whole:>11.1f}", flush=True)


if __name__ == "__main__":
    main()
