"""The zone core for days in virtual time: what it keeps must depend on what there is now, and not on what has been.

Tenants come active and go quiet with the hour of the day, borrow, wait, give up, are refused, evicted and reloaded;
zones are declared and removed, tenants without a zone come once and never again. The trail and the usage are collected
as for a journal. Everything that the core keeps is counted: of each attribute that holds things, how many there are.

Half a day fills what there is room for. From then on nothing may grow: exit code 1 says that something did.
"""

import argparse
import gc
import itertools
import random
import sys
import time
import tracemalloc
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, fields, is_dataclass
from math import pi, sin
from statistics import fmean
from typing import Any, Final

from tenantzone_contract.config import (
    Idle,
    Lending,
    PoolConfig,
    UnknownTenants,
    UnknownTenantTemplate,
    Watermarks,
    ZoneConfig,
    make_config,
)
from tenantzone_runtime.zones.audit import ConfigRefused, Event
from tenantzone_runtime.zones.configure import discard_if_gone
from tenantzone_runtime.zones.eviction import Evictions, make_room, trim_to_limit
from tenantzone_runtime.zones.fair_queue import INPUT, FairQueue
from tenantzone_runtime.zones.states import blocks_evicted
from tenantzone_runtime.zones.tenancy import Tenancy
from tenantzone_runtime.zones.zone import Zone

DAY_SECONDS: Final = 86_400.0
TURN_SECONDS: Final = 30.0
RELOADS_A_DAY: Final = 48
WAITS: Final = (0.0, 0.01, 0.1, 1.0, 10.0)
"""Seconds: few different ones, so that histograms are full early."""
BLOCKS_PER_ZONE: Final = 60
RESERVED: Final = 50
PROGRESS_SECONDS: Final = 2.0

LOOKS: Final = 24
"""At all that is kept, in the second half of each day."""
MAX_GROWTH: Final = 1.5
"""How much more there may be on the last day than on the first: chance makes no two days alike."""
FEW: Final = 16
"""What is not worth a word."""


@dataclass(slots=True)
class Work:
    """A request that runs."""

    zone: Zone
    blocks: list[int]
    ends: float


