"""Reads the values of adjustable fields, checks them against bounds, and replaces them."""

from dataclasses import replace
from math import isfinite

from pydantic import ValidationError

from tenantzone_contract.duration import parse_duration
from tenantzone_contract.zone_config.config import PoolConfig, Watermarks, ZoneConfig
from tenantzone_contract.zone_config.eviction_policies import EVICTION_POLICIES
from tenantzone_contract.zone_config.share import percentage
from tenantzone_contract.zone_config.zone_terms import Retention
from tenantzone_operator.advice.adjustment import Field
from tenantzone_operator.kube.advice_spec import Bounds, Range
from tenantzone_operator.kube.resources import Pool, Zone

ANYTHING = Bounds(
    limit=Range(5, 100),
    weight=Range(1, 64),
    ttl=Range(60, 86_400),
    eviction_policies=EVICTION_POLICIES,
    watermarks=Range(0, 1),
)
"""Bounds of recommended changes. The bounds in the spec apply only to changes that the advisor makes itself."""


def value_of(zone: ZoneConfig, field: Field) -> str:
    """Returns the value of a field in a zone's config, written as in the spec; empty if the field is unset."""
    match field:
        case Field.LIMIT:
            return "" if zone.limit is None else str(zone.limit)
        case Field.WEIGHT:
            return str(zone.weight)
        case Field.TTL:
            seconds = zone.retention.ttl_seconds
            return "" if seconds is None else duration(seconds)
        case Field.EVICTION_POLICY:
            return zone.eviction_policy
        case Field.WATERMARK:
            raise ValueError("a zone has no watermarks")


def value_of_pool(pool: PoolConfig) -> str:
    """Returns a pool's high watermark, written as in the spec."""
    return fraction(pool.watermarks.high)


def duration(seconds: float) -> str:
    """Format a duration in seconds as a user would write it."""
    if seconds % 60 == 0:
        return f"{seconds / 60:.0f}m"
    return f"{seconds:.0f}s" if seconds % 1 == 0 else f"{int(1000 * seconds)}ms"


def fraction(part: float) -> str:
    """Format a fraction with at most three decimals."""
    return f"{part:.3f}".rstrip("0").rstrip(".")


def within(bounds: Bounds, field: Field, value: str) -> bool:
    """Returns whether a field's value is within the bounds; False for an invalid value or a field without bounds."""
    if field is Field.EVICTION_POLICY:
        return value in bounds.eviction_policies
    ranges = {
        Field.LIMIT: bounds.limit,
        Field.WEIGHT: bounds.weight,
        Field.TTL: bounds.ttl,
        Field.WATERMARK: bounds.watermarks,
    }
    found = ranges[field]
    number = amount(field, value)
    return found is not None and number is not None and number in found


def amount(field: Field, value: str) -> float | None:
    """Returns a field's value as a number; None if the value is invalid, or not a number."""
    try:
        match field:
            case Field.LIMIT:
                return float(percentage(value)) if value.endswith("%") else None
            case Field.TTL:
                return parse_duration(value)
            case Field.WEIGHT:
                return float(int(value))
            case Field.WATERMARK:
                return float(value) if isfinite(float(value)) else None
            case Field.EVICTION_POLICY:
                return None
    except (OverflowError, ValueError):
        return None


def counts_blocks(zone: ZoneConfig) -> bool:
    """Returns whether the zone's reservation or limit is a number of blocks.

    The advisor does not change such a zone's limit, because comparing blocks with percentages needs an engine's size.
    """
    return any(isinstance(share, int) and share > 0 for share in (zone.reserved, zone.limit))


def with_value(zone: Zone, field: Field, value: str) -> Zone | None:
    """Returns the zone with this value in its config; None if the value is unchanged or the result would be invalid."""
    config = zone.config
    if config is None or field is Field.WATERMARK or value_of(config, field) == value:
        return None
    if field is Field.LIMIT and counts_blocks(config):
        return None
    try:
        changed = _changed(config, field, value)
    except (ValidationError, ValueError):
        return None
    return replace(zone, config=changed)


def _changed(config: ZoneConfig, field: Field, value: str) -> ZoneConfig:
    fields = {name: getattr(config, name) for name in ZoneConfig.model_fields}
    match field:
        case Field.LIMIT:
            fields["limit"] = value
        case Field.WEIGHT:
            fields["weight"] = int(value)
        case Field.TTL:
            fields["retention"] = Retention(ttl_seconds=parse_duration(value), no_store=config.retention.no_store)
        case Field.EVICTION_POLICY:
            fields["eviction_policy"] = value
    # Validate the complete config again, because the new value may contradict another field, such as the reservation.
    return ZoneConfig(**fields)


def pool_with_value(pool: Pool, value: str) -> Pool | None:
    """Returns the pool with this high watermark; None if the value is unchanged or the result would be invalid."""
    if pool.config is None or value_of_pool(pool.config) == value:
        return None
    try:
        high = float(value)
        marks = Watermarks(low=min(pool.config.watermarks.low, high), high=high)
    except (ValidationError, ValueError):
        return None
    return replace(pool, config=pool.config.model_copy(update={"watermarks": marks}))
