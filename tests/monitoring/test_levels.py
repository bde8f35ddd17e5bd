"""Alerts and dashboard against what engines export at each level of their metrics."""

import re
from collections.abc import Iterator
from functools import cache

import pytest

from hack.monitoring.panels import rows
from hack.monitoring.panels.panel import Panel
from hack.monitoring.rules import groups
from tenantzone_runtime.metrics import families
from tenantzone_runtime.metrics.exposition import encode
from tenantzone_runtime.metrics_levels import DEFAULT_LEVEL, LEVELS, Level
from tenantzone_runtime.zones.model.counters import Counters
from tenantzone_runtime.zones.model.outcomes import TargetOutcome
from tenantzone_runtime.zones.tiers.tier_counts import TierCounts, TierTotals
from tests.runtime.scraping import Series, figures, in_tier, series, tier, zone

INSTEAD = {
    "tenantzone_zone_tier_refused_chunks_total": "tenantzone_tier_refused_chunks_total",
    "tenantzone_zone_tier_stored_bytes_total": "tenantzone_tier_stored_bytes_total",
    "tenantzone_zone_tier_lost_chunks_total": "tenantzone_tier_corrupt_chunks_total",
}
"""Detailed metrics: rules use them only with a total that is always there."""
ONLY_DETAILED = "tenantzone:zone_tier_refused:ratio15m"
"""A recording for each zone in each tier; there is another one for tiers."""

RULES = [(getattr(rule, "name", ""), rule.expression) for group in groups() for rule in group.rules]
PANELS = [panel for row in rows() for panel in row.panels]


@cache
def idle_scrape(level: Level) -> Series:
    """An engine in which nothing has happened yet: a series that appears later has no rate for its first increment."""
    targets = {"token_time": TargetOutcome(0.05, 0.04, met=True, reason="Met")}
    quiet = zone(counters=Counters(), outcomes=targets, tiers=(in_tier(counts=TierCounts(), evictions={}),))
    reported = figures(zones=(quiet,), tiers=(tier(totals=TierTotals(), questions={}),))
    return series(encode(reported, "text/plain", level)[1].decode())


def asked_for(expression: str) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Each metric of engines in an expression, with the label values by which it is selected."""
    for name, selector in re.findall(
        r"\b(tenantzone_(?:zone|tier|engine|config|report)_\w+)(?:\{([^}]*)\})?", expression
    ):
        matchers = re.findall(r'(\w+)=~?"([^"$.*]+)"', selector)
        yield name, {label: values.split("|") for label, values in matchers}


@pytest.mark.parametrize(("name", "expression"), RULES, ids=[name for name, _ in RULES])
@pytest.mark.parametrize("level", LEVELS)
def test_what_a_rule_asks_for_is_there_at_each_level_from_the_start(name: str, expression: str, level: Level):
    reported = idle_scrape(level)
    asked = list(asked_for(expression))
    for metric, values in asked:
        if metric in INSTEAD:
            assert name == ONLY_DETAILED or INSTEAD[metric] in {each for each, _ in asked}, metric
            continue
        assert metric in {each for each, _ in reported}, metric
        for label, known in values.items():
            found = {dict(labels).get(label) for each, labels in reported if each == metric}
            assert set(known) <= found, metric


def has(panel: Panel, level: Level) -> bool:
    """Whether engines export everything that the panel shows, with all labels that it names."""
    labels = {family.name: {*family.labels, "namespace", "pod"} for family in families(level)}
    labels |= {f"{family.name}_bucket": {"le"} for family in families(level) if family.type == "histogram"}
    of_engines = [name for query in panel.queries for name, _ in asked_for(query.expression)]
    # A histogram's name without a suffix is that of a native histogram.
    of_engines = [name for name in of_engines if not name.endswith("_seconds") or name in labels or level == "basic"]
    if any(name not in labels for name in of_engines):
        return False
    for query in panel.queries:
        names = [name for name, _ in asked_for(query.expression) if not name.endswith("_bucket")]
        shown = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
        if names and not shown <= {"pool", *(label for name in names for label in labels[name])}:
            return False
    return True


@pytest.mark.parametrize("panel", PANELS, ids=[panel.title for panel in PANELS])
def test_a_panel_has_what_it_shows_at_the_level_that_it_names_and_not_below(panel: Panel):
    assert [has(panel, level) for level in LEVELS] == [level in LEVELS[LEVELS.index(panel.level) :] for level in LEVELS]


def test_most_panels_need_no_more_than_the_default():
    assert sum(panel.level == DEFAULT_LEVEL for panel in PANELS) > len(PANELS) / 2
