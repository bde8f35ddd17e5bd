"""Zones built in one line, for tests."""

import itertools
from dataclasses import dataclass

from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.zone_terms import Idle, LatencyTargets, Lending, QueueBounds, Release, Retention
from tenantzone_runtime.zones.blocks import states
from tenantzone_runtime.zones.config import configure
from tenantzone_runtime.zones.model.quota import Quota
from tenantzone_runtime.zones.model.zone import SeatQuota, Zone, ZoneSpec
from tenantzone_runtime.zones.tenancy import Tenancy


@dataclass(eq=False)
class Request:
    """A request, for callers that only need its tenant."""

    zone: Zone
    peak: int = 0


class Core:
    """A tenancy, and zones that hold what the test says."""

    def __init__(self, capacity=100):
        self.tenancy = Tenancy(capacity, capacity)
        self.ledger = self.tenancy.ledger
        self.capacity = capacity
        self._generation = itertools.count(1)

    @property
    def free(self):
        return self.capacity - self.ledger.held_blocks

    @property
    def now(self):
        return self.ledger.now

    @now.setter
    def now(self, seconds):
        self.ledger.now = seconds

    def zone(
        self,
        tenant,
        *,
        reserved=0,
        limit=None,
        lendable=None,
        in_use=0,
        cached=0,
        quiet=False,
        priority=0,
        active=0.0,
        weight=1,
        scrub=False,
        borrowers="SameOrHigherPriority",
        max_loan=None,
        grace=30.0,
        policy="LRU",
        after=60.0,
        evict_after=None,
        forget_after=None,
        release=None,
        auto=False,
        queue=QueueBounds(),
        ttl=None,
        no_store=False,
        seats=None,
        latency=LatencyTargets(),
        used=None,
    ):
        """Adds a zone without requests that holds these blocks; it is quiet or not, whatever the time is.

        Its cached blocks were let go at the time ``used``; None: now.
        """
        quota = Quota(
            reserved=reserved,
            limit=self.capacity if limit is None else limit,
            lendable=reserved if lendable is None else lendable,
        )
        spec = ZoneSpec(
            tenant=tenant,
            name=tenant,
            generation=1,
            priority=priority,
            quota=quota,
            idle=Idle(
                after_seconds=after,
                evict_after_seconds=evict_after,
                forget_after_seconds=forget_after,
                release=releasing(release),
            ),
            weight=weight,
            lending=Lending(borrowers=borrowers, max_loan_seconds=max_loan, grace_seconds=grace),
            eviction_policy=policy,
            auto_registered=auto,
            scrub=scrub,
            queue=queue,
            retention=Retention(ttl_seconds=ttl, no_store=no_store),
            seats=seats if isinstance(seats, SeatQuota) else SeatQuota(reserved=seats),
            latency=latency,
        )
        zone = configure.add_zone(self.ledger, spec)
        zone.last_active = active
        now = self.now
        self.now = now if used is None else used
        self.hold(zone, in_use=in_use, cached=cached)
        self.now = now
        self.set_quiet(zone, quiet)
        return zone

    def set_quiet(self, zone, quiet=True):
        zone.quiet = quiet
        self.ledger.totals.reckon(zone)

    def hold(self, zone, *, in_use=0, cached=0):
        """Gives free blocks to the zone. Returns their ids, those in use first."""
        blocks = self.take(zone, in_use + cached)
        self.ledger.release(zone, blocks[in_use:], [])
        return blocks

    def take(self, zone, count):
        """Puts free blocks into use."""
        free = (block for block, owner in enumerate(self.ledger.owner) if owner is None)
        blocks = list(itertools.islice(free, count))
        self.ledger.take(zone, blocks)
        return blocks

    def in_use(self, zone):
        """Ids of the blocks that the zone's requests use."""
        return [b for b, owner in enumerate(self.ledger.owner) if owner is zone and b not in zone.cached]

    def release(self, zone, *, kept=0, dropped=0):
        """Lets go of `kept` + `dropped` of the zone's blocks in use."""
        blocks = self.in_use(zone)[: kept + dropped]
        self.ledger.release(zone, blocks[:kept], blocks[kept:])

    def early(self, *, in_use=0):
        """The zone of a request that came before any zone was declared."""
        zone = self.tenancy.zone_of_early_requests(1)
        self.take(zone, in_use)
        return zone

    def takeable(self, zone, *, growing=False, peak=0):
        return self.ledger.totals.takeable(zone, self.free, growing=growing, peak=peak)

    def wait_reason(self, zone, count, peak=0):
        return self.ledger.wait_reason(zone, count, self.free, peak)

    def settle_evictions(self, evictions):
        """Settles evicted blocks as an engine does. Returns the number of blocks that each tenant lost."""
        for zone, blocks in evictions:
            if blocks:
                states.blocks_evicted(self.ledger, zone)
            configure.discard_if_gone(self.ledger, zone)
        return [(zone.spec.tenant, len(blocks)) for zone, blocks in evictions if blocks]

    def upkeep(self, now=None):
        """Lets time pass. Returns the number of blocks that each tenant lost."""
        return self.settle_evictions(self.tenancy.upkeep(self.now if now is None else now, self.free))

    def apply(self, *zones, now=None, **pool):
        """Reloads with these zones. Returns the number of blocks that each tenant lost."""
        config = make_config(next(self._generation), PoolConfig(namespace="n", name="p", **pool), zones)
        return self.settle_evictions(self.tenancy.apply(config, self.now if now is None else now))

    def events(self, kind):
        """The trail's events of one kind since the last call."""
        return [event for event in self.ledger.trail.collect() if event.kind == kind]

    def check(self):
        self.ledger.check(self.free, self.capacity)


def releasing(steps):
    """The contract's notation for a share in percent and the seconds between two steps."""
    return None if steps is None else Release(share=f"{steps[0]}%", every_seconds=steps[1])


def declare(tenant, *, lendable="100%", borrowers="SameOrHigherPriority", max_loan=None, grace=30.0, **fields):
    """A zone as a config declares it."""
    lending = Lending(lendable=lendable, borrowers=borrowers, max_loan_seconds=max_loan, grace_seconds=grace)
    idle = Idle(
        after_seconds=fields.pop("after", 60.0),
        evict_after_seconds=fields.pop("evict_after", None),
        forget_after_seconds=fields.pop("forget_after", None),
        release=releasing(fields.pop("release", None)),
    )
    retention = Retention(ttl_seconds=fields.pop("ttl", None), no_store=fields.pop("no_store", False))
    return ZoneConfig(
        name=tenant, tenant=tenant, generation=1, lending=lending, idle=idle, retention=retention, **fields
    )
