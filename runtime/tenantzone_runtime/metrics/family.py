"""Functions that declare a metric with its name, type, labels and help, and a function that returns its values."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from tenantzone_runtime.metrics.figures import EngineFigures, TierFigures, ZoneFigures, ZoneTierFigures
from tenantzone_runtime.metrics_levels import FROM_DETAILED, LEVELS, Level
from tenantzone_runtime.zones.model.histogram import Histogram

Type = Literal["counter", "gauge", "histogram", "info", "summary"]
"""Type of a metric. A summary has no quantiles, only a sum and a count."""
Sample = tuple[tuple[str, ...], float | Histogram]
"""The label values of a series, and its value."""

ZONE_LABELS: Final = ("pool", "zone", "tenant")


@dataclass(frozen=True, slots=True)
class Family:
    """The declaration of one metric."""

    name: str
    """The name as it appears in a scrape: a counter's name ends with ``_total``."""
    type: Type
    labels: tuple[str, ...]
    help: str
    samples: Callable[[EngineFigures], Iterable[Sample]]
    levels: tuple[Level, ...] = LEVELS
    """The levels of detail at which a scrape includes the metric."""


Key = TypeVar("Key", bound=str)
ZoneValue = Callable[[ZoneFigures], float | Histogram]
ZoneValues = Callable[[ZoneFigures], Iterable[Sample]]


def of_engine(name: str, help: str, value: Callable[[EngineFigures], float]) -> Family:
    """Declare a gauge of the engine without labels."""
    return Family(f"tenantzone_{name}", "gauge", (), help, lambda engine: [((), value(engine))])


def of_steps(name: str, help: str, value: Callable[[EngineFigures], float]) -> Family:
    """Declare a counter of the engine without labels, about steps whose time was predicted."""
    return Family(f"tenantzone_engine_{name}", "counter", (), help, lambda engine: [((), value(engine))])


def of_engine_by(label: str, name: str, help: str, values: Callable[[EngineFigures], Mapping[Key, int]]) -> Family:
    """Declare a counter of the engine with one label."""

    def samples(engine: EngineFigures) -> Iterator[Sample]:
        return (((key,), value) for key, value in values(engine).items())

    return Family(f"tenantzone_{name}", "counter", (label,), help, samples)


def of_zones(type: Type, name: str, help: str, value: ZoneValue, levels: tuple[Level, ...] = LEVELS) -> Family:
    """Declare a metric with one series for each zone."""

    def samples(engine: EngineFigures) -> Iterator[Sample]:
        return (((engine.pool, zone.name, zone.tenant), value(zone)) for zone in engine.zones)

    return Family(f"tenantzone_zone_{name}", type, ZONE_LABELS, help, samples, levels)


def of_zones_by(
    type: Type,
    labels: tuple[str, ...],
    name: str,
    help: str,
    values: ZoneValues,
    levels: tuple[Level, ...] = FROM_DETAILED,
) -> Family:
    """Declare a metric with several series for each zone, which differ in the additional ``labels``."""

    def samples(engine: EngineFigures) -> Iterator[Sample]:
        for zone in engine.zones:
            shared = engine.pool, zone.name, zone.tenant
            for own, value in values(zone):
                yield (*shared, *own), value

    return Family(f"tenantzone_zone_{name}", type, (*ZONE_LABELS, *labels), help, samples, levels)


def of_tiers(type: Type, name: str, help: str, value: Callable[[TierFigures], float]) -> Family:
    """Declare a metric with one series for each tier of an engine."""

    def samples(engine: EngineFigures) -> Iterator[Sample]:
        return (((tier.tier,), value(tier)) for tier in engine.tiers)

    return Family(f"tenantzone_tier_{name}", type, ("tier",), help, samples)


def of_tiers_by(
    label: str, name: str, help: str, values: Callable[[TierFigures], Mapping[Key, float] | None], keys: Iterable[Key]
) -> Family:
    """Declare a counter with one series for each tier and each value of an additional label.

    The label's values are ``keys``. A tier for which ``values`` returns None has no series.
    """
    known = tuple(keys)

    def samples(engine: EngineFigures) -> Iterator[Sample]:
        for tier in engine.tiers:
            found = values(tier)
            for own, value in each_of(known, found) if found is not None else ():
                yield (tier.tier, *own), value

    return Family(f"tenantzone_tier_{name}", "counter", ("tier", label), help, samples)


def of_zone_tiers(type: Type, name: str, help: str, value: Callable[[ZoneTierFigures], float]) -> Family:
    """Declare a metric with one series for each zone in each tier. Only detailed scrapes include the metric."""
    return of_zones_by(
        type, ("tier",), f"tier_{name}", help, lambda zone: [((tier.tier,), value(tier)) for tier in zone.tiers]
    )


def of_zone_tiers_by(
    label: str,
    name: str,
    help: str,
    values: Callable[[ZoneTierFigures], Mapping[Key, float]],
    always: tuple[Key, ...] = (),
) -> Family:
    """Declare a counter with a series for each zone, each tier and each value of an additional label.

    Series whose value is 0 are omitted, except for the label values in ``always``.
    """

    def samples(zone: ZoneFigures) -> Iterator[Sample]:
        for tier in zone.tiers:
            for own, value in without_zeros(values(tier), always):
                yield (tier.tier, *own), value

    return of_zones_by("counter", ("tier", label), f"tier_{name}", help, samples)


def each_of(keys: Iterable[Key], values: Mapping[Key, float]) -> Iterator[Sample]:
    """Returns a sample for each key. Missing values become 0, because Prometheus' rates need a first sample of 0."""
    return (((key,), values.get(key, 0)) for key in keys)


def without_zeros(values: Mapping[Key, float], always: tuple[Key, ...] = ()) -> Iterator[Sample]:
    """Returns a sample for each key whose value is not 0, and for each key in ``always``.

    If a series begins only with its first event, Prometheus' rates miss this event. So alerts may only use the keys in
    ``always``.
    """
    yield from each_of(always, values)
    for key, value in values.items():
        if value and key not in always:
            yield (key,), value
