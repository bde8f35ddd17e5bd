"""Whose cached blocks are evicted, and how many, before requests are preempted for a loan past its grace."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tenantzone_runtime.zones.blocks.eviction import cover_loans
from tenantzone_runtime.zones.config import configure
from tests.zones.core import Core
from tests.zones.small_engine import SmallEngine


@pytest.fixture
def core():
    return Core()


def lent(core):
    return {(loan.lender.spec.tenant, loan.borrower.spec.tenant): loan.blocks for loan in core.tenancy.loans}


def no_zone(zone):
    """Takes over no loan."""
    return False


def covered(core, borrower):
    """Evicts cached blocks for the borrower and settles the loans. Returns how many blocks each tenant lost."""
    gone = core.settle_evictions(core.tenancy.cover_loans(borrower))
    core.settle_evictions(core.tenancy.collect_due(core.free))
    return gone


def caches(core):
    """The caches, sorted; each name contains the blocks above its reservation and the cached blocks."""
    core.zone("active-gold-6", priority=1, cached=6, active=1.0)
    core.zone("promised-0", priority=-9, reserved=20, in_use=5, cached=15)
    core.zone("active-late-5", reserved=10, cached=15, active=8.0)
    core.zone("in-use-0", priority=-9, in_use=5)
    core.zone("active-early-4", reserved=2, cached=6, active=2.0)
    core.zone("active-low-3", priority=-1, in_use=10, cached=3, active=9.0)
    core.zone("quiet-gold-2", priority=9, cached=2, quiet=True)


@pytest.mark.parametrize("owed", [1, 2, 3, 9, 10, 14, 20, 21])
def test_the_quiet_give_first_then_the_lowest_priority_and_the_least_recently_active(core, owed):
    borrower = core.zone("borrower", in_use=5, cached=5)
    caches(core)
    evicted = cover_loans(core.ledger, borrower, owed, lambda zone: 100, no_zone)
    left, expected = owed, []
    for name in ("quiet-gold-2", "active-low-3", "active-early-4", "active-late-5", "active-gold-6"):
        if blocks := min(left, int(name[-1])):
            expected.append((name, blocks))
            left -= blocks
    assert [(zone.spec.tenant, len(blocks)) for zone, blocks in evicted] == expected


def test_each_gives_no_more_than_goes_to_the_borrower(core):
    borrower = core.zone("borrower", in_use=10)
    core.zone("one", cached=20)
    core.zone("none", cached=20)
    core.zone("half", cached=20)
    share = {"one": 1, "none": 0, "half": 10}
    evicted = cover_loans(core.ledger, borrower, 15, lambda zone: share[zone.spec.tenant], no_zone)
    assert [(zone.spec.tenant, len(blocks)) for zone, blocks in evicted] == [("one", 1), ("half", 10)]


def test_what_goes_is_reported_as_due_and_for_whom(core):
    borrower = core.zone("borrower", in_use=10, priority=1)
    cache = core.zone("cache", cached=20)
    cover_loans(core.ledger, borrower, 7, lambda zone: 100, no_zone)
    (reported,) = core.events("evicted")
    assert (reported.zone, reported.blocks, reported.reason, reported.beneficiary) == ("cache", 7, "due", "borrower")
    assert cache.counters.evictions == {("due", "higher_priority"): 7}


def test_a_zone_that_owes_nothing_costs_no_zone_a_block(core):
    core.zone("cache", priority=1, cached=50)
    debtless = core.zone("debtless")
    assert core.tenancy.cover_loans(debtless) == []
    core.zone("lender", reserved=40, quiet=True, max_loan=5.0, grace=10.0)
    borrower = core.zone("borrower", in_use=20)
    core.upkeep(0.0)
    core.upkeep(14.9)
    assert borrower.overdue == 10
    assert core.tenancy.cover_loans(borrower) == []


def test_as_much_is_given_as_is_past_its_grace_and_no_more(core):
    core.zone("hasty", reserved=5, quiet=True, max_loan=5.0, grace=1.0, priority=-2)
    core.zone("patient", reserved=10, quiet=True, max_loan=5.0, grace=100.0, priority=-1)
    cache = core.zone("cache", priority=1, reserved=25, cached=75)
    borrower = core.zone("borrower", in_use=25)
    core.upkeep(0.0)
    core.upkeep(6.0)
    assert borrower.overdue == 15
    assert covered(core, borrower) == [("cache", 5)]
    assert (borrower.borrowed, core.tenancy.past_grace()) == (10, [])
    assert cache.held == 70


def test_what_the_borrower_itself_caches_is_not_taken_for_others(core):
    core.zone("lender", reserved=30, quiet=True, max_loan=5.0, grace=1.0)
    borrower = core.zone("borrower", in_use=90)
    core.zone("cache", cached=10)
    core.upkeep(0.0)
    core.upkeep(6.0)
    core.release(borrower, kept=40)
    assert [(zone.spec.tenant, len(blocks)) for zone, blocks in core.tenancy.cover_loans(borrower)] == [("cache", 10)]


def stands_on(core, *, first, second):
    """A borrower with 40 blocks past their grace, and a cache that stands on unreserved blocks and on two reservations:
    ten blocks of each, and longer on the first."""
    core.zone("lender", reserved=40, quiet=True, max_loan=5.0, grace=1.0, priority=-1)
    borrower = core.zone("borrower", in_use=40)
    core.zone("busy", reserved=35, in_use=35)
    core.upkeep(0.0)
    core.upkeep(1.0)
    core.zone("first", reserved=10, quiet=True, **first)
    cache = core.zone("cache", priority=5, cached=15)
    core.upkeep(2.0)
    core.zone("second", reserved=10, quiet=True, **second)
    core.hold(cache, cached=core.free)
    core.upkeep(6.0)
    assert lent(core) == {("lender", "borrower"): 40, ("first", "cache"): 10, ("second", "cache"): 10}
    return borrower, cache


def test_what_stands_on_no_reservation_and_on_those_that_the_borrower_can_have_goes(core):
    borrower, cache = stands_on(core, first={}, second={})
    assert covered(core, borrower) == [("cache", 25)]
    assert lent(core) == {("lender", "borrower"): 15, ("first", "borrower"): 10, ("second", "borrower"): 10}
    assert cache.held == 0


@pytest.mark.parametrize(
    "strict",
    [
        pytest.param({"priority": 1}, id="lends to higher priorities"),
        pytest.param({"lendable": 0}, id="lends nothing"),
        pytest.param({"lendable": 9}, id="lends less than stands on it"),
    ],
)
def test_a_cache_that_ends_first_a_loan_that_is_of_no_use_to_the_borrower_keeps_what_is_under_it(core, strict):
    borrower, _ = stands_on(core, first={}, second=strict)
    assert covered(core, borrower) == [("cache", 5)]
    assert lent(core) == {("lender", "borrower"): 35, ("first", "cache"): 10, ("second", "cache"): 10}


def test_what_stands_on_a_lender_from_which_the_borrower_has_some_already_goes_too(core):
    core.zone("hasty", reserved=20, quiet=True, max_loan=5.0, grace=1.0, priority=-1)
    core.zone("first", reserved=30, quiet=True)
    core.zone("busy", reserved=45, in_use=45)
    borrower = core.zone("borrower", in_use=30)
    core.upkeep(0.0)
    core.zone("cache", priority=5, cached=25)
    core.upkeep(1.0)
    assert lent(core) == {("hasty", "borrower"): 20, ("first", "borrower"): 10, ("first", "cache"): 20}
    core.upkeep(6.0)
    assert covered(core, borrower) == [("cache", 20)]
    assert lent(core) == {("first", "borrower"): 25, ("first", "cache"): 5}


def test_of_two_borrowers_each_costs_others_what_it_owes_itself(core):
    core.zone("hasty", reserved=20, quiet=True, max_loan=5.0, grace=1.0)
    one, other = core.zone("one", in_use=12), core.zone("other", in_use=8)
    core.zone("cache", priority=1, cached=80)
    core.upkeep(0.0)
    core.upkeep(6.0)
    assert core.tenancy.past_grace() == [one, other]
    assert [len(blocks) for _, blocks in core.tenancy.cover_loans(other)] == [8]
    assert [len(blocks) for _, blocks in core.tenancy.cover_loans(one)] == [12]


@pytest.mark.parametrize(("due", "goes"), [("of no use", 0), ("of use", 10)])
def test_of_what_a_zone_borrows_itself_the_loan_that_is_due_ends_first(core, due, goes):
    core.zone("hasty", reserved=20, quiet=True, max_loan=5.0, grace=1.0, priority=-1)
    borrower = core.zone("borrower", in_use=20)
    core.zone("busy", reserved=60, in_use=60)
    terms = {"of no use": {"priority": 1}, "of use": {}}
    core.zone("first", reserved=10, quiet=True, max_loan=5.0, grace=100.0, **terms[due])
    cache = core.zone("cache", priority=5, in_use=10)
    core.upkeep(0.0)
    del terms[due]
    core.zone("second", reserved=10, quiet=True, **terms.popitem()[1])
    core.take(cache, 10)
    core.upkeep(1.0)
    assert lent(core) == {("hasty", "borrower"): 20, ("first", "cache"): 10, ("second", "cache"): 10}
    core.upkeep(6.0)
    core.release(cache, kept=20)
    assert core.tenancy.loans.covers(cache, borrower) == goes


@st.composite
def crowds(draw):
    """All blocks are held: one zone borrows past its grace; others lend to caching zones without a time limit."""
    core = Core(100)
    core.zone("hasty", reserved=20, quiet=True, max_loan=5.0, grace=1.0, priority=-1)
    unreserved = draw(st.integers(0, 10))
    for number in range(2):
        reserved = draw(st.integers(0, 20))
        core.zone(
            f"lender-{number}",
            reserved=reserved,
            lendable=draw(st.integers(0, reserved)),
            priority=draw(st.integers(-1, 1)),
            quiet=draw(st.booleans()),
            cached=draw(st.integers(0, reserved)),
            borrowers=draw(st.sampled_from(["SameOrHigherPriority", "AnyPriority"])),
        )
    busy = 100 - unreserved - core.ledger.totals.promised
    core.zone("busy", reserved=busy, in_use=busy)
    borrower = core.zone("borrower", in_use=20)
    for number in range(2):
        priority, in_use = draw(st.integers(-1, 1)), draw(st.integers(0, min(5, core.free)))
        cached = core.free - in_use if number else draw(st.integers(0, core.free - in_use))
        quiet = draw(st.booleans())
        core.zone(f"cache-{number}", priority=priority, in_use=in_use, cached=cached, quiet=quiet, active=1.0)
    core.upkeep(0.0)
    core.upkeep(6.0)
    return core, borrower


@given(crowds())
def test_no_cache_goes_in_vain(crowd):
    core, borrower = crowd
    assume(core.tenancy.past_grace() == [borrower])
    owed = sum(loan.blocks for loan in core.tenancy.loans if loan.is_past_grace(core.now))
    gone = sum(blocks for _, blocks in covered(core, borrower))
    assert owed - gone == sum(loan.blocks for loan in core.tenancy.loans if loan.is_past_grace(core.now))


def test_of_loans_that_are_due_the_one_that_is_past_its_grace_is_taken_over_first(core):
    core.zone("busy", reserved=60, in_use=60)
    borrower = core.zone("borrower", in_use=20)
    core.zone("patient", reserved=10, quiet=True, max_loan=0.0, grace=1000.0)
    core.zone("hasty", reserved=10, quiet=True, max_loan=0.0, grace=10.0)
    core.zone("other", reserved=20, quiet=True)
    cache = core.zone("cache", priority=5, cached=20)
    core.upkeep(0.0)
    core.upkeep(10.0)
    assert lent(core) == {("patient", "borrower"): 10, ("hasty", "borrower"): 10, ("other", "cache"): 20}
    assert covered(core, borrower) == [("cache", 10)]
    assert core.tenancy.past_grace() == []
    assert lent(core) == {("patient", "borrower"): 10, ("other", "borrower"): 10, ("other", "cache"): 10}
    assert cache.held == 10


def test_a_cache_stays_that_stands_on_a_lender_who_lends_for_no_time_any_more(core):
    borrower, _ = stands_on(core, first={}, second={})
    second = core.ledger.zones["second"]
    terms = second.spec.lending.model_copy(update={"max_loan_seconds": 0.0})
    configure.change_spec(core.ledger, second, replace(second.spec, lending=terms))
    assert covered(core, borrower) == [("cache", 5)]


def with_lent_and_cached_blocks(core, **terms):
    """A borrower with five blocks past their grace, and a zone that caches all 30 blocks of its reservation.

    That zone lends 20 of them without a time limit, unless ``terms`` say otherwise.
    """
    core.zone("strict", reserved=20, lendable=0, quiet=True, max_loan=0.0, grace=0.0)
    lender = core.zone("lender", cached=30, **{"reserved": 30, "lendable": 20, "quiet": True} | terms)
    borrower = core.zone("borrower", in_use=55)
    core.upkeep(0.0)
    assert lent(core) == {("strict", "borrower"): 5}
    return lender, borrower


def test_what_a_quiet_zone_lends_and_caches_goes_before_requests_yield(core):
    lender, borrower = with_lent_and_cached_blocks(core)
    assert covered(core, borrower) == [("lender", 5)]
    assert lent(core) == {("lender", "borrower"): 5}
    assert (core.tenancy.past_grace(), borrower.overdue, lender.held, core.free) == ([], 0, 25, 20)


@pytest.mark.parametrize(
    ("terms", "goes"),
    [
        pytest.param({"quiet": False}, 0, id="does not lend now"),
        pytest.param({"lendable": 0}, 0, id="lends nothing"),
        pytest.param({"lendable": 3}, 3, id="lends less than is owed"),
        pytest.param({"priority": 1}, 0, id="lends to higher priorities"),
        pytest.param({"priority": 1, "borrowers": "AnyPriority"}, 5, id="lends to any priority"),
        pytest.param({"max_loan": 0.0}, 0, id="lends for no time"),
    ],
)
def test_only_as_much_of_a_reservation_goes_as_is_lent_to_the_borrower(core, terms, goes):
    lender, borrower = with_lent_and_cached_blocks(core, **terms)
    assert sum(blocks for _, blocks in covered(core, borrower)) == goes
    assert borrower.overdue == 5 - goes
    assert lender.held == 30 - goes


def test_what_is_cached_above_reservations_goes_before_what_a_quiet_zone_lends(core):
    core.zone("strict", reserved=20, lendable=0, quiet=True, max_loan=0.0, grace=0.0)
    core.zone("lender", reserved=30, cached=30, quiet=True)
    cache = core.zone("cache", priority=1, cached=3)
    borrower = core.zone("borrower", in_use=52)
    core.upkeep(0.0)
    assert lent(core) == {("strict", "borrower"): 5}
    assert covered(core, borrower) == [("cache", 3)]
    assert covered(core, borrower) == [("lender", 2)]
    assert (core.tenancy.past_grace(), cache.held) == ([], 0)


def test_what_a_lender_caches_above_what_it_lends_goes_with_it(core):
    """Its blocks go in one order: a caching zone has the blocks that are of no use to the borrower last."""
    core.zone("strict", reserved=20, lendable=0, quiet=True, max_loan=0.0, grace=0.0)
    core.zone("useless", reserved=2, lendable=0, quiet=True, priority=-2)
    core.zone("lender", reserved=30, cached=32, quiet=True, priority=-1)
    borrower = core.zone("borrower", in_use=53)
    core.upkeep(0.0)
    assert lent(core) == {("useless", "lender"): 2, ("strict", "borrower"): 5}
    assert covered(core, borrower) == [("lender", 7)]
    assert lent(core) == {("lender", "borrower"): 5}


def test_a_request_goes_on_with_what_a_quiet_zone_lends_and_caches(core):
    _, borrower = with_lent_and_cached_blocks(core)
    engine = SmallEngine(core)
    core.release(borrower, dropped=55)
    core.upkeep(1.0)
    assert lent(core) == {}
    work = engine.run(borrower, 55)
    core.upkeep(2.0)
    engine.step()
    assert engine.is_running(work)
    assert engine.preempted == []
    assert lent(core) == {("lender", "borrower"): 5}
