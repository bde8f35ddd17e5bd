"""The rules of arbitration, stated naively: how zones share the blocks and the seats of one engine.

Each answer is computed anew from all zones, and nothing comes from the product. Random lives compare the product with
these rules after every step (``test_ledger_machine.py``). ``history_pool.py`` has what a zone does regardless of the
others: by its idle times and its retention, and when its spec changes.

A block is free, in use by requests of one zone, or cached for one zone. A zone's surplus is what it holds, in use or
cached, above its reservation. A zone is entitled to blocks if its requests then use no more than it reserves.
"""

from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from math import inf


class Cache(list):
    """The cached blocks of one zone, in the order in which they are evicted.

    LRU: first the block that was released longest ago. Clock: as LRU, but a block that was hit is skipped once. LFU:
    first the block with the least key, which is the number of its uses, at most 15, plus the last evicted block's key.
    """

    def __init__(self, policy="LRU", blocks=()):
        assert policy in ("LRU", "Clock", "LFU")
        self.policy = policy
        self.hits, self.uses, self.keys, self.last_key = set(), {}, {}, 0
        for block in blocks:
            self.keep(block)

    def keep(self, block):
        """Adds a block that requests have released."""
        self.append(block)
        self.uses[block] = min(15, self.uses.get(block, 0) + 1)
        self.keys[block] = self.last_key + self.uses[block]
        if self.policy == "LFU":
            self.sort(key=self.keys.get)

    def hit(self, block):
        """Removes a block that requests use again."""
        self.remove(block)
        self.hits.add(block)

    def evict(self):
        """Removes and returns the first block."""
        while self.policy == "Clock" and self[0] in self.hits:
            self.hits.remove(self[0])
            self.append(self.pop(0))
        block = self[0]
        self.last_key = self.keys[block]
        self.forget(block)
        return block

    def forget(self, block):
        """Drops a block, cached or in use, that is not the zone's any more."""
        if block in self:
            self.remove(block)
        self.hits.discard(block)
        self.uses.pop(block, None)


@dataclass(eq=False)
class Zone:
    """A zone: first its spec, in blocks and seats, then its state. Zones are numbered in the order of creation."""

    tenant: str
    number: int = 0
    reserved: int = 0
    limit: int = 0
    lendable: int = 0
    priority: int = 0
    weight: int = 1
    any_priority: bool = False
    """Whether zones of a lower priority may borrow, too."""
    seats: tuple[int | None, int | None] = (None, None)
    """The seats that it reserves explicitly, and its limit of seats."""

    quiet: bool = True
    """Whether it lends, because it is idle, or because none of its requests can be admitted."""
    last_active: float = -inf
    service: float = 0.0
    """The cost of the tokens computed for it, by weight."""
    in_use: set = field(default_factory=set)
    cached: Cache = field(default_factory=Cache)
    released_at: dict = field(default_factory=dict)
    overdue: int = 0
    """Blocks in use on loans that are due."""

    @property
    def held(self):
        return len(self.in_use) + len(self.cached)

    @property
    def cached_surplus(self):
        return self.cached_above(self.reserved)

    def cached_above(self, floor):
        """Cached blocks that it can lose and still hold `floor` blocks."""
        return min(len(self.cached), max(0, self.held - floor))

    def lacks(self, floor):
        return max(0, floor - self.held)

    def may_lend_to(self, borrower):
        return self.any_priority or borrower.priority >= self.priority

    def floor(self, borrower=None):
        """Blocks that it keeps from a borrower; if None, from an entitled zone."""
        lends = self.quiet and (borrower is None or self.may_lend_to(borrower))
        return self.reserved - self.lendable if lends else self.reserved

    def is_entitled_to(self, count):
        return len(self.in_use) + count <= self.reserved

    def by_activity(self):
        return self.priority, self.last_active, self.number

    def by_age(self):
        return self.priority, self.released_at[self.cached[0]], self.number


