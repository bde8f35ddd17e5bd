"""The overflow zone: which zones have their own series in the metrics, and which are summed into one series.

Declared zones have their own series, since the config bounds their number. Tenants without a TenantZone are unbounded,
so only a bounded number of the zones registered for them have their own series at a time. All other registered zones
are members of the overflow. This is decided when a zone is registered, and does not change until the zone is forgotten
or declared. If a zone with its own series is forgotten, the next new zone may have one.

The overflow's counters never decrease. When a zone leaves the overflow, its counts stay included, and when a zone joins
it, only its later counts are added.
"""

from collections.abc import Iterable
from typing import Final

from tenantzone_runtime.zones.model.counters import Counters
from tenantzone_runtime.zones.model.zone import Zone

OVERFLOW_NAME: Final = "overflow"
"""Name and tenant of the overflow. A zone with both this name and this tenant is always a member, because otherwise two
series would have the same labels."""

DEFAULT_MAX_APART: Final = 100


class Overflow:
    """The overflow zone of one engine, with its members and their summed counts.

    Args:
        max_apart: maximum number of zones of tenants without a TenantZone that have their own series.
    """

    def __init__(self, max_apart: int = DEFAULT_MAX_APART) -> None:
        self.max_apart = max_apart
        self.is_in_use = False
        """Whether the overflow has or ever had a member."""
        self._members: dict[Zone, Counters] = {}
        """The members, each with its counters as they were when they were last added, or when the zone joined."""
        self._apart: set[Zone] = set()
        """Registered zones with series of their own."""
        self._total = Counters()

    def __contains__(self, zone: Zone) -> bool:
        return zone in self._members

    @property
    def members(self) -> Iterable[Zone]:
        return self._members.keys()

    def place(self, zone: Zone) -> None:
        """Decide whether a zone gets its own series. To be called for a new zone, and when a zone's spec changes."""
        if not self._is_apart(zone):
            if zone not in self._members:
                self._members[zone] = zone.counters.copy()
                self.is_in_use = True
            return
        self.remove(zone)
        if zone.spec.auto_registered:
            self._apart.add(zone)

    def remove(self, zone: Zone) -> None:
        """Forget a zone that was removed, or that no longer counts among the others."""
        self._apart.discard(zone)
        if zone in self._members:
            self.count(zone)
            del self._members[zone]

    def count(self, zone: Zone) -> None:
        """Add to the total by how much a member's counters have grown since the last call."""
        seen = self._members[zone]
        if zone.counters != seen:
            self._total.add_growth(zone.counters, seen)
            seen.catch_up(zone.counters)

    def total(self) -> Counters:
        """Returns the sum of what zones counted while they were members, up to the last `count` of each."""
        return self._total.copy()

    def _is_apart(self, zone: Zone) -> bool:
        if zone.spec.name == zone.spec.tenant == OVERFLOW_NAME:
            return False
        if not zone.spec.auto_registered or zone in self._apart:
            return True
        return zone not in self._members and len(self._apart) < self.max_apart
