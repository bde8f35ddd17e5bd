"""A simulated Redis in virtual time, with measured costs, that has the managers' indices and sends notifications."""

import asyncio
from collections.abc import Sequence
from typing import NoReturn

from bench.kvcache_manager.costs import Costs
from bench.kvcache_manager.virtual_time import Core
from tenantzone_manager.core.quota import Account, charged
from tenantzone_manager.index.backend import Address, Commit, Conflict, IndexBackend, Listener


class Server:
    """The simulated Redis of all managers.

    Args:
        costs: the costs of calls.
        round_trip: the round-trip time between a manager and Redis, in seconds.
    """

    def __init__(self, costs: Costs, round_trip: float) -> None:
        self.costs = costs
        self.round_trip = round_trip
        self.core = Core()
        self.records: dict[Address, bytes] = {}
        self.accounts: dict[str, Account] = {}
        self.stores: list[Store] = []


class Store(IndexBackend):
    """The index backend of one manager.

    Args:
        server: the simulated Redis, which all managers use.
        core: the simulated core of this manager.
    """

    is_shared = True

    def __init__(self, server: Server, core: Core) -> None:
        self._server = server
        self._core = core
        self._listener: Listener
        self._hearing: set[asyncio.Task[None]] = set()
        server.stores.append(self)

    async def start(self, listener: Listener) -> None:
        self._listener = listener

    async def get(self, space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        await self._asked(self._server.costs.missed_redis.of(len(keys)))
        return [self._server.records.get(Address(space, key)) for key in keys]

    async def commit(self, commit: Commit) -> None:
        # Each of a write's two commits has half of the write's cost, which includes the cost of reads.
        costs, blocks = self._server.costs, len(commit.changes)
        await self._asked(max(0.0, costs.write_redis.of(blocks) / 2 - costs.missed_redis.of(blocks)))
        records = self._server.records
        if any(records.get(change.address) != change.before for change in commit.changes):
            raise Conflict
        self._server.accounts |= charged(self._server.accounts, commit.charges)
        for change in commit.changes:
            if change.after is None:
                records.pop(change.address, None)
            else:
                records[change.address] = change.after
        for other in self._server.stores:
            if other is not self:
                other.hear(commit, costs.heard.of(blocks) / 2)

    def hear(self, commit: Commit, seconds: float) -> None:
        """Receive another manager's commit."""
        task = asyncio.get_running_loop().create_task(self._hear(commit, seconds))
        self._hearing.add(task)
        task.add_done_callback(self._hearing.discard)

    async def _hear(self, commit: Commit, seconds: float) -> None:
        await asyncio.sleep(self._server.round_trip / 2)
        await self._core.spend(seconds)
        for space in {change.address.space for change in commit.changes}:
            self._listener(space, [each.address.key for each in commit.changes if each.address.space == space])

    async def _asked(self, seconds: float) -> None:
        await asyncio.sleep(self._server.round_trip / 2)
        await self._server.core.spend(seconds)
        await asyncio.sleep(self._server.round_trip / 2)

    async def accounts(self, names: Sequence[str]) -> dict[str, Account]:
        await asyncio.sleep(self._server.round_trip)
        return {name: self._server.accounts.get(name, Account()) for name in names}

    async def close(self) -> None:
        for task in self._hearing:
            task.cancel()

    async def count(self, space: str) -> int:
        return sum(address.space == space for address in self._server.records)

    async def size(self) -> int:
        return sum(map(len, self._server.records.values()))

    async def lead(self, name: str, seconds: float) -> bool:
        return False

    async def scan(self, space: str, cursor: bytes, count: int) -> NoReturn:
        raise NotImplementedError

    async def spaces(self, kind: str) -> NoReturn:
        raise NotImplementedError

    async def keep_reserve(self) -> str:
        return ""

    async def random_sample(self, space: str, count: int) -> NoReturn:
        raise NotImplementedError

    async def lowest(self, rank: str, count: int, until: float, above: float = 0.0) -> NoReturn:
        raise NotImplementedError