class Soak:
    """One engine's zones, and what happens to them.

    Args:
        zones: how many are declared at a time.
        seed: the same one gives the same days.
        day_seconds: how long a day is.
    """

    def __init__(self, zones: int, seed: int = 1, day_seconds: float = DAY_SECONDS) -> None:
        capacity = zones * BLOCKS_PER_ZONE
        self.now = 0.0
        self.tenancy = Tenancy(capacity, capacity, self.now)
        self.queue = FairQueue()
        self.told: Counter[str] = Counter()
        """Events, by kind."""
        self._day_seconds = day_seconds
        self._ledger = self.tenancy.ledger
        self._ledger.overflow.most_apart = 5
        self._free = deque(range(capacity))
        self._random = random.Random(seed)
        self._numbers = itertools.count(1)
        """For generations, and for names that nobody had before."""
        self._zones = [self._draw(index, self._new_name("tenant")) for index in range(zones)]
        self._running: deque[Work] = deque()
        self._usage: Iterator[Iterator[Event]] = iter(())
        self._reloaded = -day_seconds

    def live_a_day(self, averages: "Averages") -> Iterator[float]:
        """Yields the time after each turn."""
        averages.begin_day()
        turns = int(self._day_seconds / TURN_SECONDS)
        for turn in range(turns):
            self._turn()
            if turn >= turns // 2 and turn % (turns // 2 // LOOKS) == 0:
                averages.look(self)
            yield self.now

    def _turn(self) -> None:
        self.now += TURN_SECONDS
        if self.now - self._reloaded >= self._day_seconds / RELOADS_A_DAY:
            self._reload()
        while self._running and self._running[0].ends <= self.now:
            self._end(self._running.popleft())
        self._take_back(self.tenancy.upkeep(self.now, len(self._free)))
        for _ in range(self._arrivals()):
            self._arrive(self._random.choice(self._zones).tenant)
        self._arrive(self._new_name("guest"))
        self.tenancy.refused(self._new_name("stranger"), "unknown_tenant")
        self.queue.end_round()
        self.tenancy.end_step()
        self._ledger.take_blocks_to_scrub()
        self._collect()

    def _arrivals(self) -> int:
        """More by day than by night: 4 % of the tenants in a turn at noon."""
        daylight = 1 - sin(2 * pi * (self.now / self._day_seconds + 0.25))
        return max(1, int(len(self._zones) * 0.02 * daylight))

    def _arrive(self, tenant: str) -> None:
        """A request comes. It is admitted, if it may take its blocks, or gives up before it is."""
        zone = self.tenancy.zone_for(tenant, self.now)
        if zone is None:
            return
        self.tenancy.request_arrived(zone, self.now)
        self.queue.enter(zone.account)
        count = self._random.randint(1, 4 * BLOCKS_PER_ZONE)
        if count > self._ledger.standings.takeable(zone, len(self._free)):
            self.tenancy.must_wait(zone, count, len(self._free))
            self._take_back(self.tenancy.relieve(zone, count, len(self._free)))
        if count > self._ledger.standings.takeable(zone, len(self._free)):
            self._leave(zone)
            return
        self.tenancy.may_go_on(zone)
        self._take_back(make_room(self._ledger, zone, count, len(self._free)))
        blocks = [self._free.popleft() for _ in range(count)]
        self._ledger.take(zone, blocks)
        zone.account.charge(INPUT * count)
        zone.counters.queue_time.observe(self._random.choice(WAITS))
        zone.counters.prompt_tokens += count
        self._running.append(Work(zone, blocks, self.now + 2 * TURN_SECONDS))

    def _end(self, work: Work) -> None:
        zone, blocks = work.zone, work.blocks
        kept = 0 if zone.leaving else self._random.randint(0, len(blocks))
        self._ledger.release(zone, blocks[:kept], blocks[kept:])
        self._free += blocks[kept:]
        self._take_back([(zone, trim_to_limit(self._ledger, zone))])
        zone.counters.request_ended("stop")
        self._leave(zone)

    def _leave(self, zone: Zone) -> None:
        if zone.requests == 1:
            self.queue.leave(zone.account)
        self.tenancy.request_finished(zone, self.now)

    def _take_back(self, evictions: Evictions) -> None:
        for zone, blocks in evictions:
            self._free += blocks
            if blocks:
                blocks_evicted(self._ledger, zone)
            discard_if_gone(self._ledger, zone)

    def _reload(self) -> None:
        """One zone in twenty is replaced by another tenant's, and one in ten is changed."""
        self._reloaded = self.now
        for index in self._some(0.05):
            self._zones[index] = self._draw(index, self._new_name("tenant"))
        for index in self._some(0.1):
            self._zones[index] = self._draw(index, self._zones[index].tenant)
        template = UnknownTenantTemplate(limit=BLOCKS_PER_ZONE, idle=Idle(after_seconds=60, forget_after_seconds=600))
        pool = PoolConfig(
            namespace="bench",
            name="soak",
            unknown_tenants=UnknownTenants(mode="AutoRegister", template=template),
            watermarks=Watermarks(low=0.02, high=0.05),
        )
        generation = next(self._numbers)
        config = make_config(generation, pool, tuple(self._zones))
        self._take_back(self.tenancy.apply(config, self.now))
        self._ledger.trail.note(ConfigRefused(generation, "not valid JSON"))

    def _some(self, share: float) -> list[int]:
        return self._random.sample(range(len(self._zones)), max(1, int(len(self._zones) * share)))

    def _new_name(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}"

    def _draw(self, index: int, tenant: str) -> ZoneConfig:
        """A zone. What it is by its place among the others stays, so that each day has as many of a kind."""
        draw = self._random
        return ZoneConfig(
            name=tenant,
            tenant=tenant,
            generation=next(self._numbers),
            reserved=RESERVED,
            weight=draw.randint(1, 4),
            # Each of them new: nobody keeps to the few that everybody uses.
            priority=0 if index % 4 else draw.randint(-(2**31), 2**31 - 1),
            idle=Idle(after_seconds=60, evict_after_seconds=[None, 3_600, 30 * DAY_SECONDS][index % 3]),
            lending=Lending(
                borrowers="SameOrHigherPriority" if index % 5 else "AnyPriority",
                max_loan_seconds=draw.choice([None, 300.0]),
            ),
            eviction_policy=draw.choice(["LRU", "Clock"]),
            scrub="OnTransfer",
        )

    def _collect(self) -> None:
        """As auditing does, a helping in each turn; turns are slower here."""
        self.told.update(event.kind for event in self._ledger.trail.take().events())
        events = next(self._usage, None)
        if events is None:
            self._usage = self.tenancy.usage_in_slices()
        self.told.update(event.kind for event in events or ())


