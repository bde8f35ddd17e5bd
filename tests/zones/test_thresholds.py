"""How many blocks must become free before a denied request is looked at again: exactly as many as it needs."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tenantzone_runtime.zones.schedule.backoff import BackoffSet
from tests.zones.core import Core

MIN_STALE = 64
FREE = range(-300, 700)


@pytest.fixture
def core():
    return Core(1000)


@pytest.fixture
def backoff(core):
    return BackoffSet(core.ledger)


def place(account):
    return account.service, account.ticket


def first(backoff, free, *, is_running=True):
    return next(backoff.due(free, place, is_running=is_running), None)


def entries(backoff):
    return sum(map(len, backoff._thresholds.values()))


def threshold(backoff):
    """The fewest free blocks with which any zone is looked at."""
    return next(free for free in FREE if first(backoff, free) is not None)


@st.composite
def crowds(draw):
    """Zones of three tenants, and the blocks that the next request of the first asks for."""
    core = Core(200)
    zones = [
        core.zone(
            tenant,
            reserved=draw(st.integers(0, 60)),
            lendable=0 if draw(st.booleans()) else None,
            in_use=draw(st.integers(0 if tenant != "asks" else 1, 30)),
            cached=draw(st.integers(0, 30)),
            priority=draw(st.integers(0, 1)),
            weight=draw(st.integers(1, 3)),
            quiet=draw(st.booleans()),
            borrowers=draw(st.sampled_from(["SameOrHigherPriority", "AnyPriority"])),
        )
        for tenant in ("asks", "other", "third")
    ]
    return core, zones[0], draw(st.integers(1, 120))


@given(crowds())
def test_who_may_have_others_caches_waits_for_just_the_blocks_that_are_missing(crowd):
    core, zone, count = crowd
    totals = core.ledger.totals
    assume(totals.may_reclaim_surplus(zone, count, 0))
    backoff = BackoffSet(core.ledger)
    backoff.back_off(zone, count, 0, 0)
    backoff.line_up()
    others_cache = totals.surplus_cached_elsewhere(zone)
    assert threshold(backoff) == next(free for free in FREE if totals.spare(zone, free) + others_cache >= count)


@given(crowds())
def test_a_zone_limited_to_unpromised_blocks_waits_for_those_or_for_a_greater_share(crowd):
    core, zone, count = crowd
    totals = core.ledger.totals
    assume(not totals.may_reclaim_surplus(zone, count, 0))
    backoff = BackoffSet(core.ledger)
    backoff.back_off(zone, count, 0, 0)
    backoff.line_up()
    # The share of a zone that counts for no share now may be reached too early.
    assume(first(backoff, FREE[0]) is None)
    assert threshold(backoff) == next(free for free in FREE if totals.spare(zone, free) >= count)

    core.ledger.totals.promised -= 2000 * (zone.in_use + count)
    assert totals.may_reclaim_surplus(zone, count, 0)
    assert first(backoff, -300) is zone


def test_a_share_is_reached_when_it_reaches_what_the_zone_would_use(core, backoff):
    core.zone("heavy", weight=9)
    burst = core.zone("burst", weight=3, reserved=100, in_use=150)
    # Its share is a fourth of the unreserved blocks, 225, in addition to its own 100.
    backoff.back_off(burst, 176, 0, 0)
    backoff.line_up()
    assert first(backoff, -5000) is None
    core.zone("more", reserved=4, lendable=0, quiet=True)
    assert first(backoff, -5000) is None
    core.ledger.totals.promised -= 8
    assert core.ledger.totals.may_reclaim_surplus(burst, 176, 0)
    assert first(backoff, -5000) is burst


def test_a_request_longer_than_the_limit_may_come_up_to_its_peak(core, backoff):
    capped = core.zone("capped", limit=20, in_use=10)
    backoff.back_off(capped, 11, 20, 0)
    backoff.line_up()
    assert first(backoff, 1000) is None
    backoff.back_off(capped, 10, 20, 0)
    backoff.line_up()
    assert first(backoff, 1000) is capped
    backoff.back_off(capped, 15, 25, 0)
    backoff.line_up()
    assert first(backoff, 1000) is capped


def test_headroom_is_waited_for_only_while_something_runs(core, backoff):
    core.zone("busy", cached=30)
    burst = core.zone("burst")
    backoff.back_off(burst, 20, 0, 15)
    backoff.line_up()
    assert first(backoff, 4) is None
    assert first(backoff, 5) is burst
    assert first(backoff, 0, is_running=False) is burst


def test_all_that_miss_headroom_wait_in_one_line_and_all_that_wait_for_a_share_in_another(core, backoff):
    for priority in range(3):
        zone = core.zone(f"waits-{priority}", priority=priority)
        backoff.back_off(zone, 20, 0, 15)
        backoff.line_up()
    assert len(backoff._thresholds) == 1


def test_many_that_went_on_are_forgotten_and_no_waiting_zone_is(core, backoff):
    waiting = [core.zone(f"waits-{number}", in_use=1) for number in range(100)]
    for number, zone in enumerate(waiting):
        zone.account.service = float(number * 37 % 100)
        backoff.back_off(zone, 10 + number % 7, 0, 500)
    backoff.line_up()
    goes_on = core.zone("goes-on")
    for number in range(1000):
        backoff.back_off(goes_on, 20 + number % 5, 0, 500)
        backoff.line_up()
        assert entries(backoff) <= 2 * 101
    goes_on.backoff_ticket = 0

    found = []
    while (zone := first(backoff, 1000)) is not None:
        found.append(zone)
        zone.backoff_ticket = 0
    assert found == sorted(waiting, key=lambda zone: zone.account.service)
    assert entries(backoff) == 0


def test_few_that_went_on_are_not_worth_a_look(core, backoff):
    goes_on = core.zone("goes-on")
    for _ in range(MIN_STALE):
        backoff.back_off(goes_on, 20, 0, 500)
        backoff.line_up()
    assert entries(backoff) == MIN_STALE
    backoff.back_off(goes_on, 20, 0, 500)
    backoff.line_up()
    assert entries(backoff) == 1
    for _ in range(MIN_STALE - 1):
        backoff.back_off(goes_on, 20, 0, 500)
        backoff.line_up()
    assert entries(backoff) == MIN_STALE


def test_a_line_above_the_reached_one_is_tidied_without_looking_at_its_members(core, backoff):
    near, far = core.zone("near"), core.zone("far")
    backoff.back_off(near, 10, 0, 100)
    backoff.back_off(far, 20, 0, 100)
    backoff.line_up()
    near.backoff_ticket = 0
    assert first(backoff, 115) is None
    assert first(backoff, 119) is None
    assert first(backoff, 120) is far
