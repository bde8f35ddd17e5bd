"""What of a tier's trail goes into the journal: what zones have used there, and purges.

What comes and goes in a tier is told by its metrics. A line for each eviction there would say no more of anybody.
"""

from collections.abc import Iterable, Iterator

from tenantzone_runtime.zones.audit import Event, Purged, TierPurged, TierUsage, Usage
from tenantzone_runtime.zones.tier import Tier


def take_events(tier: Tier) -> Iterable[Event]:
    """Take what happened in the tier since the last call; events are made of it when they are asked for."""
    return in_tier(tier, tier.ledger.trail.take().in_order)


def usage_in_slices(tier: Tier) -> Iterator[Iterable[Event]]:
    """The events of what each zone has used of the tier, where it has grown, with pauses as in ``Tenancy``'s."""
    for events in tier.tenancy.usage_in_slices():
        yield in_tier(tier, events)


def in_tier(tier: Tier, events: Iterable[Event]) -> Iterator[Event]:
    """Events of the tier's own tenancy, in chunks, as events of a tier."""
    for event in events:
        if isinstance(event, Usage):
            yield TierUsage(event.zone, tier.name, event.counting_since, event.block_seconds * tier.chunk_bytes)
        elif isinstance(event, Purged):
            yield TierPurged(event.zone, tier.name, event.id, event.evicted, event.withdrawn)
