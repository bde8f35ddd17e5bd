"""``python -m bench.kvcache_manager.fleet``: estimates the load of a thousand engines, then simulates it.

First it measures the costs of real managers with a real Redis, from which it computes the load that each core can
handle. Then engines hold conversations in virtual time: each turn queries the prompt's blocks and writes its new
blocks. The managers' real indices, with their search caches and shard locks, answer from a simulated Redis with the
measured costs.
"""

import argparse
import asyncio
import random
import statistics
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from bench.kvcache_manager import costs as real
from bench.kvcache_manager.costs import Costs
from bench.kvcache_manager.virtual_store import Server, Store
from bench.kvcache_manager.virtual_time import Core, VirtualTime
from hack.progress import say
from tenantzone_manager import spaces
from tenantzone_manager.changing import change_blocks
from tenantzone_manager.core.draft import Draft
from tenantzone_manager.core.records import CacheLocation, LocationSpec, State
from tenantzone_manager.core.settings import Instance, Spec
from tenantzone_manager.core.writing import begin, finish
from tenantzone_manager.index.meta_index import Found, IndexSettings, MetaIndex

NAME: Final = "fleet"
_NEW: Final = 8
"""Number of new blocks in a turn."""
_LONGEST: Final = 32
"""Maximum number of blocks in a conversation."""
_IDLE: Final = 20
"""Number of conversations of each engine; each turn continues a random one."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The parameters of the simulation."""

    engines: int
    turns: float
    """Number of turns of each engine per second."""
    managers: int
    shards: int
    round_trip: float
    seconds: float


@dataclass(slots=True)
class Seen:
    """Durations of calls in seconds, and the number of calls that had not ended."""

    queries: list[float] = field(default_factory=list)
    writes: list[float] = field(default_factory=list)
    under_way: int = 0


class _Manager:
    def __init__(self, server: Server, fleet: Fleet, clock: Callable[[], float]) -> None:
        self.core = Core()
        self._costs = server.costs
        settings = IndexSettings(lock_shards=fleet.shards)
        self.index = MetaIndex(Store(server, self.core), spaces.codec, settings, clock)

    async def find(self, space: str, keys: list[bytes]) -> int:
        """Returns the number of a prompt's first blocks that are stored."""
        found = await self.index.get_prefix(space, keys)
        # A prompt that continues a conversation has new blocks, which always need a query to Redis.
        await self.core.spend(self._costs.missed.of(len(keys)))
        return len(found)

    async def write(self, space: str, keys: list[bytes], first: int, size: int) -> None:
        """Write a prompt's blocks from index `first` on, with both calls of a write."""
        location = CacheLocation("w", "S3", "s3", State.WRITING, 1e9, (LocationSpec("tp0", size),))

        def start(draft: Draft, _: Found) -> None:
            for index in range(first, len(keys)):
                begin(draft, keys[index], keys[index - 1] if index else b"", index, location, 0.0)

        def end(draft: Draft, _: Found) -> None:
            for key in keys[first:]:
                finish(draft, key, "w", True, 0.0)

        half = self._costs.write.of(len(keys) - first) / 2
        await self.index.accounts([])
        for change in (start, end):
            await self.core.spend(half)
            await change_blocks(self.index, space, keys[max(0, first - 1) :], change)


class _Engine:
    def __init__(self, manager: _Manager, space: str, size: int, seen: Seen, chance: random.Random) -> None:
        self._manager, self._space, self._size, self._seen, self._chance = manager, space, size, seen, chance
        self._conversations: list[list[bytes]] = [[] for _ in range(_IDLE)]

    async def turn(self, clock: Callable[[], float]) -> None:
        """Run one turn of a random conversation, or begin a new conversation if it has the maximum length."""
        index = self._chance.randrange(_IDLE)
        known = self._conversations[index]
        if len(known) >= _LONGEST:
            known = []
        keys = known + [self._chance.randbytes(32) for _ in range(_NEW)]
        began = clock()
        await self._manager.find(self._space, keys)
        self._seen.queries.append(clock() - began)
        began = clock()
        await self._manager.write(self._space, keys, len(known), self._size)
        self._seen.writes.append(clock() - began)
        self._conversations[index] = keys


def simulate(fleet: Fleet, costs: Costs, block_bytes: int) -> tuple[Seen, list[float], float]:
    """Returns the calls' durations, and the utilization from 0 to 1 of each manager's core and of Redis' core."""
    loop = VirtualTime()
    chance = random.Random(1)
    server, seen = Server(costs, fleet.round_trip), Seen()
    managers = [_Manager(server, fleet, loop.time) for _ in range(fleet.managers)]
    instances = [Instance(f"model-{number}", "fleet", 64, (Spec("tp0", block_bytes),)) for number in range(20)]
    engines = [
        _Engine(managers[n % fleet.managers], spaces.blocks_of(instances[n % 20]), block_bytes, seen, chance)
        for n in range(fleet.engines)
    ]
    turns: set[asyncio.Task[None]] = set()

    def spawn(turn: Coroutine[Any, Any, None]) -> None:
        turns.add(task := loop.create_task(turn))
        task.add_done_callback(turns.discard)

    async def run() -> None:
        for manager in managers:
            await manager.index.start()
        while loop.time() < fleet.seconds:
            await asyncio.sleep(chance.expovariate(fleet.engines * fleet.turns))
            spawn(chance.choice(engines).turn(loop.time))
        seen.under_way = len(turns)
        for task in list(turns):
            task.cancel()
        await asyncio.gather(*turns, return_exceptions=True)
        for manager in managers:
            await manager.index.close()

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
    busy = [manager.core.busy_seconds / fleet.seconds for manager in managers]
    return seen, busy, server.core.busy_seconds / fleet.seconds


