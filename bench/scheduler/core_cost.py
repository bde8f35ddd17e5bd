"""Measures the time of the zone core's operations, by the number of zones and of blocks.

The pool is full: all blocks are cached, and every zone holds the same number of blocks and has half of them reserved.
Every second zone is idle, and the others have a waiting request. An admission is all that the core does for one
request: the fair queue selects the next zone, the core computes how much the zone may take, evicts blocks for the
prompt, and takes blocks.

All sizes are measured in turn, and the table has the medians over the turns. The slope is the slope of a line through
the points on a double logarithmic scale: 0 for constant cost, and 1 for linear cost.
"""

import argparse
import itertools
import math
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tenantzone_contract.zone_config.config import EvictionPolicy, PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.zone_terms import Idle
from tenantzone_runtime.zones.blocks.eviction import make_room
from tenantzone_runtime.zones.eviction_policies import EVICTION_POLICIES
from tenantzone_runtime.zones.model.fair_queue import INPUT, FairQueue
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tenancy import Tenancy

ZONES = (1, 10, 100, 1_000)
BLOCKS = (1 << 10, 1 << 16, 1 << 19)
PROMPT_BLOCKS = 16
BLOCK_TOKENS = 16
ADMISSION = "admission, full pool"
OPERATIONS = {
    "allocation": "block",
    "free": "block",
    "hit": "block",
    "eviction": "block",
    ADMISSION: "request",
}
TARGET_MICROSECONDS = 50.0


class Setup:
    """A full pool with a given size, number of zones and eviction policy."""

    def __init__(self, zones: int, blocks: int, policy: EvictionPolicy) -> None:
        self.times: dict[str, list[float]] = {name: [] for name in OPERATIONS}
        """Times in microseconds by operation, one median for each turn."""
        self._now: dict[str, list[float]] = {}
        self._tenancy = Tenancy(blocks, blocks)
        self._ledger = self._tenancy.ledger
        self._queue = FairQueue()
        share = blocks // zones
        names = [f"zone-{number}" for number in range(zones)]
        configs = tuple(
            ZoneConfig(
                name=name,
                tenant=name,
                generation=1,
                reserved=share // 2,
                idle=Idle(after_seconds=1.0),
                eviction_policy=policy,
            )
            for name in names
        )
        self._tenancy.apply(make_config(1, PoolConfig(namespace="bench", name="pool"), configs), 0.0)
        self._free: list[int] = []
        every = iter(range(blocks))
        for zone in self._ledger.zones.values():
            self._give(zone, list(itertools.islice(every, share)))
        # Give the remainder of the division to the last zone, because the pool must have no free blocks.
        self._give(zone, list(every))
        self._active = list(self._ledger.zones.values())[::2]
        for zone in self._active:
            self._tenancy.request_arrived(zone, 0.0)
            self._queue.enter(zone.account)
        self._zone_of = {zone.account: zone for zone in self._active}
        self._tenancy.upkeep(2.0, 0)

    def turn(self, cycles: int, rng: random.Random) -> None:
        """Time each operation several times, and record the medians; the state is the same afterwards."""
        self._now = {name: [] for name in OPERATIONS}
        for _ in range(cycles):
            self._blocks(rng.choice(self._active))
            self._admit()
        for name, times in self._now.items():
            self.times[name].append(statistics.median(times))

    def median(self, name: str) -> float:
        return statistics.median(self.times[name])

    @contextmanager
    def _timed(self, name: str, operations: int) -> Iterator[None]:
        began = time.perf_counter_ns()
        yield
        self._now[name].append((time.perf_counter_ns() - began) / 1000 / operations)

    def _give(self, zone: Zone, block_ids: list[int]) -> None:
        self._ledger.take(zone, block_ids)
        self._ledger.release(zone, block_ids, [])

    def _blocks(self, zone: Zone) -> None:
        ledger = self._ledger
        with self._timed("eviction", PROMPT_BLOCKS):
            block_ids = ledger.evict(zone, PROMPT_BLOCKS, "own", zone)
        with self._timed("allocation", PROMPT_BLOCKS):
            make_room(ledger, zone, PROMPT_BLOCKS, PROMPT_BLOCKS)
            ledger.take(zone, block_ids)
        with self._timed("free", PROMPT_BLOCKS):
            ledger.release(zone, block_ids, [])
        with self._timed("hit", PROMPT_BLOCKS):
            ledger.reuse(zone, block_ids)
        ledger.release(zone, block_ids, [])

    def _admit(self) -> None:
        ledger, queue, zone_of = self._ledger, self._queue, self._zone_of
        with self._timed(ADMISSION, 1):
            account = queue.next(lambda each: ledger.totals.takeable(zone_of[each], 0) >= PROMPT_BLOCKS)
            assert account is not None
            zone = zone_of[account]
            evictions = make_room(ledger, zone, PROMPT_BLOCKS, 0)
            block_ids = [block_id for _, evicted in evictions for block_id in evicted]
            ledger.take(zone, block_ids)
            account.charge(INPUT * PROMPT_BLOCKS * BLOCK_TOKENS)
            queue.end_round()
        ledger.release(zone, [], block_ids)
        for victim, evicted in evictions:
            self._give(victim, evicted)
        ledger.trail.collect()


