"""The rule for content within a reservation, as a check for every tier and for an engine's blocks.

It is evicted by the zone's own terms and for the zone's own newer blocks, and, in an engine's blocks, also for requests
that run on loans. It is never evicted for another zone's cache.
"""

OWN_REASONS = {"own", "limit", "idle", "ttl", "no_store", "purge", "removed", "reset"}
"""Reasons of evictions caused by the zone's own terms, requests and data."""


def check_kept(name, *, reserved, before, after, own=0, lent=0):
    """Asserts that a zone lost nothing within its reservation for another zone's cache.

    Args:
        name: the zone's name.
        reserved: the zone's reservation, before and after.
        before: held by the zone before the event.
        after: held by the zone now.
        own: evicted by its own terms, or for its own newer blocks.
        lent: the part that requests running on loans may have.
    """
    lost = min(before, reserved) - after
    assert lost <= own + lent, f"{name} reserves {reserved}, held {before} and holds {after}: it lost {lost} to others"


class Reservations:
    """Holdings of the zones of a tier, or of an engine, within their reservations, from now until `check_kept`."""

    def __init__(self, zones):
        self._before = {zone: (zone.spec.quota.reserved, zone.held, _own_evictions(zone)) for zone in zones}

    def check_kept(self, lent=None):
        """Asserts that the zones have lost none of it for other zones' caches.

        Args:
            lent: by tenant, the part that requests running on loans may have; None: nothing.
        """
        for zone, (reserved, held, own) in self._before.items():
            tenant = zone.spec.tenant
            check_kept(
                tenant,
                reserved=reserved,
                before=held,
                after=zone.held,
                own=_own_evictions(zone) - own,
                lent=(lent or {}).get(tenant, 0),
            )


def _own_evictions(zone):
    evictions = zone.counters.evictions.items()
    return sum(count for (reason, whom), count in evictions if reason in OWN_REASONS and whom in ("self", "none"))
