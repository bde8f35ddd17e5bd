"""Copies the zones' state and counters between steps, for reports and scrapes.

No step runs while the engine's lock is held for copying. So the zones are copied in slices, and the lock is released
between slices. The copy of each zone is consistent, and so is the copy of the pool's totals. But two zones may be
copied some milliseconds apart. If a block changes owners in between, it appears in both copies or in neither. Zones
that are removed meanwhile are omitted, and so are new zones.

While the lock is held, values are only appended to a list, and no other objects are created. Creating objects can start
Python's garbage collector, which may traverse all objects, and should do so only while the lock is free.
"""

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from tenantzone_contract.reports.words import WaitReason, ZoneState
from tenantzone_contract.zone_config.config import PoolConfig
from tenantzone_runtime.housekeeping.engine import ServedEngine
from tenantzone_runtime.housekeeping.turns import in_turns
from tenantzone_runtime.zones.audit.events import RefusalReason
from tenantzone_runtime.zones.blocks.loan import Loan
from tenantzone_runtime.zones.model.flat import take
from tenantzone_runtime.zones.model.zone import Zone, ZoneSpec

ZONES_AT_ONCE = 100
"""Number of zones to copy before the lock is released. Copying them takes some tenths of a millisecond."""
LOANS_AT_ONCE = 1000

_MAX_CONTAINERS = 50
"""Maximum number of container objects that are created while the lock is held, such as iterators and a pool's copy."""

Item = TypeVar("Item")
Counts = TypeVar("Counts")


@dataclass(frozen=True, slots=True)
class PoolCopy:
    """The state of all zones together, at one moment."""

    free_blocks: int
    refusals: dict[RefusalReason, int]
    config: PoolConfig | None
    zones: list[Zone]
    """The zones at that moment. Their state is not copied."""
    loans: list[Loan]
    """The loans at that moment. Their state is not copied."""


class ZoneCopy(NamedTuple):
    """The properties and the state of one zone, at one moment."""

    zone: Zone
    """The original zone, which continues to change."""
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
    """The state of one loan at one moment. Times are monotonic, in seconds."""

    lender: Zone
    borrower: Zone
    blocks: int
    since: float
    due: float | None


_read_zone = attrgetter(*ZoneCopy._fields[2:])
_read_loan = attrgetter(*LoanCopy._fields)


@contextmanager
def held(lock: AbstractContextManager[object]) -> Iterator[None]:
    """Hold an engine's lock within the ``with`` block, without starting Python's garbage collector meanwhile."""
    threshold, *_ = gc.get_threshold()
    if threshold and gc.get_count()[0] > threshold - _MAX_CONTAINERS:
        # Collect the youngest generation now, because a few more containers would start the garbage collector.
        gc.collect(0)
    with lock:
        yield


def copy_pool(engine: ServedEngine) -> PoolCopy:
    """Returns a copy of the state of all zones together."""
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
    """Returns the zones whose requests use each LoRA adapter that has a slot, by the adapter's name."""
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
    """Returns the number of embeddings that each zone's requests use. Zones without embeddings are omitted."""
    values: list[Any] = []
    with held(engine.zone_lock):
        engine.put_encodings(values)
    used: dict[Zone, int] = {}
    for zone, embeddings in zip(values[::2], values[1::2], strict=True):
        used[zone] = used.get(zone, 0) + embeddings
    return used


def copy_loans(engine: ServedEngine, loans: Sequence[Loan]) -> list[LoanCopy]:
    """Returns copies of the loans that still exist."""

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
    """Returns copies of the zones that are not being removed, each with the requested counters.

    Args:
        engine: the engine of the zones. The caller must not hold the engine's lock.
        zones: the zones to copy.
        put_counts: appends a zone's values to a list. It runs with the lock held, and should create no other objects.
        take_counts: makes a zone's counters from an iterator. It must consume exactly the values that ``put_counts``
            appended for this zone.
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
    """Returns flat lists of the values of all items, one list for each ``at_once`` items.

    Args:
        lock: held while each list is made, and released in between.
        items: the items to copy.
        put: appends the values of some items to a list. It should create no other objects.
        at_once: the number of items per list.
    """
    for some in in_turns(items, at_once):
        values: list[Any] = []
        with held(lock):
            put(some, values)
        yield values