def main() -> None:
    """Measure costs, compute estimates, simulate, and print tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.kvcache_manager.fleet", description=__doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=300, help="of each call that is measured (default: %(default)s)")
    add("--engines", type=int, default=1000, help="(default: %(default)s)")
    add("--turns", type=float, default=1.0, help="of each engine in a second (default: %(default)s)")
    add("--storage", type=float, default=10e15, help="bytes (default: %(default)s)")
    add("--blocks", type=float, default=100e6, help="in it (default: %(default)s)")
    add("--record", type=float, default=237.0, help="bytes of Redis a block (default: %(default)s, as measured)")
    add("--round-trip", type=float, default=0.0005, help="seconds to Redis and back (default: %(default)s)")
    add("--seconds", type=float, default=10.0, help="of virtual time (default: %(default)s)")
    add("--managers", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="(default: 1 2 4 8 16)")
    add("--shards", type=int, nargs="+", default=[256, 4096], help="of locks in a manager (default: 256 4096)")
    options = parser.parse_args()
    say(NAME, "measuring what calls cost")
    costs = asyncio.run(real.measure(options.rounds))
    _print_costs(costs)
    _print_paper(options, costs)
    _print_simulation(options, costs)


def _print_costs(costs: Costs) -> None:
    print("| processor time, ms | a call | each block | a turn's |\n|---|---|---|---|")
    asked = (_LONGEST + _NEW) // 2
    for name, cost, blocks in (
        ("manager: a query, found in its search cache", costs.query, asked),
        ("manager: a query, found in Redis", costs.missed, asked),
        ("Redis: that query", costs.missed_redis, asked),
        ("manager: start and finish a write", costs.write, _NEW),
        ("Redis: that write", costs.write_redis, _NEW),
        ("each other manager: to hear of that write", costs.heard, _NEW),
    ):
        print(f"| {name} | {1000 * cost.call:.3f} | {1000 * cost.block:.4f} | {1000 * cost.of(blocks):.3f} |")


def _print_paper(options: argparse.Namespace, costs: Costs) -> None:
    turns = options.engines * options.turns
    size = options.storage / options.blocks
    asked = (_LONGEST + _NEW) // 2
    a_turn = costs.missed.of(asked) + costs.write.of(_NEW)
    heard, redis = costs.heard.of(_NEW), costs.missed_redis.of(_NEW) + costs.write_redis.of(_NEW)
    written = turns * _NEW * size
    print(
        f"\n{options.engines:,} engines, {turns:,.0f} turns a second, {options.blocks:,.0f} blocks of {size:,.0f} B:\n"
    )
    print("| on paper | |\n|---|---|")
    print(f"| memory of Redis | {options.blocks * options.record / 1e9:.1f} GB |")
    print(f"| Redis' core: turns a second at most | {1 / redis:,.0f} |")
    print(f"| one manager alone: turns a second at most | {1 / a_turn:,.0f} |")
    print(f"| any number of managers: turns a second at most, as each hears of all writes | {1 / heard:,.0f} |")
    managers = next((n for n in range(1, 10_000) if turns / n * a_turn + turns * (n - 1) / n * heard < 0.7), None)
    print(f"| managers for this load, none busier than 70 % | {managers or 'no number is enough'} |")
    print(f"| written a second | {written / 1e9:,.0f} GB, {written / options.engines / 1e9:.1f} an engine |")
    print(f"| until everything has been written anew | {options.storage / written / 3600:.1f} h |")


def _print_simulation(options: argparse.Namespace, costs: Costs) -> None:
    print(f"\n{options.seconds:.0f} s of virtual time, from empty:\n")
    columns = "managers", "lock shards", "turns ended", "under way", "query p50 ms", "p99", "write p50 ms", "p99"
    print(f"| {' | '.join((*columns, 'managers busy', 'Redis busy'))} |\n|{'---|' * 10}", flush=True)
    for managers in options.managers:
        for shards in options.shards:
            fleet = Fleet(options.engines, options.turns, managers, shards, options.round_trip, options.seconds)
            say(NAME, f"{managers} managers, {shards} shards")
            seen, busy, redis = simulate(fleet, costs, int(options.storage / options.blocks))
            times = " | ".join(map(_percentiles, (seen.queries, seen.writes)))
            ended = f"{managers} | {shards} | {len(seen.writes):,} | {seen.under_way:,}"
            print(f"| {ended} | {times} | {statistics.mean(busy):.0%} | {redis:.0%} |", flush=True)


def _percentiles(seconds: list[float]) -> str:
    if len(seconds) < 100:
        return "- | -"
    hundredths = statistics.quantiles(seconds, n=100)
    return f"{1000 * hundredths[49]:.1f} | {1000 * hundredths[98]:.1f}"


if __name__ == "__main__":
    main()
