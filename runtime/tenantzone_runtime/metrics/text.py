"""Encodes a scrape in a text format: Prometheus' text format (0.0.4) or OpenMetrics (1.0.0).

This module exists because prometheus_client takes four times as long. A scrape shares the GIL with the engine's steps,
and a thousand zones have more than twenty thousand series.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate

from tenantzone_runtime.metrics.families import families
from tenantzone_runtime.metrics.family import Family
from tenantzone_runtime.metrics.figures import EngineFigures
from tenantzone_runtime.metrics_levels import Level
from tenantzone_runtime.zones.model.histogram import BOUNDS, Histogram

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_BOUNDS = (*map(str, BOUNDS), "+Inf")
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def text(figures: EngineFigures, level: Level) -> Iterator[str]:
    """Returns the lines of a scrape in Prometheus' text format."""
    for family in families(level):
        yield f"# HELP {family.name} {family.help}\n"
        # Declare an info metric as a gauge, because Prometheus' text format has no info type.
        yield f"# TYPE {family.name} {'gauge' if family.type == 'info' else family.type}\n"
        yield from _samples(family, figures)


def openmetrics(figures: EngineFigures, level: Level) -> Iterator[str]:
    """Returns the lines of a scrape in the OpenMetrics format."""
    for family in families(level):
        name = family.name.removesuffix("_total").removesuffix("_info")
        yield f"# HELP {name} {family.help.translate(_ESCAPES)}\n"
        yield f"# TYPE {name} {family.type}\n"
        yield from _samples(family, figures)
    yield "# EOF\n"


def _samples(family: Family, figures: EngineFigures) -> Iterator[str]:
    for values, value in family.samples(figures):
        labels = _labels(family.labels, values)
        if not isinstance(value, Histogram):
            # Write whole numbers without ".0" to save space, because most values are whole numbers.
            yield f"{family.name}{{{labels}}} {int(value) if isinstance(value, int) else repr(value)}\n"
            continue
        if family.type == "histogram":
            yield from _buckets(family.name, labels, value)
        yield from _sum(family.name, labels, value)


def _buckets(name: str, labels: str, histogram: Histogram) -> Iterator[str]:
    for bound, count in zip(_BOUNDS, accumulate(histogram.classic), strict=True):
        yield f'{name}_bucket{{{labels},le="{bound}"}} {count}\n'


def _sum(name: str, labels: str, histogram: Histogram) -> Iterator[str]:
    yield f"{name}_count{{{labels}}} {histogram.count}\n"
    yield f"{name}_sum{{{labels}}} {histogram.sum!r}\n"


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    return ",".join(map(_label, names, values))


@lru_cache(maxsize=4096)
def _label(name: str, value: str) -> str:
    return f'{name}="{value.translate(_ESCAPES)}"'
