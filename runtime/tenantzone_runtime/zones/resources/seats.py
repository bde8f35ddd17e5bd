"""Seats: how many requests of a zone may run at once, and which zone gives up a seat for another.

An engine runs a bounded number of requests at once, each in a *seat*. A zone can reserve a number of seats explicitly.
Otherwise, a zone that reserves blocks reserves the same fraction, rounded down, of the seats that no zone reserves
explicitly. Zones without reserved seats take turns on one shared seat. A zone never has more seats than its limit.
Unused seats are lent without terms: before the next step, a waiting request that is entitled to a seat gets one from a
zone that has more than it reserves. The blocks of a request that gives up its seat stay cached if they fit, so resuming
it is cheap.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import chain, islice
from operator import attrgetter
from typing import Final, Generic

from tenantzone_runtime.zones.audit.events import PreemptionReason
from tenantzone_runtime.zones.blocks.totals import Totals
from tenantzone_runtime.zones.engine import Engine, W
from tenantzone_runtime.zones.model.zone import Zone, ZoneSpec

_PASSED_OVER = 16
"""Maximum number of a zone's requests that are skipped because they wait for something other than blocks."""
_ZONE: Final = attrgetter("zone")
_FEW = 4
"""Number of waiting requests of a zone that are fetched first. More are rarely needed."""
_LOOKED_AT = 16
"""Maximum number of zones without seats of their own that are considered for the shared seat before a step."""

_LOOKED_UP = 1024
"""Maximum number of blocks of prompts to look up before each step, to find out which requests could use seats."""


def share_of_seats(reserved: int, capacity: int, seats: int) -> int:
    """Returns the seats that come with a reservation of blocks: the same fraction, rounded down.

    Args:
        reserved: number of reserved blocks.
        capacity: number of blocks of the engine.
        seats: number of seats to divide.
    """
    return reserved * seats // capacity if capacity else 0


def own_seats(spec: ZoneSpec, totals: Totals) -> int:
    """Returns the number of seats that a zone reserves, explicitly or by its reservation of blocks."""
    by_name, limit = spec.seats.reserved, spec.seats.limit
    if by_name is not None:
        return by_name
    share = share_of_seats(spec.quota.reserved, totals.capacity, max(0, totals.seats - totals.seats_reserved))
    return share if limit is None else min(share, limit)


