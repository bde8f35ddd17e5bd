"""Locks of shards: who changes a record holds its shard's; who reads holds none."""

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

from tenantzone_manager.index.backend import Address


class ShardLocks:
    """The locks of one process.

    Args:
        shards: how many; a power of two.

    Raises:
        ValueError: it is none.
    """

    def __init__(self, shards: int) -> None:
        if shards < 1 or shards & (shards - 1):
            raise ValueError(f"the number of lock shards must be a power of two; {shards} is none")
        self._locks = [asyncio.Lock() for _ in range(shards)]

    def shard(self, address: Address) -> int:
        """Which one an address is in."""
        return zlib.crc32(address.key, zlib.crc32(address.space.encode())) & (len(self._locks) - 1)

    @contextlib.asynccontextmanager
    async def held(self, addresses: Iterable[Address]) -> AsyncIterator[None]:
        """Hold the shards of all of them. They are taken in ascending order, so that no two can wait for each other."""
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
        """Cut many into batches of about this size that have no shard in common: each gives its locks back early."""
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