def main() -> None:
    """Time the zone core's operations for each size, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=15, help="of all sizes (default: %(default)s)")
    parser.add_argument("--cycles", type=int, default=200, help="in each turn (default: %(default)s)")
    parser.add_argument("--eviction-policy", choices=EVICTION_POLICIES, default="LRU", help="default: %(default)s")
    options = parser.parse_args()
    setups: dict[tuple[int, int], Setup] = {}
    for zones, blocks in itertools.product(ZONES, BLOCKS):
        # Skip sizes at which a zone has no room for a few prompts.
        if blocks // zones >= 4 * PROMPT_BLOCKS:
            print(f"filling {blocks:,} blocks for {zones:,} zones", flush=True)
            setups[zones, blocks] = Setup(zones, blocks, options.eviction_policy)
    rng = random.Random(1)
    shown = time.monotonic()
    for turn in range(options.turns):
        # Shuffle the order, so that a size does not always follow the same other size.
        for size in rng.sample(list(setups), len(setups)):
            setups[size].turn(options.cycles, rng)
            if time.monotonic() - shown > 2:
                shown = time.monotonic()
                print(f"turn {turn + 1} of {options.turns}", flush=True)
    _print(setups)


def _print(setups: dict[tuple[int, int], Setup]) -> None:
    for name, unit in OPERATIONS.items():
        print(f"\n{name}, µs per {unit}")
        print(f"{'zones':<10}" + "".join(f"{blocks:>12,}" for blocks in BLOCKS) + f"{'slope over blocks':>20}")
        costs = {size: setup.median(name) for size, setup in setups.items()}
        for zones in ZONES:
            row = {blocks: costs[zones, blocks] for blocks in BLOCKS if (zones, blocks) in costs}
            cells = "".join(f"{row[blocks]:>12.3f}" if blocks in row else f"{'-':>12}" for blocks in BLOCKS)
            print(f"{zones:<10,}{cells}{_slope(row):>20.3f}")
        columns = [{zones: costs[zones, blocks] for zones in ZONES if (zones, blocks) in costs} for blocks in BLOCKS]
        print(f"{'slope':<10}" + "".join(f"{_slope(column):>12.3f}" for column in columns))
        print(f"{'most/1':<10}" + "".join(f"{column[max(column)] / column[1]:>12.2f}" for column in columns))
    worst = max(setup.median(ADMISSION) for (zones, _), setup in setups.items() if zones == max(ZONES))
    print(f"\n{ADMISSION} with {max(ZONES):,} zones: {worst:.1f} µs; the target is under {TARGET_MICROSECONDS:.0f} µs")


def _slope(costs: dict[int, float]) -> float:
    """Returns the slope of the logarithm of the cost over that of the size, by least squares."""
    sizes = [math.log(size) for size in costs]
    return statistics.linear_regression(sizes, [math.log(cost) for cost in costs.values()]).slope


if __name__ == "__main__":
    main()
