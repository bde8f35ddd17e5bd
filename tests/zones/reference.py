"""The rules of the algebra again, as plainly as possible: sets of block ids, and every question answered from scratch.

Nothing here comes from the core. Each answer looks at all zones, so it is slow, and there are no sums, orders, heaps or
timers that could go stale. The tests compare the core with it after every step.
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf

from tests.zones.reference_orders import ORDERS, LeastRecentlyUsed


@dataclass(eq=False)
class Claim:
    """A zone: what it was promised, and what it holds."""

    tenant: str
    entered: int
    born: float
    last_active: float = -inf
    """The time of the last use; minus infinity: no request has come yet, so the zone is quiet."""
    reserved: int = 0
    limit: int = 0
    lendable: int = 0
    priority: int = 0
    weight: int = 1
    any_priority: bool = False
    has_loan_time: bool = False
    policy: str = "LRU"
    after: float = 60.0
    evict_after: float | None = None
    release: tuple[int, float] | None = None
    """Percent, and seconds from one step to the next."""
    forget_after: float | None = None
    ttl: float | None = None
    no_store: bool = False
    seats: tuple[int | None, int | None] = (None, None)
    """The seats that it reserves by name and gets, and its limit."""
    purge: str = ""
    auto: bool = False
    wanted: int = 0
    """For a registered zone: the blocks that its level reserves, if they fit."""

    in_use: set = field(default_factory=set)
    used: dict = field(default_factory=dict)
    """When each cached block was last used, in the order in which the blocks were let go."""
    let_go: dict = field(default_factory=dict)
    """When each block was last let go."""
    order: LeastRecentlyUsed = field(init=False)
    """The eviction order of its cached blocks."""
    requests: int = 0
    state: str = "Idle"
    quiet: bool = True
    cached_when_quiet: int = 0
    lends_unused: bool = False
    """Quiet before its time, because none of its requests can be admitted."""
    leaving: bool = False
    overdue: int = 0
    purged: str = ""
    """The id of the last purge."""
    purges: int = 0

    def __post_init__(self):
        self.purged = self.purge
        self.order = ORDERS[self.policy]()

    @property
    def cached(self):
        """Its cached blocks, in the order in which they go, second chances aside."""
        return self.order.kept

    @property
    def held(self):
        return len(self.in_use) + len(self.cached)

    @property
    def floor(self):
        """The blocks that no other zone may take from it now, whether its requests need them or not."""
        return self.reserved - self.lendable if self.quiet else self.reserved

    def floor_against(self, priority):
        """The blocks that a borrower of this priority may not take from it now."""
        lends = self.quiet and (self.any_priority or priority >= self.priority)
        return self.reserved - self.lendable if lends else self.reserved

    def above(self, floor):
        """The cached blocks that it can lose and still hold `floor` blocks."""
        return min(len(self.cached), max(0, self.held - floor))

    @property
    def age(self):
        """The time when its next block to go was let go, and a tie-breaker."""
        return self.let_go[self.cached[0]], self.entered

    def lose(self, count):
        """Gives up `count` cached blocks by its policy. Returns their ids in order."""
        return [self.order.lose() for _ in range(count)]


class World:
    """All zones of an engine."""

    def __init__(self, capacity, now=0.0):
        self.capacity = capacity
        self.now = now
        self.claims: dict[str, Claim] = {}
        self.free = set(range(capacity))
        self.before_zones: set[int] = set()
        """Blocks used by requests while no zone is declared."""
        self.entered = 0

    def others(self, claim):
        return [other for other in self.claims.values() if other is not claim]

    def add(self, tenant, **terms):
        self.entered += 1
        self.claims[tenant] = claim = Claim(tenant, self.entered, self.now, **terms)
        return claim

    def add_early(self, tenant):
        """Gives requests from before the first config a zone that is promised nothing and ends with them."""
        claim = self.add(tenant, limit=self.capacity, after=inf)
        claim.leaving = True
        claim.in_use, self.before_zones = self.before_zones, set()
        return claim

    # Blocks that zones may take

    def takeable(self, claim, *, growing=False, peak=0, claimed=0):
        """The most blocks that the zone can put to use now, its own cache included.

        A running request (``growing``) may also have what others cache above their reservations, and goes on while its
        zone's loans are overdue. A request that was running when the limit fell may grow to its ``peak``. Others have
        ``claimed`` this many blocks within their reservations.
        """
        spare = self.spare(claim)
        if growing:
            spare += sum(other.above(other.reserved) for other in self.others(claim) if not other.quiet)
        free = len(self.free) + len(claim.cached)
        unused = claim.reserved - len(claim.in_use)
        obtainable = free + sum(other.above(other.floor) for other in self.others(claim))
        entitled = min(unused, obtainable - claimed)
        if claim.overdue and not growing:
            return max(0, entitled)
        return max(0, min(max(entitled, spare), max(claim.limit, peak) - len(claim.in_use)))

    def spare(self, claim):
        """Blocks beyond any promise: free ones and those that quiet zones give up, less what is still promised."""
        spare = len(self.free) + len(claim.cached)
        for other in self.others(claim):
            floor = other.floor_against(claim.priority)
            spare += other.above(floor) if other.quiet else 0
            spare -= max(0, floor - other.held)
        return spare

    def reachable(self, claim, peak=0):
        """The most that the zone can ever use at once: if no other zone uses anything, and all lend what they may."""
        return self._reachable(claim, peak, self.others(claim))

    def lastingly_reachable(self, claim, peak=0):
        """The same without loans with a time limit: each expiry preempts a request that needs one for longer."""
        return self._reachable(claim, peak, [other for other in self.others(claim) if not other.has_loan_time])

    def _reachable(self, claim, peak, lenders):
        kept = 0
        for other in self.others(claim):
            lends = other in lenders and (other.any_priority or claim.priority >= other.priority)
            kept += other.reserved - (other.lendable if lends else 0)
        return min(max(claim.limit, peak), max(claim.reserved, self.capacity - kept))

    def is_entitled(self, claim, count):
        return len(claim.in_use) + count <= claim.reserved

    def wait_reason(self, claim, count, peak=0):
        """Why `count` blocks can't be taken now."""
        if len(claim.in_use) + count > max(claim.limit, peak):
            return "limit"
        unreferenced = len(self.free) + sum(len(other.cached) for other in self.claims.values())
        return "reserved" if count <= unreferenced else "in_use"

    # Zones that pay

    def by_rank(self, claims):
        return sorted(claims, key=lambda claim: (claim.priority, claim.last_active, claim.entered))

    def pay_for(self, claim, count):
        """Frees ``count`` blocks for the zone. Returns which zones lose which blocks, and why."""
        paid = []
        if claim.held + count > claim.limit:
            over = min(claim.held + count - claim.limit, len(claim.cached))
            self._lose(paid, claim, over, "limit")
        entitled = self.is_entitled(claim, count)
        paid += self._pay_by_surplus(claim, count, entitled)
        self._lose(paid, claim, min(len(claim.cached), count - len(self.free)), "own")
        for other in self.by_rank(other for other in self.others(claim) if other.quiet):
            floor = other.floor if entitled else other.floor_against(claim.priority)
            self._lose(paid, other, min(other.above(floor), count - len(self.free)), "quiet")
        self._lose_surplus(paid, claim, count, "relief")
        return paid

    def _pay_by_surplus(self, claim, count, entitled):
        """Block by block, takes what is cached above reservations: low priority first, then what was let go first."""
        paid = []
        while len(self.free) < count:
            may_pay = [other for other in self.claims.values() if other is claim or other.quiet or entitled]
            may_pay = [other for other in may_pay if other.above(other.reserved)]
            if not may_pay:
                break
            victim = min(may_pay, key=lambda other: (other.priority, other.age))
            (lost,) = victim.lose(1)
            self.free.add(lost)
            self.note_evicted(victim)
            if paid and paid[-1][0] == victim.tenant:
                paid[-1][1].append(lost)
            else:
                reason = "own" if victim is claim else "quiet" if victim.quiet else "reclaim"
                paid.append((victim.tenant, [lost], reason))
        return paid

    def lent_to_requests(self, claim, count):
        """By tenant, the blocks within its reservation that requests running on loans may have.

        These are requests of a zone that takes ``count`` blocks, or those that use what this zone is entitled to.
        """
        borrows = len(claim.in_use) + count > claim.reserved
        if not borrows and not any(len(other.in_use) > other.reserved for other in self.others(claim)):
            return {}
        return {other.tenant: other.reserved - other.floor for other in self.others(claim)}

    def pay_for_watermark(self, wanted):
        """Background eviction: what is cached above reservations, until ``wanted`` blocks are free."""
        paid = []
        self._lose_surplus(paid, None, wanted, "watermark", quiet=True)
        self._lose_surplus(paid, None, wanted, "watermark")
        return paid

    def share(self, claim):
        """The zone's share, by weight, of the unreserved blocks, among zones that are not quiet."""
        unreserved = self.capacity - sum(other.reserved for other in self.claims.values())
        weights = sum(other.weight for other in self.claims.values() if other is claim or not other.quiet)
        return unreserved * claim.weight // weights

    def missing_after_reclaim(self, claim, count, peak=0):
        """How many blocks, cached by active zones above their reservations, may be evicted for a denied zone."""
        wanted = len(claim.in_use) + count
        if claim.overdue or wanted > max(claim.limit, peak):
            return 0
        if claim.in_use and wanted > claim.reserved + self.share(claim):
            return 0
        short = count - self.spare(claim)
        surplus = sum(other.above(other.reserved) for other in self.others(claim) if not other.quiet)
        return short if 0 < short <= surplus else 0

    def evict_surplus_for(self, claim, count, peak=0):
        """For a zone that is denied blocks, evicts what active zones cache above their reservations, if that
        suffices."""
        paid = []
        if short := self.missing_after_reclaim(claim, count, peak):
            wanted = len(self.free) + short
            self._lose_surplus(paid, claim, wanted, "relief")
        return paid

    def _lose_surplus(self, paid, claim, wanted, reason, *, quiet=False):
        """Takes what other zones cache above their reservations, all of it from the zone whose next block is oldest.

        Active zones pay, or quiet ones.
        """
        others = [other for other in self.claims.values() if other is not claim and other.quiet == quiet]
        others = [other for other in others if other.cached]
        for other in sorted(others, key=lambda other: (other.priority, other.age)):
            self._lose(paid, other, min(other.above(other.reserved), wanted - len(self.free)), reason)

    def _lose(self, paid, claim, count, reason):
        if count > 0:
            lost = claim.lose(count)
            self.free |= set(lost)
            paid.append((claim.tenant, lost, reason))
            self.note_evicted(claim)

    def note_evicted(self, claim):
        """Marks a zone without requests that lost its last block as Evicted."""
        if claim.state == "Idle" and claim.held == 0 and not claim.leaving:
            claim.state = "Evicted"

    def trim(self, claim):
        paid = []
        if claim.no_store:
            self._lose(paid, claim, len(claim.cached), "no_store")
        self._lose(paid, claim, min(claim.held - claim.limit, len(claim.cached)), "limit")
        return paid

    # Events

    def take(self, claim, blocks):
        assert set(blocks) <= self.free, "only free blocks can be taken"
        self.free -= set(blocks)
        claim.in_use |= set(blocks)

    def reuse(self, claim, blocks):
        for block in blocks:
            claim.order.hit(block)
        claim.in_use |= set(blocks)

    def release(self, claim, kept, dropped):
        claim.in_use -= set(kept) | set(dropped)
        for block in kept:
            claim.order.keep(block)
            claim.used.pop(block, None)
            claim.used[block] = claim.let_go[block] = self.now
        for block in dropped:
            claim.order.forget(block)
        self.free |= set(dropped)

    def arrive(self, claim):
        claim.requests += 1
        claim.state, claim.quiet, claim.lends_unused, claim.last_active = "Active", False, False, self.now

    def end(self, claim):
        claim.requests -= 1
        claim.last_active = self.now
        if not claim.requests:
            claim.state = "Idle"
        self.drop_if_gone(claim)

    def drop_if_gone(self, claim):
        if claim.leaving and not claim.held and not claim.requests and self.claims.get(claim.tenant) is claim:
            del self.claims[claim.tenant]

    def give_reservations(self):
        """Gives registered zones what they want while it fits: first those that already have it, then by age."""
        claims = list(self.claims.values())
        room = self.capacity - sum(claim.reserved for claim in claims if not claim.auto)
        registered = [claim for claim in claims if claim.auto and not claim.leaving]
        for claim in sorted(registered, key=lambda claim: (not claim.reserved, claim.entered)):
            claim.reserved = claim.lendable = claim.wanted if claim.wanted <= room else 0
            room -= claim.reserved

    def own_seats(self, claim, seats):
        """Returns the seats that a zone reserves, of `seats`: by name, or else in proportion to its blocks."""
        by_name, limit = claim.seats
        if by_name is not None:
            return by_name
        left = seats - sum(other.seats[0] or 0 for other in self.claims.values())
        return min(claim.reserved * left // self.capacity, seats if limit is None else limit)

    def change_spec(self, claim, **terms):
        if terms["policy"] != claim.policy:
            claim.order = ORDERS[terms["policy"]](claim.cached)
        if claim.ttl is None:
            moment = self.now if claim.requests else claim.last_active
            claim.used = dict.fromkeys(claim.cached, moment)
        for name, value in terms.items():
            setattr(claim, name, value)
        claim.leaving = False
        return self.trim(claim) + self.forget(claim)

    def forget(self, claim):
        """Evicts everything cached, if the purge is new."""
        paid = []
        if claim.purge and claim.purge != claim.purged:
            claim.purged = claim.purge
            claim.purges += 1
            self._lose(paid, claim, len(claim.cached), "purge")
        return paid

    def dismiss(self, claim):
        claim.leaving, claim.reserved, claim.lendable = True, 0, 0
        claim.seats = (None, claim.seats[1])
        paid = []
        self._lose(paid, claim, len(claim.cached), "removed")
        self.drop_if_gone(claim)
        return paid

    def let_time_pass(self, now):
        """Makes each zone quiet, Evicted or forgotten when its time has come."""
        self.now = now
        paid = []
        for claim in list(self.claims.values()):
            if claim.requests:
                continue
            silent = now - max(claim.last_active, claim.born)
            if not claim.quiet:
                claim.cached_when_quiet = len(claim.cached)
            claim.quiet = now - claim.last_active >= claim.after
            forgotten = claim.auto and claim.forget_after is not None and silent >= claim.forget_after
            if forgotten or (claim.evict_after is not None and silent >= claim.evict_after):
                self._lose(paid, claim, len(claim.cached), "idle")
                self.note_evicted(claim)
            elif claim.release is not None and silent >= claim.after + claim.release[1]:
                percent, every = claim.release
                steps = (silent - claim.after) // every
                allowed = math.floor(claim.cached_when_quiet * max(0, Fraction(100 - steps * percent) / 100))
                self._lose(paid, claim, len(claim.cached) - allowed, "idle")
                self.note_evicted(claim)
            if forgotten:
                claim.leaving = True
                self.drop_if_gone(claim)
        paid += self.expire()
        self.give_reservations()
        return paid

    def expire(self):
        """Evicts what was not used for its zone's ttl, oldest first."""
        paid = []
        for claim in list(self.claims.values()):
            if claim.ttl is None:
                continue
            kept = set(claim.cached)
            old = [block for block, moment in claim.used.items() if block in kept and moment + claim.ttl <= self.now]
            for block in old:
                claim.order.forget(block)
            self.free |= set(old)
            if old:
                paid.append((claim.tenant, old, "ttl"))
                self.note_evicted(claim)
        return paid

    def lent_in_all(self):
        """The part of all surplus that stands on reservations that their owners do not use."""
        unused = sum(max(0, claim.reserved - claim.held) for claim in self.claims.values())
        surplus = sum(max(0, claim.held - claim.reserved) for claim in self.claims.values())
        return max(0, min(surplus, unused - len(self.free)))

    def lend_unused(self, claim):
        """If no request can be admitted, lends the unused part of the zone's reservation until it is served again."""
        assert not claim.in_use
        if not claim.quiet:
            claim.cached_when_quiet = len(claim.cached)
        claim.quiet = claim.lends_unused = True

    def reclaimable_by_force(self, claim):
        """Blocks that the zone can get within one step by preempting all requests above their zones' reservations."""
        kept = sum(min(other.held, other.floor) for other in self.others(claim))
        return self.capacity - kept - len(claim.in_use)


class Vtc:
    """The fair queue as its paper describes it: a dictionary of services, and a scan of all waiting accounts."""

    def __init__(self):
        self.service: dict[str, float] = {}
        self.weight: dict[str, int] = {}
        self.waiting: set[str] = set()
        self.reached = 0.0
        """The highest service that any account had when it was served."""

    def enter(self, name):
        if name not in self.waiting:
            self.service[name] = max(self.service[name], self.reached)
            self.waiting.add(name)

    def leave(self, name):
        self.waiting.discard(name)

    def served(self, service):
        self.reached = max(self.reached, service)

    def end_round(self):
        """Lifts each waiting account to the highest service reached, so that none is behind."""
        for name in self.waiting:
            self.service[name] = max(self.service[name], self.reached)
