"""Copies of what zones hold and have counted, taken between steps, for reports and scrapes.

Whoever copies holds the engine's lock, and no step is made meanwhile. So it is held for a slice of the zones at a
time, and is free in between. What is copied of one zone is of one moment, and so is what is told of the pool as a
whole; two zones may be of moments some milliseconds apart, and a block that changed hands in between shows with both or
with neither. Zones that leave meanwhile are left out, and those that come are not in it yet.

Under the lock, values are put into a list and nothing else is made. Python's collector is set off by what is made, and
may walk through all that there is: it is to do so when the lock is free.
"""

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from tenantzone_contract.config import PoolConfig
from tenantzone_contract.report import WaitReason, ZoneState
from tenantzone_runtime.housekeeping.engine import ServedEngine
from tenantzone_runtime.housekeeping.turns import in_turns
from tenantzone_runtime.zones.audit import RefusalReason
from tenantzone_runtime.zones.flat import take
from tenantzone_runtime.zones.loan import Loan
from tenantzone_runtime.zones.zone import Zone, ZoneSpec

ZONES_AT_ONCE = 100
"""Some tenths of a millisecond's work."""
LOANS_AT_ONCE = 1000

_MAX_CONTAINERS = 50
"""More than are made under the lock: iterators and views that go at once, and the few that a copy of the pool is of."""

Item = TypeVar("Item")
Counts = TypeVar("Counts")


@dataclass(frozen=True, slots=True)
class PoolCopy:
    """What is known of all zones together, at one moment."""

    free_blocks: int
    refusals: dict[RefusalReason, int]
    config: PoolConfig | None
    zones: list[Zone]
    """Which there are. What each of them holds is not copied yet."""
    loans: list[Loan]
    """The same."""


class ZoneCopy(NamedTuple):
    """What one zone is and holds, at one moment."""

    zone: Zone
    """Which it is. It goes on changing."""
    running_requests: int
    spec: ZoneSpec
    state: ZoneState
    in_use: int
    held: int
    requests: int
    overdue: int
    short: int
    wait_reason: WaitReason | None


class LoanCopy(NamedTuple):
    """One loan at one moment; its times are those of the monotonic clock."""

    lender: Zone
    borrower: Zone
    blocks: int
    since: float
    due: float | None


_read_zone = attrgetter(*ZoneCopy._fields[2:])
_read_loan = attrgetter(*LoanCopy._fields)


@contextmanager
def held(lock: AbstractContextManager[object]) -> Iterator[None]:
    """Hold an engine's lock to copy something, which does not set off Python's collector."""
    threshold, *_ = gc.get_threshold()
    if threshold and gc.get_count()[0] > threshold - _MAX_CONTAINERS:
        # A few more containers would: have it look at the newest ones before.
        gc.collect(0)
    with lock:
        yield


def copy_pool(engine: ServedEngine) -> PoolCopy:
    """What is known of all zones together."""
    tenancy = engine.tenancy
    with held(engine.zone_lock):
        return PoolCopy(
            free_blocks=engine.free_blocks,
            refusals=dict(tenancy.refusals),
            config=tenancy.pool,
            zones=list(tenancy.ledger.zones.values()),
            loans=list(tenancy.loans),
        )


def copy_adapters(engine: ServedEngine) -> dict[str, list[Zone]]:
    """The LoRA adapters that have slots, each with the zones whose requests run with it."""
    values: list[Any] = []
    with held(engine.zone_lock):
        engine.put_adapters(values)
    users: dict[str, dict[Zone, None]] = {}
    for zone, adapter in zip(values[::2], values[1::2], strict=True):
        zones = users.setdefault(adapter, {})
        if zone is not None:
            zones[zone] = None
    return {adapter: list(zones) for adapter, zones in users.items()}


def copy_encoder_use(engine: ServedEngine) -> dict[Zone, int]:
    """Returns the embeddings that each zone's requests use, without the zones that use none."""
    values: list[Any] = []
    with held(engine.zone_lock):
        engine.put_encodings(values)
    used: dict[Zone, int] = {}
    for zone, embeddings in zip(values[::2], values[1::2], strict=True):
        used[zone] = used.get(zone, 0) + embeddings
    return used


def copy_loans(engine: ServedEngine, loans: Sequence[Loan]) -> list[LoanCopy]:
    """Those of the loans that still stand."""

    def put(some: Sequence[Loan], values: list[Any]) -> None:
        for loan in some:
            values += _read_loan(loan)

    width = len(LoanCopy._fields)
    return [
        loan
        for values in in_slices(engine.zone_lock, loans, put, LOANS_AT_ONCE)
        for start in range(0, len(values), width)
        if (loan := LoanCopy(*values[start : start + width])).blocks
    ]


def copy_zones(
    engine: ServedEngine,
    zones: Sequence[Zone],
    put_counts: Callable[[Zone, list[Any]], None],
    take_counts: Callable[[Iterator[Any]], Counts],
) -> Iterator[tuple[ZoneCopy, Counts]]:
    """Copies of those of the zones that have not left, each with what is asked for of its counters.

    Args:
        engine: whose zones; its lock must not be held.
        zones: which ones.
        put_counts: appends what is asked for. It holds the lock, and should make nothing else.
        take_counts: makes a copy of what was appended, from an iterator that goes on after it.
    """

    def put(some: Sequence[Zone], values: list[Any]) -> None:
        running = Counter(engine.running_zones())
        for zone in some:
            if not zone.leaving:
                engine.tenancy.count(zone)
                values += (zone, running[zone])
                values += _read_zone(zone)
                put_counts(zone, values)

    for values in in_slices(engine.zone_lock, zones, put, ZONES_AT_ONCE):
        left = iter(values)
        for zone in left:
            yield ZoneCopy(zone, *take(left, len(ZoneCopy._fields) - 1)), take_counts(left)


def in_slices(
    lock: AbstractContextManager[object],
    items: Sequence[Item],
    put: Callable[[Sequence[Item], list[Any]], None],
    at_once: int,
) -> Iterator[list[Any]]:
    """Flat copies of so many items at a time, each made with the lock held.

    Args:
        lock: is free between two of them.
        items: what is copied.
        put: appends what is copied of some of them, and should make nothing else.
        at_once: so many.
    """
    for some in in_turns(items, at_once):
        values: list[Any] = []
        with held(lock):
            put(some, values)
        yield values
