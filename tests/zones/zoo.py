"""Zones built in one line, for tests."""

import itertools

from tenantzone_runtime.zones.ledger import Ledger
from tenantzone_runtime.zones.quota import Quota
from tenantzone_runtime.zones.zone import IdleTimes, Zone, ZoneSpec


class Zoo:
    """A ledger, and zones that hold what the test says."""

    def __init__(self, capacity=100):
        self.ledger = Ledger(capacity)
        self.capacity = capacity
        self._ids = itertools.count()

    @property
    def free(self):
        return self.capacity - self.ledger.held_blocks

    def zone(
        self, tenant, *, reserved=0, limit=None, lendable=None, in_use=0, cached=0, quiet=False, priority=0, active=0.0
    ):
        quota = Quota(
            reserved=reserved,
            limit=self.capacity if limit is None else limit,
            lendable=reserved if lendable is None else lendable,
        )
        zone = Zone(ZoneSpec(tenant, tenant, 1, priority, quota, IdleTimes(after=60)), last_active=active, quiet=quiet)
        self.ledger.add(zone)
        blocks = list(itertools.islice(self._ids, in_use + cached))
        self.ledger.take(zone, blocks)
        self.ledger.release(zone, blocks[in_use:], [])
        return zone
