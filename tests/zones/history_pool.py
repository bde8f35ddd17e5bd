"""The zones of random history, by the naive model: events, and what a zone does regardless of the other zones.

``reference.py`` has the rules of arbitration between zones.
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf

from tests.zones.reference import Cache, Pool, Zone


@dataclass(eq=False)
class HistoryZone(Zone):
    """A zone with the rest of its spec and of its state."""

    born: float = 0.0
    policy: str = "LRU"
    has_loan_time: bool = False
    """Whether its loans become due after some time."""
    after: float = 60.0
    evict_after: float | None = None
    release: tuple[int, float] | None = None
    """Percent, and seconds from one step to the next."""
    forget_after: float | None = None
    ttl: float | None = None
    no_store: bool = False
    purge: str = ""
    auto: bool = False
    wanted: int = 0
    """For a registered zone: the blocks that its level reserves, if they fit."""

    used: dict = field(default_factory=dict)
    """When each cached block was last used, in the order in which the blocks were released."""
    requests: int = 0
    state: str = "Idle"
    cached_when_quiet: int = 0
    lends_unused: bool = False
    """Whether it is quiet before its idle time is over, because none of its requests can be admitted."""
    leaving: bool = False
    purged: str = ""
    """The id of the last purge."""
    purges: int = 0

    def __post_init__(self):
        self.purged = self.purge
        self.cached = Cache(self.policy)


class HistoryPool(Pool):
    """The zones of an engine, at a time in seconds."""

    def __init__(self, capacity, seats, headroom, now=0.0):
        super().__init__(capacity, seats, headroom)
        self.now = now
        self.before_zones: set[int] = set()
        """Blocks used by requests while no zone is declared."""
        self.created = 0

    def add(self, tenant, **terms):
        self.created += 1
        self.zones[tenant] = zone = HistoryZone(tenant, self.created, born=self.now, **terms)
        return zone

    def add_unbound(self, tenant):
        """Gives requests from before the first config a zone that is promised nothing and ends with them."""
        zone = self.add(tenant, limit=self.capacity, after=inf)
        zone.leaving = True
        zone.in_use, self.before_zones = self.before_zones, set()
        return zone

    def collect_evictions(self):
        """Returns the evictions since the last call: tenant, block and reason of each."""
        evictions, self.evictions = self.evictions, []
        return evictions

    def evict(self, zone, count, reason):
        if count > 0:
            super().evict(zone, count, reason)
            self.note_evicted(zone)

    def evict_block(self, zone, block, reason):
        """Evicts a block out of its order."""
        zone.cached.forget(block)
        self.free.add(block)
        self.evictions.append((zone.tenant, block, reason))
        self.note_evicted(zone)

    def note_evicted(self, zone):
        """Marks a zone without requests that lost its last block as Evicted."""
        if zone.state == "Idle" and zone.held == 0 and not zone.leaving:
            zone.state = "Evicted"

    def trim(self, zone):
        """Evicts what a zone may not keep cached."""
        if zone.no_store:
            self.evict(zone, len(zone.cached), "no_store")
        self.evict(zone, zone.held - zone.limit, "limit")

    def wait_reason(self, zone, count, peak=0):
        """Why the zone may not use `count` more blocks."""
        if len(zone.in_use) + count > max(zone.limit, peak):
            return "limit"
        unreferenced = len(self.free) + sum(len(other.cached) for other in self.zones.values())
        return "reserved" if count <= unreferenced else "in_use"

    def lent_to_requests(self, zone, count):
        """By tenant, the blocks within its reservation that requests running on loans may have.

        These are requests of a zone that takes ``count`` blocks, or those that use what this zone is entitled to.
        """
        if zone.is_entitled_to(count) and all(other.is_entitled_to(0) for other in self.others(zone)):
            return {}
        return {other.tenant: other.reserved - other.floor() for other in self.others(zone)}

    # Events of requests

    def take(self, zone, blocks):
        assert set(blocks) <= self.free, "only free blocks can be taken"
        self.free -= set(blocks)
        zone.in_use |= set(blocks)

    def reuse(self, zone, blocks):
        for block in blocks:
            zone.cached.hit(block)
        zone.in_use |= set(blocks)

    def release(self, zone, kept, dropped):
        zone.in_use -= set(kept) | set(dropped)
        for block in kept:
            zone.cached.keep(block)
            zone.used.pop(block, None)
            zone.used[block] = zone.released_at[block] = self.now
        for block in dropped:
            zone.cached.forget(block)
        self.free |= set(dropped)

    def arrive(self, zone):
        zone.requests += 1
        zone.state, zone.quiet, zone.lends_unused, zone.last_active = "Active", False, False, self.now

    def end(self, zone):
        zone.requests -= 1
        zone.last_active = self.now
        if not zone.requests:
            zone.state = "Idle"
        self.drop_if_gone(zone)

    def drop_if_gone(self, zone):
        if zone.leaving and not zone.held and not zone.requests and self.zones.get(zone.tenant) is zone:
            del self.zones[zone.tenant]

    def lend_unused(self, zone):
        """If no request can be admitted, lends the unused part of the zone's reservation until it is served again."""
        assert not zone.in_use
        if not zone.quiet:
            zone.cached_when_quiet = len(zone.cached)
        zone.quiet = zone.lends_unused = True

    # Changes of specs

    def change_spec(self, zone, **terms):
        if terms["policy"] != zone.policy:
            zone.cached = Cache(terms["policy"], zone.cached)
        if zone.ttl is None:
            moment = self.now if zone.requests else zone.last_active
            zone.used = dict.fromkeys(zone.cached, moment)
        for name, value in terms.items():
            setattr(zone, name, value)
        zone.leaving = False
        self.trim(zone)
        if zone.purge and zone.purge != zone.purged:
            zone.purged = zone.purge
            zone.purges += 1
            self.evict(zone, len(zone.cached), "purge")

    def dismiss(self, zone):
        """Removes a zone: at once, or when its requests have ended."""
        zone.leaving, zone.reserved, zone.lendable = True, 0, 0
        zone.seats = (None, zone.seats[1])
        self.evict(zone, len(zone.cached), "removed")
        self.drop_if_gone(zone)

    def give_reservations(self):
        """Gives registered zones what they want while it fits: first those that already have it, then by age."""
        zones = list(self.zones.values())
        room = self.capacity - sum(zone.reserved for zone in zones if not zone.auto)
        registered = [zone for zone in zones if zone.auto and not zone.leaving]
        for zone in sorted(registered, key=lambda zone: (not zone.reserved, zone.number)):
            zone.reserved = zone.lendable = zone.wanted if zone.wanted <= room else 0
            room -= zone.reserved

    # Time

    def let_time_pass(self, now):
        """Makes each zone quiet, Evicted or forgotten when its time has come."""
        self.now = now
        for zone in list(self.zones.values()):
            if not zone.requests:
                self._let_idle_time_pass(zone)
        for zone in self.zones.values():
            self._expire(zone)
        self.give_reservations()

    def _let_idle_time_pass(self, zone):
        silent = self.now - max(zone.last_active, zone.born)
        if not zone.quiet:
            zone.cached_when_quiet = len(zone.cached)
        zone.quiet = self.now - zone.last_active >= zone.after
        forgotten = zone.auto and zone.forget_after is not None and silent >= zone.forget_after
        if forgotten or (zone.evict_after is not None and silent >= zone.evict_after):
            self.evict(zone, len(zone.cached), "idle")
            self.note_evicted(zone)
        elif zone.release is not None and silent >= zone.after + zone.release[1]:
            percent, every = zone.release
            steps = (silent - zone.after) // every
            allowed = math.floor(zone.cached_when_quiet * max(0, Fraction(100 - steps * percent) / 100))
            self.evict(zone, len(zone.cached) - allowed, "idle")
            self.note_evicted(zone)
        if forgotten:
            zone.leaving = True
            self.drop_if_gone(zone)

    def _expire(self, zone):
        """Evicts what was not used for its zone's ttl, oldest first."""
        if zone.ttl is not None:
            for block, moment in zone.used.items():
                if block in zone.cached and moment + zone.ttl <= self.now:
                    self.evict_block(zone, block, "ttl")
