"""The rules of the algebra once more, as plainly as they can be said: sets of block ids, every question asked anew.

Nothing here is taken from the core. Each answer looks at all zones, so it is slow, and it has no sums, orders, heaps or
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
    """Nobody has asked for what it reserves before its first request: until then it is quiet."""
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
    """What it reserves of them by name and gets, and its limit."""
    purge: str = ""
    auto: bool = False
    wanted: int = 0
    """Of a zone that was registered: what its level reserves, if it fits."""

    in_use: set = field(default_factory=set)
    used: dict = field(default_factory=dict)
    """When each cached block was used last, the one that was let go first first."""
    let_go: dict = field(default_factory=dict)
    """When each block was let go last."""
    order: LeastRecentlyUsed = field(init=False)
    """Of what it keeps cached."""
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
        """The next one to go first, but for second chances."""
        return self.order.kept

    @property
    def held(self):
        return len(self.in_use) + len(self.cached)

    @property
    def floor(self):
        """What nobody may take from it now, needed by its requests or not."""
        return self.reserved - self.lendable if self.quiet else self.reserved

    def floor_against(self, priority):
        """The same against somebody of this priority who borrows."""
        lends = self.quiet and (self.any_priority or priority >= self.priority)
        return self.reserved - self.lendable if lends else self.reserved

    def above(self, floor):
        """Cached blocks that it can lose and still hold so many."""
        return min(len(self.cached), max(0, self.held - floor))

    @property
    def age(self):
        """When the next block to go was let go, with what tells zones apart."""
        return self.let_go[self.cached[0]], self.entered

    def lose(self, count):
        """Give up so many cached blocks by its policy. Returns their ids in order."""
        return [self.order.lose() for _ in range(count)]


class World:
    """All zones of an engine."""

    def __init__(self, capacity, now=0.0):
        self.capacity = capacity
        self.now = now
        self.claims: dict[str, Claim] = {}
        self.free = set(range(capacity))
        self.before_zones: set[int] = set()
        """Used by requests while no zone is declared."""
        self.entered = 0

    def others(self, claim):
        return [other for other in self.claims.values() if other is not claim]

    def add(self, tenant, **terms):
        self.entered += 1
        self.claims[tenant] = claim = Claim(tenant, self.entered, self.now, **terms)
        return claim

    def add_early(self, tenant):
        """Requests from before the first config have a zone that is promised nothing and goes with them."""
        claim = self.add(tenant, limit=self.capacity, after=inf)
        claim.leaving = True
        claim.in_use, self.before_zones = self.before_zones, set()
        return claim

    # What may be taken

    def takeable(self, claim, *, growing=False, peak=0, claimed=0):
        """The most blocks that the zone can put to use now, its own cache among them.

        A request that runs (``growing``) may have what others cache above their reservations, too, and goes on while
        its zone's loans are overdue. One that was there when the limit fell may grow to its ``peak``. So many blocks
        are ``claimed`` by others within their reservations.
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
        """Beyond any promise: what is free or given up by quiet zones, less what stays promised to others."""
        spare = len(self.free) + len(claim.cached)
        for other in self.others(claim):
            floor = other.floor_against(claim.priority)
            spare += other.above(floor) if other.quiet else 0
            spare -= max(0, floor - other.held)
        return spare

    def reachable(self, claim, peak=0):
        """The most that the zone can ever use at once: when nobody else uses anything, and all lend what they may."""
        return self._reachable(claim, peak, self.others(claim))

    def lastingly_reachable(self, claim, peak=0):
        """The same without loans that have a time: who needs one for longer is preempted whenever it is over."""
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
        """Why so many blocks can't be taken now."""
        if len(claim.in_use) + count > max(claim.limit, peak):
            return "limit"
        unreferenced = len(self.free) + sum(len(other.cached) for other in self.claims.values())
        return "reserved" if count <= unreferenced else "in_use"

    # Who pays

    def by_rank(self, claims):
        return sorted(claims, key=lambda claim: (claim.priority, claim.last_active, claim.entered))

    def pay_for(self, claim, count):
        """Who loses which blocks, and why, so that ``count`` are free for the zone. They are free afterwards."""
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
        """Block by block, what is cached above reservations: of low priority first, then what was let go first."""
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
        """By tenant, how many blocks within reservations requests that run on loans may have.

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
        """By weight, of what nobody reserved, among those that are not quiet."""
        unreserved = self.capacity - sum(other.reserved for other in self.claims.values())
        weights = sum(other.weight for other in self.claims.values() if other is claim or not other.quiet)
        return unreserved * claim.weight // weights

    def missing_for_relief(self, claim, count, peak=0):
        """How much of what active zones cache above their reservations a denied zone may have evicted; 0: nothing."""
        wanted = len(claim.in_use) + count
        if claim.overdue or wanted > max(claim.limit, peak):
            return 0
        if claim.in_use and wanted > claim.reserved + self.share(claim):
            return 0
        short = count - self.spare(claim)
        surplus = sum(other.above(other.reserved) for other in self.others(claim) if not other.quiet)
        return short if 0 < short <= surplus else 0

    def evict_surplus_for(self, claim, count, peak=0):
        """For a zone that is denied blocks: what active zones cache above their reservations, if that is enough."""
        paid = []
        if short := self.missing_for_relief(claim, count, peak):
            wanted = len(self.free) + short
            self._lose_surplus(paid, claim, wanted, "relief")
        return paid

    def _lose_surplus(self, paid, claim, wanted, reason, *, quiet=False):
        """What other zones cache above their reservations: of the zone whose next block is oldest, all of it.

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
        """A zone without requests that lost its last block is Evicted."""
        if claim.state == "Idle" and claim.held == 0 and not claim.leaving:
            claim.state = "Evicted"

    def trim(self, claim):
        paid = []
        if claim.no_store:
            self._lose(paid, claim, len(claim.cached), "no_store")
        self._lose(paid, claim, min(claim.held - claim.limit, len(claim.cached)), "limit")
        return paid

    # What happens

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
        """Registered zones have what they want while it fits, first those that have it, and then by age."""
        claims = list(self.claims.values())
        room = self.capacity - sum(claim.reserved for claim in claims if not claim.auto)
        registered = [claim for claim in claims if claim.auto and not claim.leaving]
        for claim in sorted(registered, key=lambda claim: (not claim.reserved, claim.entered)):
            claim.reserved = claim.lendable = claim.wanted if claim.wanted <= room else 0
            room -= claim.reserved

    def own_seats(self, claim, seats):
        """The seats that a zone reserves, of so many: by name, or by its blocks a share of the others."""
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
        """A purge that is new takes all that is cached."""
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
        """Quiet, Evicted and forgotten, for every zone."""
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
        """What was not used for its zone's ttl goes, the oldest first."""
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
        """The part of all surplus that stands on reservations that others do not use."""
        unused = sum(max(0, claim.reserved - claim.held) for claim in self.claims.values())
        surplus = sum(max(0, claim.held - claim.reserved) for claim in self.claims.values())
        return max(0, min(surplus, unused - len(self.free)))

    def lend_unused(self, claim):
        """Nobody can be admitted: what the zone reserves and does not use is lent, until it is served again."""
        assert not claim.in_use
        if not claim.quiet:
            claim.cached_when_quiet = len(claim.cached)
        claim.quiet = claim.lends_unused = True

    def reclaimable_by_force(self, claim):
        """What the zone can get within one step, if everybody above their reservation yields, running or not."""
        kept = sum(min(other.held, other.floor) for other in self.others(claim))
        return self.capacity - kept - len(claim.in_use)


class Vtc:
    """The fair queue by the words of its paper: a dictionary of services, and a look at all that wait."""

    def __init__(self):
        self.service: dict[str, float] = {}
        self.weight: dict[str, int] = {}
        self.waiting: set[str] = set()
        self.reached = 0.0
        """The most service that anybody had when it was served."""

    def enter(self, name):
        if name not in self.waiting:
            self.service[name] = max(self.service[name], self.reached)
            self.waiting.add(name)

    def leave(self, name):
        self.waiting.discard(name)

    def served(self, service):
        self.reached = max(self.reached, service)

    def end_round(self):
        """Nobody that waits is behind."""
        for name in self.waiting:
            self.service[name] = max(self.service[name], self.reached)