def candidates(engine: Engine[W], zone: Zone, blocks_at_most: Callable[[W], int]) -> Iterator[tuple[W, int]]:
    """Generate the next waiting requests of a zone, each with the most blocks that it can need.

    A bounded number of requests that wait for something other than blocks is skipped. The queue must not change
    meanwhile.

    Args:
        engine: the engine.
        zone: a zone that has a waiting request.
        blocks_at_most: returns the most blocks that a request can need; 0 if it waits for something else.
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


class LookUps:
    """A budget of blocks of waiting prompts to look up before each step.

    A look-up takes about a microsecond per block. Without a budget, waiting prompts that are denied blocks would be
    looked up before each step while no seat is free.
    """

    def __init__(self) -> None:
        self._left = _LOOKED_UP
        """Number of blocks; below 0 after a prompt that was longer than the budget."""
        self.has_refused = False
        """Whether the budget refused a look-up. The caller sets it back."""

    def begin_step(self) -> None:
        """Add the blocks of one step."""
        self._left = min(_LOOKED_UP, self._left + _LOOKED_UP)

    def spend(self, blocks: int) -> bool:
        """Returns whether a prompt of this many blocks may be looked up. If so, the blocks are spent."""
        if self._left <= 0:
            self.has_refused = True
            return False
        self._left -= blocks
        return True


class Seats(Generic[W]):
    """The seats of one engine.

    Args:
        totals: totals of the engine's zones.
        engine: the engine.
        blocks_at_most: returns the most blocks that a waiting request can need; 0 if it waits for something else.
        can_begin: returns whether a waiting request could have its blocks now.
        preempt: preempts a running request, for a reason and a beneficiary. It must call ``stood_up``.
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
        """Zones that have waiting requests, and seats of their own."""
        self._others: dict[Zone, None] = {}
        """Zones with waiting requests and no seats of their own, in the order in which they get the shared seat."""
        self._limited: dict[Zone, None] = {}
        """Zones that have waiting requests, and a limit of seats."""
        self._sorted_at = (0, 0)
        """Values of ``Totals`` when zones were last divided into owners, others and limited zones. A new zone with
        reserved seats changes no spec, but other zones' seats, which are a share of the rest."""
        self._held: Counter[Zone] = Counter()
        """Number of running and loading requests by zone, as counted for this step."""
        self._claimed: dict[Zone, int] = {}
        """Number of seats that each zone is entitled to and lacks, before the step."""
        self._kept: Counter[Zone] = Counter()
        """Number of seats kept in this step for zones that are entitled to them."""
        self._look_ups_of_owners, self._look_ups_of_others = LookUps(), LookUps()
        """Two budgets, so that neither zones with seats of their own nor the others can use up all look-ups."""
        self._look_ups = self._look_ups_of_owners
        """The budget of the zones that are being considered."""
        self._is_short = False
        """Whether there were fewer seats than waiting requests before this step."""
        self.turned_away: list[Zone] = []
        """Zones that were denied a seat in this step because all free seats are kept for other zones."""

    def reserved(self, zone: Zone) -> int:
        """Returns the number of seats that the zone reserves."""
        return own_seats(zone.spec, self._totals)

    def waits(self, zone: Zone) -> None:
        """Note that the zone has a waiting request."""
        (self._owners if self.reserved(zone) else self._others).setdefault(zone)
        if zone.spec.seats.limit is not None:
            self._limited[zone] = None

    def waits_no_more(self, zone: Zone) -> None:
        """Note that the zone has no waiting request."""
        self._owners.pop(zone, None)
        self._others.pop(zone, None)
        self._limited.pop(zone, None)

    def count(self) -> None:
        """Count each zone's seats before the step, unless all waiting requests get seats and no zone has a limit."""
        self._kept.clear()
        self.turned_away.clear()
        self._tell_apart()
        self._is_short = self._engine.free_seats < len(self._engine.waiting)
        if self._is_short or self._limited:
            self._held = Counter(map(_ZONE, chain(self._engine.running, self._engine.loading)))

    def begin_step(self) -> None:
        """Determine which zones are entitled to seats that they do not have.

        This is skipped while there are free seats for all waiting requests.
        """
        self._look_ups_of_owners.begin_step()
        self._look_ups_of_others.begin_step()
        self._claimed = dict(self._claims()) if self._is_short else {}

    @property
    def claimants(self) -> Collection[Zone]:
        """Zones that are entitled to more seats before this step, even if no seat is free."""
        return self._claimed.keys()

    def make_free(self, useless: Collection[Zone]) -> None:
        """Keep seats for zones that are entitled to them, and preempt other zones' requests if too few are free.

        Args:
            useless: zones that can't use a seat in this step, because their next requests get no tokens in it.
        """
        claimed, self._claimed = self._claimed, {}
        for zone, count in claimed.items():
            if zone not in useless:
                self._kept[zone] = count
                self._make_free(zone)

    def may_look_up(self, blocks: int) -> bool:
        """Returns whether a waiting prompt of this many blocks may be looked up before this step, and counts it."""
        return self._look_ups.spend(blocks)

    def is_there_one_for(self, zone: Zone) -> bool:
        """Whether a seat is free, or the zone is entitled to a seat that another zone has."""
        return self._engine.free_seats > 0 or self._held[zone] < self.reserved(zone)

    def is_at_limit(self, zone: Zone) -> bool:
        """Whether the zone runs as many requests as its limit allows."""
        limit = zone.spec.seats.limit
        return limit is not None and self._held[zone] >= limit

    def free_for(self, zone: Zone) -> int:
        """Returns the number of further requests for which the zone has or can get seats."""
        free, limit = max(self._engine.free_seats, self._claimed.get(zone, 0)), zone.spec.seats.limit
        return free if limit is None else max(0, min(free, limit - self._held[zone]))

    def may_sit(self, zone: Zone) -> bool:
        """Whether the zone's next request may take a free seat, because not all are kept for other zones."""
        return self._engine.free_seats > self._kept.total() - self._kept[zone]

    def turn_away(self, zone: Zone) -> None:
        """Note that the zone's next request was denied a seat, because all free seats are kept for other zones."""
        self.turned_away.append(zone)

    def let_go(self) -> list[Zone]:
        """Release all kept seats in this step; returns the zones that were turned away because of them."""
        self._kept.clear()
        turned_away, self.turned_away = self.turned_away, []
        return turned_away

    def sat_down(self, work: W) -> None:
        """Note that a zone's next request has left the queue, most likely because it was admitted."""
        zone = work.zone
        if self._kept[zone]:
            self._kept[zone] -= 1
        self._held[zone] += 1

    def stood_up(self, zone: Zone) -> None:
        """Note that a running request of the zone was preempted."""
        self._held[zone] -= 1

    def forget(self, zone: Zone) -> None:
        """Forget a removed zone."""
        del self._held[zone]

    def _tell_apart(self) -> None:
        now = self._totals.spec_changes, self._totals.seats_reserved
        if self._sorted_at != now:
            self._sorted_at = now
            waiting = [*self._owners, *self._others]
            for zones in (self._owners, self._others, self._limited):
                zones.clear()
            for zone in waiting:
                self.waits(zone)

    def _claims(self) -> Iterator[tuple[Zone, int]]:
        """Generate the zones that are entitled to more seats than they have, with the number of missing seats."""
        look_ups = self._look_ups = self._look_ups_of_owners
        owners, first_refused = list(self._owners), None
        for index, zone in enumerate(owners):
            look_ups.has_refused = False
            if count := self._ready(zone, self.reserved(zone) - self._held[zone]):
                yield zone, count
            if look_ups.has_refused and first_refused is None:
                first_refused = index
        if first_refused:
            # The first zone that could not be looked up before this step comes first before the next one.
            self._owners = dict.fromkeys((*owners[first_refused:], *owners[:first_refused]))
        if self._others and self._shared() > self._shared_in_use():
            yield from self._claim_of_others()

    def _claim_of_others(self) -> Iterator[tuple[Zone, int]]:
        """Generate the zone that gets the shared seat, if any. Considered zones move to the end of the round robin."""
        look_ups = self._look_ups = self._look_ups_of_others
        for zone in list(islice(self._others, _LOOKED_AT)):
            look_ups.has_refused = False
            is_ready = self._ready(zone, 1)
            if look_ups.has_refused:
                continue
            del self._others[zone]
            self._others[zone] = None
            if is_ready:
                yield zone, 1
                return

    def _ready(self, zone: Zone, most: int) -> int:
        """Returns how many of the zone's first ``most`` waiting requests could run if they had seats."""
        if most <= 0 or zone.backoff_ticket or self.is_at_limit(zone):
            return 0
        ready = blocks = 0
        for work, count in candidates(self._engine, zone, self._blocks_at_most):
            blocks += count
            if ready == most or not (self._can_follow(zone, blocks) if ready else self._can_begin(work)):
                break
            ready += 1
        return ready

    def _can_follow(self, zone: Zone, blocks: int) -> bool:
        """Whether the zone could run one more request, if its new requests need ``blocks`` blocks together."""
        if zone.is_entitled_to(blocks):
            return True
        # Seats that come with blocks are only for requests within the reservation. Explicitly reserved seats are for
        # any requests that find blocks.
        return zone.spec.seats.reserved is not None and blocks <= self._engine.free_blocks

    def _make_free(self, zone: Zone) -> None:
        """Preempt requests until the kept seats are free, or no zone has more seats than it reserves."""
        while self._engine.free_seats < self._kept.total():
            victim = self._victim(zone)
            if victim is None:
                return
            self._preempt(victim, "seat", zone)

    def _victim(self, beneficiary: Zone) -> W | None:
        """Returns the running request that gives up its seat: the youngest of the lowest priority.

        Returns None if no other zone has more seats than it reserves.
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
        """Returns the number of seats for all zones without own seats: 1, or 0 if zones with requests reserve all."""
        present = self._owners.keys() | self._held.keys()
        return int(sum(map(self.reserved, present)) < self._totals.seats)

    def _shared_in_use(self) -> int:
        """Returns the number of seats in use by zones without seats of their own."""
        return sum(count for zone, count in self._held.items() if not self.reserved(zone))
