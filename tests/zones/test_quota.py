"""The algebra by example; each case is named after its meaning for a pool's operator."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.zones.blocks.eviction import evict_surplus_for
from tenantzone_runtime.zones.model import quota
from tenantzone_runtime.zones.model.quota import Quota
from tests.zones.core import Core

CAPACITY = 100
ANY = "AnyPriority"


def takeable(mine, others, before_zones=0):
    core = Core(CAPACITY)
    early = core.early(in_use=before_zones)
    zone = early if mine is None else core.zone("mine", **mine)
    for number, other in enumerate(others):
        core.zone(f"other-{number}", **other)
    return core.takeable(zone)


@pytest.mark.parametrize(
    ("mine", "others", "expected"),
    [
        pytest.param({}, [], 100, id="alone in the pool a zone without a promise may take all of it"),
        pytest.param({}, [{"reserved": 40}], 60, id="an active zone's reservation is left alone"),
        pytest.param({}, [{"reserved": 40, "quiet": True}], 100, id="a quiet zone lends all of it by default"),
        pytest.param({}, [{"reserved": 40, "lendable": 10, "quiet": True}], 70, id="or just what it lets go"),
        pytest.param({}, [{"cached": 30}], 70, id="an active zone's cache is not evicted for surplus"),
        pytest.param({}, [{"cached": 30, "quiet": True}], 100, id="a quiet zone's cache is"),
        pytest.param(
            {}, [{"reserved": 20, "lendable": 0, "cached": 30, "quiet": True}], 80, id="down to what it keeps to itself"
        ),
        pytest.param({"reserved": 25}, [{"cached": 100}], 25, id="a promise is kept from others' surplus cache"),
        pytest.param(
            {"reserved": 25},
            [{"reserved": 60, "cached": 100}],
            25,
            id="but what others hold within theirs stays",
        ),
        pytest.param(
            {"reserved": 25}, [{"in_use": 100}], 0, id="what requests use can only be preempted, which is not for here"
        ),
        pytest.param(
            {"reserved": 10, "cached": 8}, [{"in_use": 90}], 10, id="its own cache and the rest of its promise together"
        ),
        pytest.param(
            {"reserved": 10, "cached": 8}, [{"in_use": 82, "cached": 10}], 10, id="also if the rest is others' cache"
        ),
        pytest.param(
            {"reserved": 40},
            [{"in_use": 60}, {"reserved": 40, "cached": 40, "quiet": True}],
            40,
            id="what a quiet zone lends keeps a promise before anybody is preempted",
        ),
        pytest.param(
            {"reserved": 20, "cached": 5, "quiet": True}, [{"in_use": 95}], 5, id="its own cache does not count twice"
        ),
        pytest.param({"limit": 50, "in_use": 20, "cached": 30}, [], 30, id="at its limit it turns over its own cache"),
        pytest.param({"limit": 50, "in_use": 50}, [], 0, id="with all of its limit in use it waits"),
        pytest.param({"reserved": 10, "in_use": 10}, [{"in_use": 90}], 0, id="nothing free, no promise left: it waits"),
    ],
)
def test_takeable(mine, others, expected):
    assert takeable(mine, others) == expected


@pytest.mark.parametrize(
    ("mine", "lender", "expected"),
    [
        pytest.param({"priority": 1}, {"priority": 1}, 100, id="equal borrows from equal"),
        pytest.param({"priority": 2}, {"priority": 1}, 100, id="high borrows from low"),
        pytest.param({"priority": 0}, {"priority": 1}, 60, id="low does not borrow from high"),
        pytest.param({"priority": 0}, {"priority": 1, "borrowers": ANY}, 100, id="unless the lender lets it"),
        pytest.param(
            {"priority": 0}, {"priority": 1, "cached": 70}, 60, id="what high holds above its reservation low may take"
        ),
        pytest.param(
            {"priority": 0}, {"priority": 1, "cached": 30}, 60, id="what it caches within its reservation it may not"
        ),
        pytest.param(
            {"priority": 0, "reserved": 60},
            {"priority": 1, "cached": 100},
            60,
            id="within its own reservation a zone does not borrow: no priority keeps it off",
        ),
        pytest.param(None, {"priority": 0}, 100, id="a request from before the first zone borrows as priority 0"),
        pytest.param(None, {"priority": 1}, 60, id="and so not from priority 1"),
        pytest.param({"priority": 0}, {"priority": 1, "lendable": 10}, 60, id="locked and withheld do not count twice"),
    ],
)
def test_who_may_borrow(mine, lender, expected):
    assert takeable(mine, [{"reserved": 40, "quiet": True, **lender}]) == expected


def test_higher_priorities_are_distinguished():
    """Each lender keeps its reservation from zones of lower priority only."""
    lenders = [{"reserved": 10 * (priority + 1), "priority": priority, "quiet": True} for priority in range(4)]
    assert [takeable({"priority": priority}, lenders) for priority in (-1, 0, 1, 2, 3, 4)] == [0, 10, 30, 60, 100, 100]


def test_requests_from_before_zones_use_up_what_others_could_take():
    assert takeable({}, [], before_zones=70) == 30


def test_a_zone_with_overdue_loans_gets_what_is_its_own_and_no_more():
    core = Core()
    zone = core.zone("mine", reserved=30, in_use=10)
    zone.overdue = 5
    assert core.takeable(zone) == 20
    core.take(zone, 30)
    assert core.takeable(zone) == 0


def test_what_an_overdue_zone_is_entitled_to_must_be_there():
    core = Core()
    zone = core.zone("mine", reserved=30)
    zone.overdue = 5
    core.zone("other", in_use=90)
    assert core.takeable(zone) == 10


def test_a_request_in_flight_may_pass_a_limit_that_was_lowered_under_it():
    core = Core()
    zone = core.zone("mine", limit=20, in_use=20)
    assert core.takeable(zone) == 0
    assert core.takeable(zone, growing=True, peak=25) == 5


def test_a_peak_within_the_limit_bounds_nothing():
    core = Core()
    zone = core.zone("mine", limit=20, in_use=5)
    assert core.takeable(zone, peak=10) == 15


@pytest.mark.parametrize(
    ("mine", "other", "count", "expected"),
    [
        pytest.param({"limit": 10, "in_use": 5}, {}, 6, "limit", id="its own limit"),
        pytest.param({}, {"reserved": 60}, 50, "reserved", id="the blocks are free and promised to another"),
        pytest.param({}, {"reserved": 60, "cached": 60}, 50, "reserved", id="cached by whom they are promised to"),
        pytest.param({}, {"reserved": 60}, 100, "reserved", id="all that no request uses, and not one more"),
        pytest.param({"cached": 30}, {"in_use": 70}, 31, "in_use", id="more than no request uses"),
        pytest.param({"limit": 10, "in_use": 5}, {"in_use": 95}, 6, "limit", id="the limit before anything else"),
    ],
)
def test_why_a_zone_waits(mine, other, count, expected):
    core = Core()
    zone = core.zone("mine", **mine)
    core.zone("other", **other)
    assert count > core.takeable(zone)
    assert core.wait_reason(zone, count) == expected


def test_up_to_its_peak_it_is_not_a_lowered_limit_that_a_request_waits_for():
    core = Core()
    zone = core.zone("mine", limit=20, in_use=20)
    core.zone("other", in_use=75)
    assert core.wait_reason(zone, 10, peak=30) == "in_use"
    assert core.wait_reason(zone, 11, peak=30) == "limit"


def test_a_lender_of_higher_priority_that_wakes_withholds_its_reservation_once():
    core = Core()
    zone = core.zone("mine")
    gold = core.zone("gold", reserved=40, priority=1, quiet=True)
    assert core.takeable(zone) == 60
    core.tenancy.request_arrived(gold, 1.0)
    assert core.takeable(zone) == 60
    core.hold(gold, cached=40)
    assert core.takeable(zone) == 60


def test_a_limit_of_nothing_is_kept_as_any_other():
    nothing = Quota(reserved=0, limit=0, lendable=0)
    assert quota.takeable(nothing, 0, 0, free=10, reclaimable_elsewhere=0, spare=10) == 0
    assert quota.wait_reason(nothing, 0, 1, free=10, cached=0) == "limit"

    core = Core(10)
    zone = core.zone("mine", limit=0)
    core.zone("other", cached=10)
    assert core.ledger.totals.takeable(zone, 10) == 0
    assert core.ledger.wait_reason(zone, 1, 10) == "limit"
    assert evict_surplus_for(core.ledger, zone, 1, 0) == core.tenancy.evict_surplus_for(zone, 1, 0) == []
    core.tenancy.must_wait(zone, 1, 10)
    assert zone.wait_reason == "limit"


def test_what_is_spare_is_what_is_free_evictable_or_its_own_less_what_is_locked_or_withheld():
    assert quota.spare(1, free=20, evictable_elsewhere=300, locked_elsewhere=4000) == 321 - 4000
    assert quota.spare(1, free=20, evictable_elsewhere=300, locked_elsewhere=0, withheld_elsewhere=50) == 271


@given(
    reserved=st.integers(0, 20),
    lendable=st.integers(0, 20),
    in_use=st.integers(0, 30),
    cached=st.integers(0, 30),
    quiet=st.booleans(),
)
def test_the_parts_of_a_zone_are_what_each_rule_says(reserved, lendable, in_use, cached, quiet):
    promise = Quota(reserved=reserved, limit=60, lendable=min(lendable, reserved))
    held = in_use + cached
    surplus = quota.surplus(promise, held)
    evictable = quota.evictable(promise, in_use, cached) if quiet else 0

    assert quota.parts(promise, in_use, cached, quiet) == (
        quota.locked(promise, held, quiet),
        surplus,
        evictable,
        quota.reclaimable(cached, surplus, evictable),
    )
