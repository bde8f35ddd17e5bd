"""Counters in the history of zones: no counter decreases, and two ways to report the same count agree."""

from dataclasses import fields

import pytest

from tenantzone_runtime.zones.model.counters import EVICTIONS_FOR, Counters
from tenantzone_runtime.zones.model.histogram import Histogram
from tests.zones.history_in_time import HistoryInTime

MAX_APART = 1
"""Registered zones with their own series: few, so that many zones are in the overflow."""


def flat(counters):
    """Returns all numbers of a zone's counters, each under its own name; for durations, their count and their sum."""
    numbers = {}
    for field in fields(Counters):
        value = getattr(counters, field.name)
        if isinstance(value, dict):
            numbers |= {(field.name, key): number for key, number in value.items()}
        elif isinstance(value, Histogram):
            numbers |= {(field.name, "count"): value.count, (field.name, "sum"): value.sum}
        else:
            numbers[field.name] = value
    return numbers


class HistoryCounted(HistoryInTime):
    """Checks counters after every step."""

    def _start(self, now):
        super()._start(now)
        self.ledger.overflow.max_apart = MAX_APART
        self.counted = {}
        self.overflowed = {}
        self.placed = {}
        self.ever = {}

    def check_counters(self):
        for zone in self.ledger.zones.values():
            self.tenancy.count(zone)
        counted = {zone: flat(zone.counters) for zone in self.ledger.zones.values()}
        for zone, numbers in counted.items():
            self._only_grew(self.counted.get(zone, {}), numbers)
            assert all(by in EVICTIONS_FOR[reason] for reason, by in zone.counters.evictions)
            assert sum(zone.counters.evicted.values()) == sum(zone.counters.evictions.values())
            assert sum(zone.counters.stalled_seconds.values()) <= self.now - zone.born
            assert (zone.wait_reason is not None) <= (zone.requests > 0), "who waits has a request"
        self.counted = counted
        self._check_overflow()
        self._check_loans()

    def _check_overflow(self):
        overflow = self.ledger.overflow
        for zone in overflow.members:
            overflow.count(zone)
        numbers = flat(overflow.total())
        self._only_grew(self.overflowed, numbers)
        self.overflowed = numbers
        zones = self.ledger.zones.values()
        assert set(overflow.members) <= set(zones)
        apart = [zone for zone in zones if zone.spec.auto_registered and zone not in overflow]
        assert len(apart) <= MAX_APART
        for zone in overflow.members:
            self._saw("in the overflow")
            assert zone.spec.auto_registered
        placed = {zone: zone in overflow for zone in zones if zone.spec.auto_registered}
        assert all(self.placed.get(zone, where) == where for zone, where in placed.items()), "moved in its life"
        self.placed = placed

    def _check_loans(self):
        """Loans by pair, as reported to the journal, add up to what all zones, removed ones too, lent and borrowed."""
        self.ever |= dict.fromkeys(self.ledger.zones.values())
        self.lent.take(self.tenancy.usage())
        reported = self.lent.block_seconds()
        for zone in self.ever:
            self.ledger.accrue(zone)
        for name in ("lent_block_seconds", "borrowed_block_seconds"):
            assert sum(getattr(zone.counters, name) for zone in self.ever) == pytest.approx(reported)

    @staticmethod
    def _only_grew(before, after):
        assert all(after.get(name, 0) >= number for name, number in before.items())
