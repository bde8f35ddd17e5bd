"""Parses ``spec.advice`` of a ZonePool: the advisor's mode, its time window and the bounds of its changes."""

from dataclasses import dataclass
from typing import Any, Literal

from tenantzone_contract.duration import parse_duration
from tenantzone_contract.zone_config.share import percentage
from tenantzone_contract.zone_config.specs import Body

Mode = Literal["Never", "Recommend", "Auto"]

_DEFAULT_WINDOW = "10m"


@dataclass(frozen=True, slots=True)
class Range:
    """A range that includes both ends. The unit (percent, seconds or fraction) depends on the field."""

    least: float
    most: float

    def __contains__(self, value: float) -> bool:
        return self.least <= value <= self.most


@dataclass(frozen=True, slots=True)
class Bounds:
    """Ranges within which the advisor may change fields; None or empty for fields that it must not change."""

    limit: Range | None = None
    """Allowed limits of zones, in percent of an engine's blocks."""
    weight: Range | None = None
    ttl: Range | None = None
    """Allowed values of ``retention.ttl``, in seconds."""
    eviction_policies: tuple[str, ...] = ()
    watermarks: Range | None = None
    """Allowed high watermarks, as fractions of an engine's blocks."""


@dataclass(frozen=True, slots=True)
class AdviceSpec:
    """``spec.advice`` of a ZonePool."""

    mode: Mode = "Recommend"
    window_seconds: float = 600.0
    bounds: Bounds = Bounds()
    """Bounds of the changes that the advisor makes in mode Auto."""


def read_advice(spec: Body) -> AdviceSpec:
    """Parse ``spec.advice``. The default mode is Recommend.

    Raises:
        ValueError: a value is invalid; the message names the field.
    """
    try:
        window_seconds = parse_duration(spec.get("window", _DEFAULT_WINDOW))
    except ValueError as error:
        raise ValueError(f"advice.window: {error}") from None
    return AdviceSpec(spec.get("mode", "Recommend"), window_seconds, _bounds(spec.get("bounds") or {}))


def _bounds(spec: Body) -> Bounds:
    return Bounds(
        limit=_range("limit", spec.get("limit"), percentage),
        weight=_range("weight", spec.get("weight"), float),
        ttl=_range("ttl", spec.get("ttl"), parse_duration),
        eviction_policies=tuple(spec.get("evictionPolicies", ())),
        watermarks=_range("watermarks", spec.get("watermarks"), float),
    )


def _range(name: str, spec: Body | None, read: Any) -> Range | None:
    if spec is None:
        return None
    try:
        least, most = float(read(spec["min"])), float(read(spec["max"]))
    except ValueError as error:
        raise ValueError(f"advice.bounds.{name}: {error}") from None
    if least > most:
        raise ValueError(f"advice.bounds.{name}: min must not be above max")
    return Range(least, most)
