"""Seats: how many requests of a zone may run at once, and who gives one up for whom.

An engine computes a bounded number of requests at a time. A zone that reserves blocks reserves the same share,
rounded down, of the seats that no zone reserves by name. Zones whose share rounds to none have one seat between
them, which they get in turn. A zone with a limit has no more than that. What a zone does not use is lent without terms:
a waiting request that is entitled to a seat gets one before the next step, from a zone that has more than its own.
Blocks of a request that gives its seat up stay cached if they fit, so resuming is cheap.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import chain, islice
from operator import attrgetter
from typing import Final, Generic

from tenantzone_runtime.zones.audit import PreemptionReason
from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.totals import Totals
from tenantzone_runtime.zones.zone import Zone, ZoneSpec

_PASSED_OVER = 16
"""Requests of a zone that wait for something else than blocks, a grammar for instance, behind which others are seen."""
_ZONE: Final = attrgetter("zone")
_FEW = 4
"""Waiting requests of a zone that are looked at first; more seldom matter."""
_LOOKED_AT = 16
"""The number of zones without a seat of their own that are considered before a step for the shared seat."""


def share_of_seats(reserved: int, capacity: int, seats: int) -> int:
    """The seats that come with a reservation of blocks: the same share, rounded down.

    Args:
        reserved: blocks.
        capacity: blocks of the engine.
        seats: of the engine.
    """
    return reserved * seats // capacity if capacity else 0


def own_seats(spec: ZoneSpec, totals: Totals) -> int:
    """The seats that a zone reserves: by name, or the share of what is left that comes with its blocks."""
    by_name, limit = spec.seats.reserved, spec.seats.limit
    if by_name is not None:
        return by_name
    share = share_of_seats(spec.quota.reserved, totals.capacity, max(0, totals.seats - totals.seats_reserved))
    return share if limit is None else min(share, limit)


def candidates(engine: Engine[W], zone: Zone, blocks_at_most: Callable[[W], int]) -> Iterator[tuple[W, int]]:
    """The next waiting requests of a zone that has one, each with the blocks that it asks for at the most.

    Those that wait for something else than blocks are passed over, but not without end. Nothing may change meanwhile.

    Args:
        engine: whose requests.
        zone: has a waiting request.
        blocks_at_most: the most blocks that a request can ask for; 0 if it waits for something else.
    """
    seen, count, passed_over = 0, _FEW, 0
    while passed_over <= _PASSED_OVER:
        fronts = engine.fronts(zone, count)
        for work in fronts[seen:]:
            blocks = blocks_at_most(work)
            passed_over += not blocks
            if blocks and passed_over <= _PASSED_OVER:
                yield work, blocks
        if len(fronts) < count:
            return
        seen, count = count, 4 * count


class Seats(Generic[W]):
    """The seats of one engine.

    Args:
        totals: of its zones.
        engine: whose requests.
        blocks_at_most: the most blocks that a waiting request can ask for; 0 if it waits for something else.
        can_begin: whether a waiting request could have its blocks now.
        preempt: preempts a running request, for a reason and a beneficiary; calls ``stood_up``.
    """

    def __init__(
        self,
        totals: Totals,
        engine: Engine[W],
        blocks_at_most: Callable[[W], int],
        can_begin: Callable[[W], bool],
        preempt: Callable[[W, PreemptionReason, Zone | None], None],
    ) -> None:
        self._totals = totals
        self._engine = engine
        self._blocks_at_most = blocks_at_most
        self._can_begin = can_begin
        self._preempt = preempt
        self._owners: dict[Zone, None] = {}
        """Zones with a waiting request and seats of their own, ..."""
        self._others: dict[Zone, None] = {}
        """... and those without, in the order in which they get the one that they share."""
        self._limited: dict[Zone, None] = {}
        """Those of both that have a limit."""
        self._sorted_at = 0
        """The count of spec changes at which these two were computed."""
        self._held: Counter[Zone] = Counter()
        """Requests that run or are loaded, by zone, as counted in this step."""
        self._claimed: dict[Zone, int] = {}
        """Seats to which zones are entitled that do not have them, before the step."""
        self._kept: Counter[Zone] = Counter()
        """Seats that are kept in this step for zones that are entitled to them."""
        self._is_short = False
        """Whether there were fewer seats than waiting requests before this step."""
        self._turned_away: list[Zone] = []
        """Zones that were denied a seat in this step since it is kept for another."""

    def reserved(self, zone: Zone) -> int:
        """The zone's own seats."""
        return own_seats(zone.spec, self._totals)

    def waits(self, zone: Zone) -> None:
        """Note that the zone has a waiting request."""
        (self._owners if self.reserved(zone) else self._others).setdefault(zone)
        if zone.spec.seats.limit is not None:
            self._limited[zone] = None

    def waits_no_more(self, zone: Zone) -> None:
        """Note that the zone has none."""
        self._owners.pop(zone, None)
        self._others.pop(zone, None)
        self._limited.pop(zone, None)

    def count(self) -> None:
        """Count who has how many, before the step, unless there are seats for all who wait and none has a limit."""
        self._kept.clear()
        self._turned_away.clear()
        self._tell_apart()
        self._is_short = self._engine.free_seats < len(self._engine.waiting)
        if self._is_short or self._limited:
            self._held = Counter(map(_ZONE, chain(self._engine.running, self._engine.loading)))

    def begin_step(self) -> None:
        """See which zones are entitled to seats that they do not have.

        No zone is considered while there are seats for all waiting requests.
        """
        self._claimed = dict(self._claims()) if self._is_short else {}

    @property
    def claimants(self) -> Collection[Zone]:
        """Zones that may have seats before this step, whether any are free or not."""
        return self._claimed.keys()

    def make_free(self, useless: Collection[Zone]) -> None:
        """Keep seats for zones that are entitled to them, and let others give theirs up if too few are free.

        Args:
            useless: zones that have no use for a seat in this step: their next requests find no tokens in it.
        """
        claimed, self._claimed = self._claimed, {}
        for zone, count in claimed.items():
            if zone not in useless:
                self._kept[zone] = count
                self._make_free(zone)

    def is_there_one_for(self, zone: Zone) -> bool:
        """Whether a seat is free, or the zone is entitled to one that others have."""
        return self._engine.free_seats > 0 or self._held[zone] < self.reserved(zone)

    def is_at_limit(self, zone: Zone) -> bool:
        """Whether as many requests of the zone run as may run at once."""
        limit = zone.spec.seats.limit
        return limit is not None and self._held[zone] >= limit

    def free_for(self, zone: Zone) -> int:
        """Returns the number of further requests that the zone may run, by its seats."""
        free, limit = max(self._engine.free_seats, self._claimed.get(zone, 0)), zone.spec.seats.limit
        return free if limit is None else max(0, min(free, limit - self._held[zone]))

    def may_sit(self, zone: Zone) -> bool:
        """Whether the zone's next request may have a seat that is not kept for others."""
        may_sit = self._engine.free_seats > self._kept.total() - self._kept[zone]
        if not may_sit:
            self._turned_away.append(zone)
        return may_sit

    def let_go(self) -> list[Zone]:
        """Keep nothing any more in this step; returns the zones that were turned away for what was kept."""
        self._kept.clear()
        turned_away, self._turned_away = self._turned_away, []
        return turned_away

    def sat_down(self, work: W) -> None:
        """Note that a zone's next request has left the queue, most likely for a seat."""
        zone = work.zone
        if self._kept[zone]:
            self._kept[zone] -= 1
        self._held[zone] += 1

    def stood_up(self, zone: Zone) -> None:
        """Note that a running request of the zone was sent back to wait."""
        self._held[zone] -= 1

    def forget(self, zone: Zone) -> None:
        """Forget a zone that is gone."""
        del self._held[zone]

    def _tell_apart(self) -> None:
        if self._sorted_at != self._totals.spec_changes:
            self._sorted_at = self._totals.spec_changes
            waiting = [*self._owners, *self._others]
            for zones in (self._owners, self._others, self._limited):
                zones.clear()
            for zone in waiting:
                self.waits(zone)

    def _claims(self) -> Iterator[tuple[Zone, int]]:
        """The zones that are entitled to seats which they do not have, with how many."""
        for zone in list(self._owners):
            if count := self._ready(zone, self.reserved(zone) - self._held[zone]):
                yield zone, count
        if self._others and self._shared() > self._shared_in_use():
            for zone in list(islice(self._others, _LOOKED_AT)):
                # The next time it is another's turn.
                del self._others[zone]
                self._others[zone] = None
                if self._ready(zone, 1):
                    yield zone, 1
                    return

    def _ready(self, zone: Zone, most: int) -> int:
        """How many of the zone's waiting requests could run if they had seats, of the first ``most``."""
        if most <= 0 or zone.parked or self.is_at_limit(zone):
            return 0
        ready = blocks = 0
        for work, count in candidates(self._engine, zone, self._blocks_at_most):
            blocks += count
            if ready == most or not (self._can_follow(zone, blocks) if ready else self._can_begin(work)):
                break
            ready += 1
        return ready

    def _can_follow(self, zone: Zone, blocks: int) -> bool:
        """Whether the zone could run one more request if all its requests then need ``blocks`` blocks."""
        if zone.is_entitled_to(blocks):
            return True
        # Seats that come with blocks are for requests within these; seats by name are for any that find blocks.
        return zone.spec.seats.reserved is not None and blocks <= self._engine.free_blocks

    def _make_free(self, zone: Zone) -> None:
        """Preempt until the kept seats are free, or no zone has more than its own."""
        while self._engine.free_seats < self._kept.total():
            victim = self._victim(zone)
            if victim is None:
                return
            self._preempt(victim, "seat", zone)

    def _victim(self, beneficiary: Zone) -> W | None:
        """The running request that gives up its seat: the youngest of those of the lowest priority.

        None if no zone has more than its own.
        """
        shared_may_yield = self._shared_in_use() > self._shared()
        victim: W | None = None
        for work in self._engine.by_seniority():
            zone = work.zone
            own = self.reserved(zone)
            may_yield = zone is not beneficiary and self._held[zone] > own and (own or shared_may_yield)
            if may_yield and (victim is None or zone.spec.priority <= victim.zone.spec.priority):
                victim = work
        return victim

    def _shared(self) -> int:
        """The seat that zones without one of their own share; 0 if all are others' own who are there now."""
        present = self._owners.keys() | self._held.keys()
        return int(sum(map(self.reserved, present)) < self._totals.seats)

    def _shared_in_use(self) -> int:
        """The seats that zones without one of their own have."""
        return sum(count for zone, count in self._held.items() if not self.reserved(zone))
