"""The number of a zone's series in a scrape at each level, with all features of an engine in use."""

import itertools
from dataclasses import MISSING, fields
from typing import get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tenantzone_contract.reports.words import EvictionReason, WaitReason
from tenantzone_contract.zone_config.tiers import SHARED_TIER, TIER_NAMES, AnyTierName
from tenantzone_runtime.metrics.exposition import encode
from tenantzone_runtime.metrics.families import ALL_FAMILIES, families
from tenantzone_runtime.metrics.family import ZONE_LABELS
from tenantzone_runtime.metrics_levels import DEFAULT_LEVEL, LEVELS, MAX_ZONE_SERIES
from tenantzone_runtime.zones.model.counters import EVICTIONS_FOR, Counters, Outcome
from tenantzone_runtime.zones.model.outcomes import TargetOutcome
from tenantzone_runtime.zones.tiers.tier_counts import TierCounts, WriteRefusal
from tests.runtime.scraping import figures, in_tier, series, tier, zone

MAX_BYTES = 2_000_000
ZONES = 1_000
ALL_TIERS: tuple[AnyTierName, ...] = (*TIER_NAMES, SHARED_TIER)


def all_has_happened() -> Counters:
    """Each counter, with each of its labels: evictions for every beneficiary, drafts, adapters, tiers, preemptions."""
    numbers = {each.name: 1_234_567 for each in fields(Counters) if each.default is not MISSING}
    made = Counters(
        **numbers,
        evictions={(reason, by): 1_000_003 for reason, beneficiaries in EVICTIONS_FOR.items() for by in beneficiaries},
        requests=dict.fromkeys(get_args(Outcome), 1_000_003),
        stalled_seconds=dict.fromkeys(get_args(WaitReason), 12_345.678901234),
    )
    made.queue_time.observe(0.3)
    made.time_to_first_token.observe(0.3)
    return made


def all_has_happened_in(name: AnyTierName):
    numbers = {each.name: 7 for each in fields(TierCounts) if each.default is not MISSING}
    counts = TierCounts(**numbers, refused_writes=dict.fromkeys(get_args(WriteRefusal), 7))
    return in_tier(tier=name, counts=counts, evictions=dict.fromkeys(get_args(EvictionReason), 7))


def busy_zone(name: str):
    return zone(
        name=name,
        tenant=name,
        counters=all_has_happened(),
        outcomes={
            "token_time": TargetOutcome(0.05, 0.07, met=False, reason="OwnLoad"),
            "first_token": TargetOutcome(0.5, 0.4, met=True, reason="Met"),
        },
        tiers=tuple(map(all_has_happened_in, ALL_TIERS)),
    )


def scrape_of(level, *zones) -> str:
    tiers = tuple(tier(tier=name) for name in ALL_TIERS)
    return encode(figures(zones=zones, tiers=tiers), "text/plain", level)[1].decode()


def of_zones(text: str):
    return [key for key in series(text) if "zone" in dict(key[1])]


@pytest.mark.parametrize("level", LEVELS)
def test_no_zone_has_more_series_than_its_level_allows(level):
    """A new metric must go to a level that has room for it, or the bound is raised for a reason."""
    assert len(of_zones(scrape_of(level, busy_zone("acme")))) == MAX_ZONE_SERIES[level]
    assert DEFAULT_LEVEL == "basic"
    assert MAX_ZONE_SERIES["basic"] == 20


def test_nothing_of_the_fixture_is_left_out():
    """Otherwise a family could have more series than are counted here."""
    text = scrape_of("full", busy_zone("acme"))
    reported = {family.name for family in text_string_to_metric_families(text) if family.samples}
    assert reported >= {family.name.removesuffix("_total") for family in families("full") if "zone" in family.labels}
    refused = {dict(labels)["reason"] for name, labels in of_zones(text) if "stalled" in name}
    assert refused == set(get_args(WaitReason))


def test_a_scrape_of_a_thousand_busy_zones_is_no_larger_than_two_megabytes():
    text = scrape_of("basic", *(busy_zone(f"tenant-{number}") for number in range(ZONES)))
    assert len(text) < MAX_BYTES
    assert text.count('zone="') == ZONES * MAX_ZONE_SERIES["basic"]


def test_each_level_has_the_metrics_of_the_one_below():
    for lower, higher in itertools.pairwise(LEVELS):
        above = {family.name: set(family.labels) for family in families(higher)}
        for family in families(lower):
            assert set(family.labels) <= above[family.name]
    assert {family.name for family in ALL_FAMILIES} == {family.name for family in families("full")}
    assert all(set(ZONE_LABELS) <= set(family.labels) for family in ALL_FAMILIES if "zone" in family.labels)
