"""What happens to an engine's zones from day to day.

Tenants come active and go quiet with the hour of the day, borrow, wait, give up, are refused, preempted, evicted and
reloaded; zones are declared and removed, tenants without a zone come once and never again. The trail and the usage are
collected as for a journal.
"""

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from math import pi, sin
from typing import Final

from bench.soak.engine import Engine
from bench.soak.kept import Averages
from tenantzone_contract.config import PoolConfig, Watermarks, ZoneConfig
from tenantzone_contract.config_text import make_config
from tenantzone_contract.unknown_tenants import UnknownTenants, UnknownTenantTemplate
from tenantzone_contract.zone_terms import Idle, Lending
from tenantzone_runtime.zones.audit import ConfigRefused, Event
from tenantzone_runtime.zones.eviction_policies import EVICTION_POLICIES

DAY_SECONDS: Final = 86_400.0
TURN_SECONDS: Final = 30.0
RELOADS_A_DAY: Final = 48
LOOKS_A_DAY: Final = 24
"""Checks of all state per day, in its second half: in the first half caches and tables fill up."""
BLOCKS_PER_ZONE: Final = 60
RESERVED: Final = 50
WAITS: Final = (0.0, 0.01, 0.1, 1.0, 10.0)
"""Seconds: few different ones, so that histograms are full early."""


class Days:
    """One engine's days.

    Args:
        zones: how many are declared at a time.
        seed: the same one gives the same days.
        day_seconds: how long a day is.
    """

    def __init__(self, zones: int, seed: int = 1, day_seconds: float = DAY_SECONDS) -> None:
        self.engine = Engine(zones * BLOCKS_PER_ZONE, seats=max(8, zones // 5))
        self.engine.ledger.overflow.max_apart = 5
        self.events: Counter[str] = Counter()
        """Events, by kind."""
        self.averages = Averages()
        self._day_seconds = day_seconds
        self._random = random.Random(seed)
        self._numbers = itertools.count(1)
        """Numbers for generations, and for names that were never used."""
        self._zones = [self._draw(index, self._new_name("tenant")) for index in range(zones)]
        self._usage: Iterator[Iterator[Event]] = iter(())
        self._reloaded = -day_seconds

    def live_a_day(self) -> Iterator[float]:
        """Yields the time after each turn."""
        self.averages.begin_day()
        turns = int(self._day_seconds / TURN_SECONDS)
        for turn in range(turns):
            self._turn()
            if turn >= turns // 2 and turn % (turns // 2 // LOOKS_A_DAY) == 0:
                self.averages.look(self.engine.tenancy, self.engine.arbiter)
            yield self.engine.now

    def _turn(self) -> None:
        engine, draw = self.engine, self._random
        engine.now += TURN_SECONDS
        if engine.now - self._reloaded >= self._day_seconds / RELOADS_A_DAY:
            self._reload()
        for _ in range(self._arrivals()):
            self._send(draw.choice(self._zones).tenant, 10 * BLOCKS_PER_ZONE)
        self._send(self._new_name("guest"), BLOCKS_PER_ZONE // 2)
        engine.tenancy.refused(self._new_name("stranger"), "unbound")
        engine.step()
        for request in engine.running:
            request.zone.counters.queue_time.observe(draw.choice(WAITS))
        engine.ledger.take_blocks_to_scrub()
        self._collect()

    def _arrivals(self) -> int:
        """More by day than by night: 6 % of the tenants in a turn at noon."""
        daylight = 1 - sin(2 * pi * (self.engine.now / self._day_seconds + 0.25))
        return max(1, int(len(self._zones) * 0.03 * daylight))

    def _send(self, tenant: str, max_blocks: int) -> None:
        draw = self._random
        count = draw.randint(1, max_blocks)
        peak = count + draw.randint(0, 3)
        patience = TURN_SECONDS * draw.randint(1, 5)
        self.engine.submit(tenant, count, peak, patience=patience, seconds=TURN_SECONDS * draw.randint(1, 8))

    def _reload(self) -> None:
        """One zone in twenty is replaced by another tenant's, and one in ten is changed."""
        self._reloaded = self.engine.now
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
        self.engine.apply(make_config(generation, pool, tuple(self._zones)))
        self.engine.ledger.trail.note(ConfigRefused(generation, "not valid JSON"))

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
            # Often new values: not only the few that are used everywhere.
            priority=0 if index % 4 else draw.randint(-(2**31), 2**31 - 1),
            idle=Idle(after_seconds=60, evict_after_seconds=[None, 3_600, 30 * DAY_SECONDS][index % 3]),
            lending=Lending(
                borrowers="SameOrHigherPriority" if index % 5 else "AnyPriority",
                max_loan_seconds=draw.choice([None, 300.0]),
            ),
            eviction_policy=draw.choice(list(EVICTION_POLICIES)),
            scrub="OnTransfer",
        )

    def _collect(self) -> None:
        """Collect events as auditing does, a part in each turn; turns are slower here."""
        self.events.update(event.kind for event in self.engine.ledger.trail.take().events())
        events = next(self._usage, None)
        if events is None:
            self._usage = self.engine.tenancy.usage_in_slices()
        self.events.update(event.kind for event in events or ())
