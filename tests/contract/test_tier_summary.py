"""A zone's tiers over several engines: added up, except for what all of them hold together."""

from tenantzone_contract.quantity import MAX_COUNT
from tenantzone_contract.reports.tier_summary import tier_summaries
from tenantzone_contract.reports.zone_report import ZoneTierReport


def reported(tier, held, **counts):
    return ZoneTierReport(tier=tier, reserved_bytes=0, limit_bytes=0, held_bytes=held, **counts)


def test_what_each_engine_holds_is_added_up_and_the_fastest_tier_is_first():
    found = tier_summaries([reported("disk", 5, hits=1), reported("cpu", 1), reported("disk", 7, hits=2)])
    assert [(each.tier, each.held, each.hits) for each in found] == [("cpu", 1, 0), ("disk", 12, 3)]


def test_what_engines_share_is_held_once_and_counted_by_each():
    found = tier_summaries(
        [reported("shared", 90, hits=4, writes_refused=1), reported("shared", 100, hits=5), reported("cpu", 1)]
    )
    assert [each.tier for each in found] == ["cpu", "shared"]
    assert (found[1].held, found[1].hits, found[1].writes_refused) == (100, 9, 1), (
        "the latest look has most, or all have"
    )


def test_nothing_is_said_to_be_reserved_of_what_engines_share():
    own, shared = tier_summaries([reported("shared", 2**20), reported("cpu", 2**20)])
    assert (own.shown, shared.shown) == ("1Mi/0", "1Mi")


def test_no_sum_is_more_than_a_status_can_show():
    (found,) = tier_summaries([reported("disk", MAX_COUNT), reported("disk", MAX_COUNT)])
    assert found.held == MAX_COUNT
