"""Upkeep: the order in which time, loans and the watermark take effect; and an engine without a config."""

import pytest

from tenantzone_contract.zone_config.config import Watermarks
from tenantzone_contract.zone_config.unknown_tenants import UnknownTenants
from tenantzone_runtime.zones.audit.events import Refused
from tests.zones.core import Core, declare


@pytest.fixture
def core():
    return Core()


def test_without_a_config_there_is_no_zone_and_nothing_to_evict(core):
    assert core.tenancy.is_open_to_anybody
    assert core.tenancy.zone_for("acme", 0.0) is None
    assert core.upkeep(1e6) == []


def test_a_config_with_zones_is_open_to_those_only(core):
    core.apply(declare("acme"))
    assert not core.tenancy.is_open_to_anybody
    assert core.tenancy.zone_for("acme", 0.0) is core.ledger.zones["acme"]
    assert core.tenancy.zone_for("stranger", 0.0) is None


def test_a_pool_that_registers_anybody_is_not_open_without_a_zone(core):
    core.apply(unknown_tenants=UnknownTenants(mode="AutoRegister"))
    assert not core.tenancy.is_open_to_anybody


def test_when_the_last_zone_is_leaving_the_engine_is_not_open_to_requests_without_a_zone(core):
    core.apply(declare("acme"))
    acme = core.ledger.zones["acme"]
    core.tenancy.request_arrived(acme, 0.0)
    core.apply()
    assert core.tenancy.zone_for("acme", 1.0) is None
    assert not core.tenancy.is_open_to_anybody


def test_between_the_watermarks_nothing_is_evicted(core):
    core.apply(declare("acme"), watermarks=Watermarks(low=0.1, high=0.3))
    core.hold(core.ledger.zones["acme"], cached=90)
    assert core.upkeep(1.0) == []


def test_below_the_low_watermark_blocks_are_evicted_up_to_the_high_one(core):
    core.apply(declare("acme"), watermarks=Watermarks(low=0.1, high=0.3))
    acme = core.ledger.zones["acme"]
    core.hold(acme, cached=91)
    assert core.upkeep(1.0) == [("acme", 21)]
    assert core.free == 30
    assert acme.counters.evicted == {"watermark": 21}


def test_the_watermark_takes_what_is_above_reservations_from_the_quiet_first_and_nothing_else(core):
    quiet = declare("quiet", reserved=15, after=5.0)
    core.apply(quiet, declare("busy", reserved=60), watermarks=Watermarks(low=0.5, high=1.0))
    core.hold(core.ledger.zones["quiet"], cached=20)
    busy = core.ledger.zones["busy"]
    core.hold(busy, cached=70)
    core.tenancy.request_arrived(busy, 1.0)
    assert core.upkeep(5.0) == [("quiet", 5), ("busy", 10)]


def test_the_watermark_takes_surplus_of_any_priority(core):
    core.apply(declare("gold", reserved=30, priority=9, after=5.0), watermarks=Watermarks(low=0.5, high=0.7))
    core.hold(core.ledger.zones["gold"], cached=60)
    assert core.upkeep(5.0) == [("gold", 30)]


def test_what_time_and_due_loans_give_back_counts_before_the_watermark(core):
    core.apply(
        declare("sleeper", evict_after=10.0),
        declare("lender", reserved=50, after=0.0, max_loan=10.0),
        declare("borrower", reserved=10, after=1e6),
        watermarks=Watermarks(low=0.4, high=1.0),
    )
    core.hold(core.ledger.zones["sleeper"], cached=25)
    core.hold(core.ledger.zones["borrower"], cached=60)
    core.tenancy.loans.settle(core.free)
    assert core.upkeep(10.0) == [("sleeper", 25), ("borrower", 10)]
    assert core.free == 50


def test_what_due_loans_give_back_is_enough_for_the_watermark(core):
    core.apply(
        declare("lender", reserved=50, after=0.0, max_loan=10.0),
        declare("borrower", after=1e6),
        watermarks=Watermarks(low=0.4, high=1.0),
    )
    core.hold(core.ledger.zones["borrower"], cached=60)
    core.upkeep(0.0)
    core.hold(core.ledger.zones["borrower"], cached=10)
    core.tenancy.loans.settle(core.free)
    assert core.upkeep(10.0) == [("borrower", 20)]


def test_a_stale_book_takes_nothing_that_is_within_the_borrowers_reservation(core):
    core.apply(declare("lender", reserved=40, after=0.0, max_loan=10.0), declare("borrower", reserved=10))
    borrower = core.ledger.zones["borrower"]
    core.hold(borrower, cached=80)
    core.tenancy.loans.settle(core.free)
    core.ledger.evict(borrower, 75, "reclaim")
    core.now = 10.0
    assert core.settle_evictions(core.tenancy.collect_due(core.free)) == []
    assert borrower.held == 5


def test_upkeep_settles_the_book_of_loans(core):
    core.apply(declare("lender", reserved=50, after=5.0), declare("borrower"))
    core.hold(core.ledger.zones["borrower"], cached=70)
    core.upkeep(5.0)
    assert [loan.blocks for loan in core.tenancy.loans] == [20]


