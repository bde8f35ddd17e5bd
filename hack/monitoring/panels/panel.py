"""The parts of a dashboard."""

from dataclasses import dataclass
from typing import Literal

from tenantzone_runtime.metrics_levels import DEFAULT_LEVEL, Level

Style = Literal["lines", "stacked", "stat"]


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL with the dashboard's variables, and what a line is called."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of the dashboard: its queries, and how they are shown."""

    title: str
    description: str
    unit: str
    """The unit's name in Grafana."""
    queries: tuple[Query, ...]
    style: Style = "lines"
    for_each_zone: bool = False
    """Whether there is one for each zone that is chosen."""
    level: Level = DEFAULT_LEVEL
    """The level of the engines' metrics that it needs to show everything."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of panels under one title."""

    title: str
    panels: tuple[Panel, ...]
