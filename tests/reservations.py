"""The rule of what is held within a reservation, as a check for every tier and for an engine's blocks.

It goes by the zone's own terms and for the zone's own newer blocks, and of an engine's blocks also to requests that run
on loans. It never goes for what another zone caches.
"""

OWN_REASONS = {"own", "limit", "idle", "ttl", "no_store", "purge", "removed", "reset"}
"""Of evictions that the zone's own terms, requests and data bring about."""


def check_kept(name, *, reserved, before, after, own=0, lent=0):
    """Assert that a zone lost nothing within its reservation for another zone's cache.

    Args:
        name: of the zone.
        reserved: by the zone, before and after.
        before: held by it before something happened.
        after: held by it now.
        own: what went by its own terms, or for its own newer blocks.
        lent: what requests that run on loans may have of it.
    """
    lost = min(before, reserved) - after
    assert lost <= own + lent, f"{name} reserves {reserved}, held {before} and holds {after}: it lost {lost} to others"


class Reservations:
    """What zones of a tier, or of an engine, hold within their reservations, from now until `check_kept`."""

    def __init__(self, zones):
        self._before = {zone: (zone.spec.quota.reserved, zone.held, _own_evictions(zone)) for zone in zones}

    def check_kept(self, lent=None):
        """Assert that the zones have lost nothing of it for other zones' caches.

        Args:
            lent: by tenant, what requests that run on loans may have of it; None: nothing.
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
