"""Applies the adjustments in a pool's status to the pool and its zones."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tenantzone_operator.advice.adjustment import Adjustment, Field, read_adjustments
from tenantzone_operator.advice.values import pool_with_value, value_of, value_of_pool, with_value, within
from tenantzone_operator.kube.resources import Pool, Zone


def holding(pool: Pool, zones: Iterable[Zone], adjustments: Iterable[Adjustment]) -> list[Adjustment]:
    """Returns the adjustments that still apply.

    An adjustment applies in mode Auto, while its zone exists and the spec's value is unchanged. If the adjusted value
    is in use, it must also be within the bounds and valid in the spec.
    """
    if pool.advice.mode != "Auto" or pool.config is None:
        return []
    by_name = {zone.meta.name: zone for zone in zones}
    return [each for each in adjustments if _holds(pool, by_name.get(each.zone), each)]


def _holds(pool: Pool, zone: Zone | None, each: Adjustment) -> bool:
    if each.field is Field.WATERMARK:
        spec = value_of_pool(pool.config) if pool.config is not None and not each.zone else None
    elif zone is not None and zone.config is None:
        # Keep the adjustment of an invalid zone, because the engines keep the zone's last valid config.
        return not each.in_force or within(pool.advice.bounds, each.field, each.in_force)
    else:
        spec = value_of(zone.config, each.field) if zone is not None and zone.config is not None else None
    if spec != each.spec:
        return False
    if each.in_force in ("", each.spec):
        return True
    if not within(pool.advice.bounds, each.field, each.in_force):
        return False
    if zone is None:
        return pool_with_value(pool, each.in_force) is not None
    return with_value(zone, each.field, each.in_force) is not None


@dataclass(frozen=True, slots=True)
class Overlaid:
    """A pool and its zones with the adjustments applied, as the engines should enforce them."""

    pool: Pool | None
    zones: Sequence[Zone]


class Overlay:
    """Applies the adjustments in a pool's status, and caches the result for each zone.

    Because of the cache, an unchanged zone stays the same object, and the planning compares identical objects quickly.
    """

    def __init__(self) -> None:
        self._made: dict[str, tuple[Zone, tuple[Adjustment, ...], Zone]] = {}
        self._pool: tuple[Pool, tuple[Adjustment, ...], Pool] | None = None

    def over(self, pool: Pool | None, zones: Sequence[Zone]) -> Overlaid:
        """Returns the pool and the zones with the adjustments in the pool's status applied.

        Args:
            pool: the pool; None if it does not exist.
            zones: all zones that name the pool.
        """
        found = holding(pool, zones, read_adjustments(pool.status)) if pool is not None else []
        if pool is None or not found:
            self._made, self._pool = {}, None
            return Overlaid(pool, zones)
        by_zone: dict[str, list[Adjustment]] = {}
        for each in found:
            if each.in_force:
                by_zone.setdefault(each.zone, []).append(each)
        made, overlaid = {}, []
        for zone in zones:
            adjusted = zone
            if adjustments := tuple(by_zone.get(zone.meta.name, ())):
                known = self._made.get(zone.meta.name)
                if known is None or known[0] is not zone or known[1] != adjustments:
                    known = zone, adjustments, _adjusted(zone, adjustments)
                made[zone.meta.name] = known
                adjusted = known[2]
            overlaid.append(adjusted)
        self._made = made
        return Overlaid(self._over_pool(pool, tuple(by_zone.get("", ()))), overlaid)

    def _over_pool(self, pool: Pool, adjustments: tuple[Adjustment, ...]) -> Pool:
        known = self._pool
        if known is None or known[0] is not pool or known[1] != adjustments:
            adjusted = pool
            for each in adjustments:
                adjusted = pool_with_value(adjusted, each.in_force) or adjusted
            known = self._pool = pool, adjustments, adjusted
        return known[2]


def _adjusted(zone: Zone, adjustments: Iterable[Adjustment]) -> Zone:
    for each in adjustments:
        zone = with_value(zone, each.field, each.in_force) or zone
    return zone