def test_a_zone_is_overdue_until_upkeep_sees_that_it_owes_nothing(core):
    core.apply(declare("lender", reserved=50, after=0.0, max_loan=10.0), declare("borrower"))
    borrower = core.ledger.zones["borrower"]
    core.tenancy.request_arrived(borrower, 0.0)
    core.take(borrower, 70)
    core.upkeep(0.0)
    core.upkeep(10.0)
    assert borrower.overdue == 20
    core.release(borrower, dropped=25)
    core.upkeep(11.0)
    assert borrower.overdue == 0


def test_an_overdue_borrower_still_reclaims_what_it_is_entitled_to(core):
    core.apply(
        declare("lender", reserved=40, after=0.0, max_loan=10.0), declare("debtor", reserved=10), declare("other")
    )
    debtor, other = core.ledger.zones["debtor"], core.ledger.zones["other"]
    core.hold(other, cached=100)
    debtor.overdue = 3
    assert core.takeable(debtor) == 10


def test_an_evicted_tenant_is_bound_to_the_same_zone_when_it_wakes(core):
    core.apply(declare("acme", evict_after=5.0))
    acme = core.ledger.zones["acme"]
    core.upkeep(5.0)
    assert acme.state == "Evicted"
    assert core.tenancy.zone_for("acme", 6.0) is acme
    core.tenancy.request_arrived(acme, 6.0)
    assert acme.state == "Active"


def test_a_zone_that_waits_says_why_until_it_may_go_on(core):
    core.apply(declare("acme", limit=10))
    acme = core.ledger.zones["acme"]
    core.tenancy.must_wait(acme, 11, core.free)
    assert acme.wait_reason == "limit"
    core.tenancy.may_go_on(acme)
    assert acme.wait_reason is None


def test_a_zone_whose_last_request_has_ended_waits_for_nothing(core):
    core.apply(declare("acme", limit=10))
    acme = core.ledger.zones["acme"]
    for _ in range(2):
        core.tenancy.request_arrived(acme, 0.0)
    core.tenancy.must_wait(acme, 11, core.free)
    core.tenancy.request_finished(acme, 1.0)
    assert acme.wait_reason == "limit"
    core.tenancy.request_finished(acme, 2.0)
    assert acme.wait_reason is None


def test_zones_that_need_each_others_caches_do_not_wait_for_ever(core):
    core.apply(declare("one", reserved=40), declare("other", reserved=40))
    one, other = core.ledger.zones.values()
    for zone in (one, other):
        core.hold(zone, cached=50)
        core.tenancy.request_arrived(zone, 0.0)
    assert core.takeable(one) == 50
    assert core.settle_evictions(core.tenancy.evict_surplus_for(one, 60, core.free)) == [("other", 10)]
    assert core.takeable(one) == 60
    assert other.held == 40


def test_refusals_are_counted_by_reason_and_with_the_zone_that_they_name(core):
    core.apply(declare("acme"), declare("gone"))
    zones = dict(core.ledger.zones)
    core.tenancy.request_arrived(zones["gone"], 0.0)
    core.apply(declare("acme"))
    for tenant, reason in (("acme", "too_long"), ("acme", "too_long"), ("gone", "too_long"), ("x", "unknown_tenant")):
        core.tenancy.refused(tenant, reason)
    core.tenancy.refused(None, "unbound")
    core.tenancy.refused("acme", "queue_full")
    refusals = {
        "unbound": 1,
        "unknown_tenant": 1,
        "too_long": 3,
        "unsupported": 0,
        "changed_adapter": 0,
        "queue_full": 1,
    }
    assert core.tenancy.refusals == refusals
    assert zones["acme"].counters.requests == {"refused": 2, "queue_full": 1}
    assert zones["gone"].counters.requests == {}
    assert core.events("refused") == [
        Refused("acme", 2, "too_long"),
        Refused("gone", 1, "too_long"),
        Refused("x", 1, "unknown_tenant"),
        Refused(None, 1, "unbound"),
        Refused("acme", 1, "queue_full"),
    ]


def test_why_a_request_can_never_be_served_is_said_with_its_own_peak(core):
    core.zone("gold", reserved=40, lendable=10)
    capped = core.zone("capped", limit=20)
    reasons = [core.tenancy.why_never(capped, 80, peak).split(", because")[0] for peak in (0, 30, 90)]
    assert reasons == [
        f"it needs 80 blocks, but zone capped can have at most {blocks} of this engine's 100" for blocks in (20, 30, 70)
    ]


def test_no_request_yields_for_a_loan_before_its_cached_blocks_were_reclaimed(core):
    core.zone("lender", reserved=50, quiet=True, max_loan=10.0, grace=0.0)
    borrower = core.zone("borrower", in_use=50, cached=20)
    core.upkeep(0.0)
    core.now = 10.0
    assert core.tenancy.past_grace() == []
    core.release(borrower, kept=5)
    assert core.upkeep(10.0) == [("borrower", 20)]
    assert core.tenancy.past_grace() == []