def entries(*roots: object) -> Counter[str]:
    """What the core keeps: for each attribute that holds things, in all objects of its class, how many.

    It looks into whatever is of the core, and into all that these hold.
    """
    counted: Counter[str] = Counter()
    seen: set[int] = set()
    left: list[tuple[str, object]] = [("", root) for root in roots]
    while left:
        name, thing = left.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, Mapping):
            counted[name] += len(thing)
            left += ((name, each) for pair in thing.items() for each in pair if type(each) not in _PLAIN)
        elif isinstance(thing, (list, tuple, deque, Set)):
            # Tuples are what other things are made of.
            counted[name] += len(thing) if not isinstance(thing, tuple) else 0
            left += ((name, each) for each in thing if type(each) not in _PLAIN)
        elif type(thing).__module__.startswith("tenantzone_runtime."):
            counted[type(thing).__name__] += 1
            left += ((f"{type(thing).__name__}.{key}", value) for key, value in _attributes(thing))
    return counted


_PLAIN: Final = {int, float, str, bool, type(None)}
"""What holds nothing."""


def _attributes(thing: object) -> Iterator[tuple[str, Any]]:
    if is_dataclass(thing):
        names = [field.name for field in fields(thing)]
    else:
        slots = itertools.chain.from_iterable(getattr(each, "__slots__", ()) for each in type(thing).__mro__)
        names = [*slots, *getattr(thing, "__dict__", ())]
    return ((name, getattr(thing, name)) for name in names)


class Averages:
    """How much there was of each thing, averaged over the second half of the first day and over that of the newest."""

    def __init__(self) -> None:
        self._days: list[list[Counter[str]]] = []

    def begin_day(self) -> None:
        self._days = [*self._days[:1], []]

    def look(self, soak: Soak) -> None:
        self._days[-1].append(entries(soak.tenancy, soak.queue))

    def by_name(self) -> dict[str, tuple[float, float]]:
        """On the first day, and on the newest one."""
        days = (self._days[0], self._days[-1])
        names = sorted(set().union(*itertools.chain.from_iterable(days)))
        first, newest = ({name: fmean(look[name] for look in day) for name in names} for day in days)
        return {name: (first[name], newest[name]) for name in names}

    def grown(self) -> dict[str, tuple[float, float]]:
        """Of what there is more than chance explains."""
        return {
            name: (first, newest)
            for name, (first, newest) in self.by_name().items()
            if newest > MAX_GROWTH * first + FEW
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=7, help="simulated ones (default: %(default)s)")
    parser.add_argument("--zones", type=int, default=1000, help="that are declared (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of what happens (default: %(default)s)")
    options = parser.parse_args()
    if options.days < 2:
        parser.error("--days: 2 at least, or there is nothing to compare")
    tracemalloc.start()
    soak, averages = Soak(options.zones, options.seed), Averages()
    sizes: list[int] = []
    began = shown = time.monotonic()
    for day in range(1, options.days + 1):
        for now in soak.live_a_day(averages):
            if time.monotonic() - shown > PROGRESS_SECONDS:
                shown = time.monotonic()
                print(f"  {shown - began:4.0f} s: day {day}, {now % DAY_SECONDS / 3600:.1f} h", flush=True)
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
        print(f"day {day}: {sizes[-1] / 2**20:.2f} MiB, {soak.told.total():,} events so far", flush=True)
    return _print(soak, averages, sizes)


def _print(soak: Soak, averages: Averages, sizes: list[int]) -> int:
    print("\nevents: " + ", ".join(f"{kind} {count:,}" for kind, count in sorted(soak.told.items())))
    print(f"\n{'on average':<40}{'first day':>12}{'last day':>12}")
    for name, (first, last) in averages.by_name().items():
        if max(first, last) > FEW:
            print(f"{name:<40}{first:>12,.0f}{last:>12,.0f}")
    grown = averages.grown()
    for name, (first, last) in grown.items():
        print(f"GREW: {name}, from {first:,.0f} to {last:,.0f}", file=sys.stderr)
    print(f"\nmemory after the last day: {sizes[-1] / sizes[0]:.3f} of that after the first")
    return 1 if grown or sizes[-1] > MAX_GROWTH * sizes[0] else 0


if __name__ == "__main__":
    sys.exit(main())
