"""The part of a tier's trail that goes into the journal: zones' usage of the tier, and purges.

Stores and evictions in a tier are only counted in metrics, because a journal line for each would add no information
about a zone.
"""

from collections.abc import Iterable, Iterator

from tenantzone_runtime.zones.audit.events import Event, Purged, TierPurged, TierUsage, Usage
from tenantzone_runtime.zones.tiers.tier import Tier


def take_events(tier: Tier) -> Iterable[Event]:
    """Returns the events in the tier since the last call, as a lazy iterable."""
    return in_tier(tier, tier.ledger.trail.take().in_order)


def usage_in_slices(tier: Tier) -> Iterator[Iterable[Event]]:
    """Returns the usage events of all zones in the tier, in slices like those of ``Tenancy.usage_in_slices``."""
    for events in tier.tenancy.usage_in_slices():
        yield in_tier(tier, events)


def in_tier(tier: Tier, events: Iterable[Event]) -> Iterator[Event]:
    """Converts events of the tier's own tenancy, in chunks, to events of a tier."""
    for event in events:
        if isinstance(event, Usage):
            yield TierUsage(event.zone, tier.name, event.counting_since, event.block_seconds * tier.chunk_bytes)
        elif isinstance(event, Purged):
            yield TierPurged(event.zone, tier.name, event.id, event.evicted, event.withdrawn)
