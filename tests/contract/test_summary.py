"""One zone, in one engine or over several: the same sums, states and percentages in every view."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.quantity import MAX_COUNT
from tenantzone_contract.reports.summary import STATUS_FIELDS, ZoneSummary, busiest
from tenantzone_contract.reports.words import ZoneState
from tenantzone_contract.reports.zone_report import ZoneReport

BLOCKS = st.integers(0, 10_000)
REPORTS = st.builds(
    ZoneReport,
    name=st.just("acme"),
    tenant=st.just("acme"),
    generation=st.just(1),
    state=st.sampled_from(get_args(ZoneState)),
    **dict.fromkeys(
        (
            *("reserved", "limit", "in_use", "cached", "lent", "borrowed"),
            *("prefix_query_tokens", "prefix_hit_tokens", "computed_first_tokens", "recomputed_tokens"),
        ),
        BLOCKS,
    ),
    evictions=st.dictionaries(st.sampled_from(["own", "due", "new"]), BLOCKS),
)


def zone(**fields: object) -> ZoneReport:
    known = {"state": "Idle", "reserved": 0, "limit": 10, "in_use": 0, "cached": 0}
    return ZoneReport(name="acme", tenant="acme", generation=1, **{**known, **fields})


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["Idle", "Active", "Evicted"], "Active"),
        (["Evicted", "Idle"], "Idle"),
        (["Evicted"], "Evicted"),
        (["Drained", "Evicted"], "Evicted"),
        (["Drained"], None),
        ([], None),
    ],
)
def test_a_zone_is_as_busy_as_in_the_engine_where_it_is_busiest(states, expected):
    assert busiest(states) == expected


@given(st.lists(REPORTS, min_size=1))
def test_amounts_add_up_over_engines(reports):
    summary = ZoneSummary.of(reports)
    for name in ("reserved", "limit", "in_use", "cached", "lent", "borrowed", "held"):
        assert getattr(summary, name) == sum(getattr(report, name) for report in reports)
    assert summary.evictions == sum(sum(report.evictions.values()) for report in reports)
    assert summary.state == busiest(report.state for report in reports)


@pytest.mark.parametrize(
    ("asked", "hit", "percent"),
    [
        ([100, 100], [80, 10], 45),
        ([300, 100], [100, 0], 25),
        ([3], [2], 66),
        ([0, 0], [0, 0], None),
        ([10], [11], 100),
    ],
    ids=["two engines", "by tokens, not by engines", "rounded down", "no prompts", "an engine that lies"],
)
def test_the_hit_rate_is_that_of_all_prompts(asked, hit, percent):
    pairs = zip(asked, hit, strict=True)
    reports = [zone(prefix_query_tokens=tokens, prefix_hit_tokens=found) for tokens, found in pairs]
    assert ZoneSummary.of(reports).hit_percent == percent


@pytest.mark.parametrize(
    ("first", "again", "percent"), [([60, 20], [0, 20], 20), ([5], [0], 0), ([0], [7], 100), ([0, 0], [0, 0], None)]
)
def test_the_recomputed_share_is_that_of_all_that_steps_computed(first, again, percent):
    pairs = zip(first, again, strict=True)
    reports = [zone(computed_first_tokens=tokens, recomputed_tokens=lost) for tokens, lost in pairs]
    assert ZoneSummary.of(reports).recomputed_percent == percent


def test_evictions_stay_a_number_that_every_reader_of_json_knows():
    reports = [zone(evictions={"own": MAX_COUNT}), zone(evictions={"own": 5})]
    assert ZoneSummary.of(reports).evictions == MAX_COUNT


def test_where_no_engine_says_anything_nothing_is_known():
    summary = ZoneSummary.of([])
    assert summary == ZoneSummary()
    assert set(summary.fields().values()) == {None}
    assert summary.status_fields() == {}


@given(st.lists(REPORTS, min_size=1))
def test_what_a_status_says_is_read_as_it_was_written(reports):
    summary = ZoneSummary.of(reports)
    rows = [
        {
            "pod": "engine",
            "reserved": report.reserved,
            "limit": report.limit,
            **ZoneSummary.of([report]).status_fields(),
        }
        for report in reports
    ]
    assert ZoneSummary.read({**summary.status_fields(), "engines": rows}) == summary
    assert [ZoneSummary.read(row) for row in rows] == [ZoneSummary.of([report]) for report in reports]


def test_a_status_says_all_but_what_its_engines_say_of_themselves():
    assert set(STATUS_FIELDS) == ZoneSummary().fields().keys() - {"reserved", "limit"}
