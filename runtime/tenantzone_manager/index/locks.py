"""Locks of shards. A writer locks the shards of the records that it changes. Readers do not lock."""

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

from tenantzone_manager.index.backend import Address


class ShardLocks:
    """The locks of one process.

    Args:
        shards: number of shards; a power of two.

    Raises:
        ValueError: the number is not a power of two.
    """

    def __init__(self, shards: int) -> None:
        if shards < 1 or shards & (shards - 1):
            raise ValueError(f"--lock-shards must be a power of two, not {shards}")
        self._locks = [asyncio.Lock() for _ in range(shards)]

    def shard(self, address: Address) -> int:
        """Returns the shard of an address."""
        return zlib.crc32(address.key, zlib.crc32(address.space.encode())) & (len(self._locks) - 1)

    @contextlib.asynccontextmanager
    async def held(self, addresses: Iterable[Address]) -> AsyncIterator[None]:
        """Hold the locks of all addresses. Acquiring the locks in ascending order prevents deadlocks."""
        held: list[asyncio.Lock] = []
        try:
            for shard in sorted({self.shard(address) for address in addresses}):
                await self._locks[shard].acquire()
                held.append(self._locks[shard])
            yield
        finally:
            for lock in reversed(held):
                lock.release()

    def batches(self, addresses: Sequence[Address], size: int) -> Iterator[list[Address]]:
        """Generates batches of about ``size`` addresses. Batches share no shards, so each batch needs few locks."""
        by_shard: dict[int, list[Address]] = {}
        for address in addresses:
            by_shard.setdefault(self.shard(address), []).append(address)
        batch: list[Address] = []
        for shard in sorted(by_shard):
            if batch and len(batch) + len(by_shard[shard]) > size:
                yield batch
                batch = []
            batch += by_shard[shard]
        if batch:
            yield batch
