"""The overflow zone: which zones have their own series in the metrics, and which are summed into one.

Declared zones have their own: the config bounds their number. Tenants without a TenantZone come and go as they like, so
a bounded number of the zones registered for them have their own series at a time, and all others are members of the
overflow. This is decided when a zone is registered, and stays so until it is forgotten or declared; a place that
becomes free goes to the next new zone.

The overflow's counters never decrease. A zone that leaves it leaves behind what it has added, and a zone that joins it
adds only what it counts from then on.
"""

from collections.abc import Iterable
from typing import Final

from tenantzone_runtime.zones.counters import Counters
from tenantzone_runtime.zones.zone import Zone

OVERFLOW_NAME: Final = "overflow"
"""Name and tenant of the overflow. A zone that has both is a member, or two series would have the same name."""

DEFAULT_MAX_APART: Final = 100


class Overflow:
    """The overflow zone of one engine, with its members and what they have counted.

    Args:
        max_apart: the number of zones registered for tenants without a TenantZone that have their own series.
    """

    def __init__(self, max_apart: int = DEFAULT_MAX_APART) -> None:
        self.max_apart = max_apart
        self.is_in_use = False
        """Whether it has or ever had a member."""
        self._members: dict[Zone, Counters] = {}
        """The members, and what each had counted when it joined, or when its counts were last added."""
        self._apart: set[Zone] = set()
        """Registered zones with series of their own."""
        self._total = Counters()

    def __contains__(self, zone: Zone) -> bool:
        return zone in self._members

    @property
    def members(self) -> Iterable[Zone]:
        return self._members.keys()

    def place(self, zone: Zone) -> None:
        """Decide on the series of a zone that is new, or that the config has begun or ceased to declare."""
        if not self._is_apart(zone):
            if zone not in self._members:
                self._members[zone] = zone.counters.copy()
                self.is_in_use = True
            return
        self.remove(zone)
        if zone.spec.auto_registered:
            self._apart.add(zone)

    def remove(self, zone: Zone) -> None:
        """Remove a zone that is gone, or is not a member any more."""
        self._apart.discard(zone)
        if zone in self._members:
            self.count(zone)
            del self._members[zone]

    def count(self, zone: Zone) -> None:
        """Add what a member has counted since the last call."""
        seen = self._members[zone]
        if zone.counters != seen:
            self._total.add_growth(zone.counters, seen)
            seen.catch_up(zone.counters)

    def total(self) -> Counters:
        """Returns the counts of zones while they were members, as of the last `count` of each."""
        return self._total.copy()

    def _is_apart(self, zone: Zone) -> bool:
        if zone.spec.name == zone.spec.tenant == OVERFLOW_NAME:
            return False
        if not zone.spec.auto_registered or zone in self._apart:
            return True
        return zone not in self._members and len(self._apart) < self.max_apart
