"""Simulates days of an engine's zones.

The number of active tenants depends on the hour of the day. Their requests borrow, wait, time out, and are refused and
preempted, and their caches are evicted. Zones are added, changed and removed, and tenants without a zone send requests
once and never again. The trail and the usage are collected as for a journal.
"""

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from math import pi, sin
from typing import Final

from bench.soak.engine import Engine
from bench.soak.kept import Averages
from tenantzone_contract.zone_config.config import PoolConfig, Watermarks, ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.unknown_tenants import UnknownTenants, UnknownTenantTemplate
from tenantzone_contract.zone_config.zone_terms import Idle, Lending
from tenantzone_runtime.zones.audit.events import ConfigRefused, Event
from tenantzone_runtime.zones.eviction_policies import EVICTION_POLICIES

DAY_SECONDS: Final = 86_400.0
TURN_SECONDS: Final = 30.0
RELOADS_A_DAY: Final = 48
LOOKS_A_DAY: Final = 24
"""Number of counts per day, in its second half, because caches and tables fill up in the first half."""
BLOCKS_PER_ZONE: Final = 60
RESERVED: Final = 50
WAITS: Final = (0.0, 0.01, 0.1, 1.0, 10.0)
"""Seconds that requests may wait; few different values, so that histograms are full early."""


class Days:
    """Simulated days of one engine.

    Args:
        zones: the number of zones declared at a time.
        seed: the same seed gives the same days.
        day_seconds: the length of a day, in seconds.
    """

    def __init__(self, zones: int, seed: int = 1, day_seconds: float = DAY_SECONDS) -> None:
        self.engine = Engine(zones * BLOCKS_PER_ZONE, seats=max(8, zones // 5))
        self.engine.ledger.overflow.max_apart = 5
        self.events: Counter[str] = Counter()
        """Number of events by kind."""
        self.averages = Averages()
        self._day_seconds = day_seconds
        self._random = random.Random(seed)
        self._numbers = itertools.count(1)
        """Counter for generations and for new names."""
        self._zones = [self._draw(index, self._new_name("tenant")) for index in range(zones)]
        self._usage: Iterator[Iterator[Event]] = iter(())
        self._reloaded = -day_seconds

    def live_a_day(self) -> Iterator[float]:
        """Simulate one day; yields the time after each turn."""
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
        """Returns the number of requests in this turn: more by day than by night, and 6 % of the tenants at noon."""
        daylight = 1 - sin(2 * pi * (self.engine.now / self._day_seconds + 0.25))
        return max(1, int(len(self._zones) * 0.03 * daylight))

    def _send(self, tenant: str, max_blocks: int) -> None:
        draw = self._random
        count = draw.randint(1, max_blocks)
        peak = count + draw.randint(0, 3)
        patience = TURN_SECONDS * draw.randint(1, 5)
        self.engine.submit(tenant, count, peak, patience=patience, seconds=TURN_SECONDS * draw.randint(1, 8))

    def _reload(self) -> None:
        """Apply a config in which one zone in twenty is replaced by a new tenant's, and one in ten is changed."""
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
        """Draw a zone; some fields depend only on its index, so that the mix of kinds is the same each day."""
        draw = self._random
        return ZoneConfig(
            name=tenant,
            tenant=tenant,
            generation=next(self._numbers),
            reserved=RESERVED,
            weight=draw.randint(1, 4),
            # Draw from a wide range, so that values are often new.
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
        """Collect events as auditing does, a part of them in each turn; turns are slower here."""
        self.events.update(event.kind for event in self.engine.ledger.trail.take().events())
        events = next(self._usage, None)
        if events is None:
            self._usage = self.engine.tenancy.usage_in_slices()
        self.events.update(event.kind for event in events or ())