class Pool:
    """The blocks and seats of one engine. While requests run, `headroom` blocks must stay free or cached."""

    def __init__(self, capacity, seats=0, headroom=0):
        self.capacity, self.seats, self.headroom = capacity, seats, headroom
        self.zones: dict[str, Zone] = {}
        self.free = set(range(capacity))
        self.evictions = []
        self.most_service = 0.0
        """The most service of any zone when its request was admitted."""

    def others(self, zone):
        return [other for other in self.zones.values() if other is not zone]

    # How many blocks may a zone use, and borrow?

    def takeable(self, zone, *, growing=False, peak=0, claimed=0):
        """The most blocks that a zone's requests may start to use now, if `claimed` are kept for other zones' requests.

        A running request (`growing`) may have cached surplus of active zones, and continues while loans are due. A
        request may grow to its `peak` even if the limit was lowered meanwhile.
        """
        given_up = sum(other.cached_above(other.floor()) for other in self.others(zone))
        entitled = min(zone.reserved - len(zone.in_use), len(self.free) + len(zone.cached) + given_up - claimed)
        if zone.overdue and not growing:
            return max(0, entitled)
        spare = self.spare(zone) + (self.active_surplus(zone) if growing else 0)
        return max(0, min(max(entitled, spare), max(zone.limit, peak) - len(zone.in_use)))

    def spare(self, zone):
        """Blocks that are free, cached for the zone or given up by quiet zones, less those promised to other zones."""
        given_up = sum(other.cached_above(other.floor(zone)) for other in self.others(zone) if other.quiet)
        promised = sum(other.lacks(other.floor(zone)) for other in self.others(zone))
        return len(self.free) + len(zone.cached) + given_up - promised

    def active_surplus(self, zone):
        return sum(other.cached_surplus for other in self.others(zone) if not other.quiet)

    def reachable(self, zone, peak=0, without=()):
        """The most blocks that a zone can ever use: if others hold none, and lend what they may, but for `without`."""
        lenders = [other for other in self.others(zone) if other.may_lend_to(zone) and other not in without]
        kept = sum(other.reserved - (other.lendable if other in lenders else 0) for other in self.others(zone))
        return min(max(zone.limit, peak), max(zone.reserved, self.capacity - kept))

    def has_headroom(self, zone, count):
        unreferenced = len(self.free) + sum(len(other.cached) for other in self.zones.values())
        return count + self.headroom <= unreferenced or zone.is_entitled_to(count)

    # Whose cached blocks are evicted?

    def evict(self, zone, count, reason):
        for _ in range(min(count, len(zone.cached))):
            block = zone.cached.evict()
            self.free.add(block)
            self.evictions.append((zone.tenant, block, reason))

    def make_room(self, zone, count):
        """Evicts until `count` blocks are free for a zone that may take them."""
        self.evict(zone, zone.held + count - zone.limit, "limit")
        entitled = zone.is_entitled_to(count)
        # First cached surplus, wherever it is oldest. Active zones lose it to entitled zones only.
        payers = [other for other in self.zones.values() if other is zone or other.quiet or entitled]
        while len(self.free) < count and any(payer.cached_surplus for payer in payers):
            payer = min((payer for payer in payers if payer.cached_surplus), key=Zone.by_age)
            self.evict(payer, 1, "own" if payer is zone else "quiet" if payer.quiet else "reclaim")
        # Then the rest of its own cache, what quiet zones lend, and, for a running request, any zone's cached surplus.
        self.evict(zone, count - len(self.free), "own")
        for lender in sorted(self.others(zone), key=Zone.by_activity):
            lent = lender.cached_above(lender.floor(None if entitled else zone)) if lender.quiet else 0
            self.evict(lender, min(lent, count - len(self.free)), "quiet")
        self.evict_surplus(self.others(zone), count, "relief")

    def evict_surplus(self, zones, wanted, reason):
        """Evicts cached surplus until `wanted` blocks are free: of quiet zones first, then where it is oldest."""
        zones = [zone for zone in zones if zone.cached_surplus]
        for zone in sorted(zones, key=lambda zone: (not zone.quiet, zone.by_age())):
            self.evict(zone, min(zone.cached_surplus, wanted - len(self.free)), reason)

    def surplus_to_reclaim(self, zone, count, peak=0):
        """Returns the blocks that a waiting request lacks if it may have them from active zones' surplus, else 0.

        Its zone must use no blocks, or stay within its share, by weight among active zones, of the unreserved blocks.
        """
        unreserved = self.capacity - sum(other.reserved for other in self.zones.values())
        weights = zone.weight + sum(other.weight for other in self.others(zone) if not other.quiet)
        share = zone.reserved + unreserved * zone.weight // weights if zone.in_use else inf
        is_allowed = len(zone.in_use) + count <= min(share, max(zone.limit, peak)) and not zone.overdue
        lacking = count - self.spare(zone)
        return lacking if is_allowed and 0 < lacking <= self.active_surplus(zone) else 0

    def reclaim_surplus(self, zone, count, peak=0):
        active = [other for other in self.others(zone) if not other.quiet]
        self.evict_surplus(active, len(self.free) + self.surplus_to_reclaim(zone, count, peak), "relief")

    # Which zone lends to which?

    @property
    def on_loan(self):
        """How much of all surplus uses what other zones reserve and do not hold."""
        surplus = sum(max(0, zone.held - zone.reserved) for zone in self.zones.values())
        lacking = sum(zone.lacks(zone.reserved) for zone in self.zones.values())
        return max(0, min(surplus, lacking - len(self.free)))

    def settle(self, loans):
        """Returns the loans, blocks by lender and borrower, that follow from `loans`. In both, the oldest are first."""
        settled, lent, borrowed = Counter(), Counter(), Counter()

        def lend(lender, borrower, most=inf, kept=0):
            can_lend = lender.lacks(lender.reserved) - kept - lent[lender]
            needed = borrower.held - borrower.reserved - borrowed[borrower]
            blocks = min(most, can_lend, needed, self.on_loan - settled.total())
            if blocks > 0:
                settled[lender, borrower] += blocks
                lent[lender] += blocks
                borrowed[borrower] += blocks

        for (lender, borrower), blocks in loans.items():
            lend(lender, borrower, most=blocks)
        zones = sorted(self.zones.values(), key=Zone.by_activity)
        # Lenders to fewer zones come first. At last, zones that got a new reservation lend what others still hold.
        for any_priority in False, True:
            for borrower, lender in product(zones, zones):
                if lender.any_priority == any_priority and lender.may_lend_to(borrower):
                    lend(lender, borrower, kept=lender.lacks(lender.floor()))
        for borrower, lender in product(zones, zones):
            lend(lender, borrower)
        return settled

    # Which running request is preempted, given the zones of `running` and `waiting` requests, most senior first?

    def youngest(self, running, zones):
        """Returns the index in `running` of the last request of a zone in `zones` whose priority is lowest."""
        return min((zone.priority, -index, index) for index, zone in enumerate(running) if zone in zones)[-1]

    def preempted_for_blocks(self, zone, count, running):
        borrowers = [other for other in self.others(zone) if not other.is_entitled_to(0)]
        return self.youngest(running, borrowers if zone.is_entitled_to(count) else [zone])

    def preempted_for_seat(self, zone, running, waiting):
        zones = [other for other in self.others(zone) if running.count(other) > self.own_seats(other)]
        if self.shared_seats_left(running, waiting) >= 0:
            zones = [other for other in zones if self.own_seats(other)]
        return self.youngest(running, zones)

    def may_have_seat(self, zone, running):
        return zone.seats[1] is None or running.count(zone) < zone.seats[1]

    def is_owed_seat(self, zone, running, waiting):
        own = self.own_seats(zone)
        return running.count(zone) < own if own else self.shared_seats_left(running, waiting) > 0

    def own_seats(self, zone):
        """Seats that a zone reserves: explicitly, or of the others the part that its reservation is of the blocks."""
        explicit, limit = zone.seats
        if explicit is not None:
            return explicit
        left = self.seats - sum(other.seats[0] or 0 for other in self.zones.values())
        return min(zone.reserved * left // self.capacity, self.seats if limit is None else limit)

    def shared_seats_left(self, running, waiting):
        """Zones without seats of their own share one, unless the others own all. Negative if they use too many."""
        owned = sum(self.own_seats(zone) for zone in {*running, *waiting})
        return (owned < self.seats) - sum(not self.own_seats(zone) for zone in running)

    # Whose waiting request is admitted next?

    def next_zone(self, zones):
        """Of zones whose next request may have a seat, its blocks and headroom, returns the one with least service."""
        return min(zones, key=lambda zone: zone.service)

    def admit(self, zone):
        self.most_service = max(self.most_service, zone.service)

    def lift(self, zone):
        """A zone that begins to wait, or was not admitted in a round, gains no credit for the time before."""
        zone.service = max(zone.service, self.most_service)

    def charge(self, zone, cost):
        zone.service += cost / zone.weight
