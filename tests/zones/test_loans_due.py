"""How a loan comes back: at its due time, after its grace time, or when the lender needs its blocks."""

import pytest

from tenantzone_runtime.zones.audit import Evicted, Repaid
from tests.zones.zoo import Zoo


@pytest.fixture
def zoo():
    return Zoo()


def test_a_loan_without_a_time_is_never_due(zoo):
    zoo.zone("lender", reserved=50, quiet=True)
    zoo.zone("borrower", in_use=70)
    zoo.tenancy.loans.settle(zoo.free)
    zoo.now = 1e9
    assert zoo.tenancy.loans.due() == []


def test_at_the_due_time_what_is_only_cached_comes_back_by_itself(zoo):
    zoo.zone("lender", reserved=50, quiet=True, max_loan=60.0)
    borrower = zoo.zone("borrower", cached=70)
    assert zoo.upkeep(0.0) == []
    assert zoo.upkeep(59.9) == []
    assert zoo.upkeep(60.0) == [("borrower", 20)]
    assert (borrower.held, borrower.overdue) == (50, 0)
    told = [event for event in zoo.ledger.trail.collect() if event.kind in ("repaid", "evicted")]
    assert told == [
        Repaid("lender", "borrower", 20, after_seconds=60.0, overdue=True),
        Evicted("borrower", 20, "due", "lender"),
    ]


def test_what_is_in_use_is_overdue_and_the_borrower_cannot_grow(zoo):
    zoo.zone("lender", reserved=50, quiet=True, max_loan=60.0)
    borrower = zoo.zone("borrower", reserved=10, in_use=75)
    zoo.upkeep(0.0)
    assert zoo.takeable(borrower) == 25
    zoo.upkeep(60.0)
    assert borrower.overdue == 25
    assert zoo.takeable(borrower) == 0


def test_what_is_overdue_is_the_sum_of_all_loans_past_their_time(zoo):
    zoo.zone("first", reserved=20, quiet=True, max_loan=60.0)
    zoo.zone("second", reserved=20, quiet=True, max_loan=60.0)
    borrower = zoo.zone("borrower", in_use=90)
    zoo.upkeep(0.0)
    zoo.upkeep(60.0)
    assert borrower.overdue == 30


def test_what_the_borrower_is_entitled_to_it_still_gets(zoo):
    zoo.zone("lender", reserved=50, quiet=True, max_loan=60.0)
    zoo.zone("borrower", reserved=10, in_use=75)
    zoo.upkeep(0.0)
    zoo.upkeep(60.0)
    borrower = zoo.ledger.zones["borrower"]
    zoo.release(borrower, dropped=70)
    assert zoo.takeable(borrower) == 5
    zoo.upkeep(60.0)
    assert borrower.overdue == 0
    assert zoo.takeable(borrower) == 95


def test_after_the_grace_time_the_borrowers_requests_must_yield_until_the_loan_is_over(zoo):
    zoo.zone("lender", reserved=50, quiet=True, max_loan=60.0, grace=30.0)
    borrower = zoo.zone("borrower", in_use=70)
    zoo.upkeep(0.0)
    zoo.upkeep(60.0)
    assert zoo.tenancy.past_grace() == []
    zoo.upkeep(89.9)
    assert zoo.tenancy.past_grace() == []
    zoo.upkeep(90.0)
    assert zoo.tenancy.past_grace() == [borrower]
    zoo.release(borrower, kept=25)
    assert zoo.settle_evictions(zoo.tenancy.collect_due(zoo.free)) == [("borrower", 20)]
    assert zoo.tenancy.past_grace() == []
    assert borrower.held == 50


def test_a_lender_that_needs_its_blocks_does_not_wait_for_the_due_time(zoo):
    lender = zoo.zone("lender", reserved=50, quiet=True, max_loan=3600.0)
    zoo.zone("borrower", cached=100)
    zoo.tenancy.loans.settle(zoo.free)
    zoo.tenancy.request_arrived(lender, 1.0)
    assert zoo.takeable(lender) == 50


def lent(zoo):
    return {(loan.lender.spec.tenant, loan.borrower.spec.tenant): loan.blocks for loan in zoo.tenancy.loans}


def test_another_lender_takes_a_loan_over_that_is_due(zoo):
    zoo.zone("first", reserved=30, quiet=True, max_loan=10.0, active=1.0)
    zoo.zone("second", reserved=30, quiet=True, active=2.0)
    borrower = zoo.zone("borrower", in_use=60, active=3.0)
    zoo.upkeep(0.0)
    assert lent(zoo) == {("first", "borrower"): 20}
    assert zoo.upkeep(10.0) == []
    assert lent(zoo) == {("second", "borrower"): 20}
    assert borrower.overdue == 0


def test_it_takes_over_what_it_offers_and_to_whom(zoo):
    zoo.zone("first", reserved=30, quiet=True, max_loan=10.0, active=1.0)
    zoo.zone("second", reserved=12, quiet=True, active=2.0)
    zoo.zone("above", reserved=20, quiet=True, priority=1, active=2.0)
    borrower = zoo.zone("borrower", in_use=60, active=3.0)
    zoo.upkeep(0.0)
    zoo.upkeep(10.0)
    assert lent(zoo) == {("first", "borrower"): 10, ("second", "borrower"): 12}
    assert borrower.overdue == 10


def test_nobody_takes_a_loan_over_for_no_time_at_all(zoo):
    zoo.zone("first", reserved=30, quiet=True, max_loan=10.0, active=1.0)
    zoo.zone("second", reserved=30, quiet=True, max_loan=0.0, active=2.0)
    zoo.zone("borrower", in_use=60, active=3.0)
    zoo.upkeep(0.0)
    zoo.upkeep(10.0)
    assert lent(zoo) == {("first", "borrower"): 20}


def test_however_short_the_time_is_for_which_a_lender_lends_it_takes_a_loan_over(zoo):
    zoo.zone("first", reserved=30, quiet=True, max_loan=10.0, active=1.0)
    zoo.zone("second", reserved=30, quiet=True, max_loan=0.5, active=2.0)
    borrower = zoo.zone("borrower", in_use=60, active=3.0)
    zoo.upkeep(0.0)
    zoo.upkeep(10.0)
    assert lent(zoo) == {("second", "borrower"): 20}
    assert borrower.overdue == 0


def test_what_is_given_back_ends_the_loan_that_is_due_first(zoo):
    zoo.zone("first", reserved=30, quiet=True, max_loan=10.0, active=1.0)
    zoo.zone("second", reserved=30, quiet=True, active=2.0)
    borrower = zoo.zone("borrower", in_use=100, active=3.0)
    zoo.upkeep(0.0)
    assert lent(zoo) == {("first", "borrower"): 30, ("second", "borrower"): 30}
    zoo.upkeep(10.0)
    zoo.release(borrower, dropped=25)
    zoo.tenancy.loans.settle(zoo.free)
    assert lent(zoo) == {("first", "borrower"): 5, ("second", "borrower"): 30}


@pytest.mark.parametrize(("older", "younger"), [("hasty", "patient"), ("patient", "hasty")])
def test_what_anybody_gives_back_to_the_free_blocks_ends_the_loan_that_is_past_its_grace(zoo, older, younger):
    grace = {"hasty": 1.0, "patient": 99.0}
    zoo.zone(older, reserved=40, quiet=True, max_loan=1.0, grace=grace[older])
    zoo.zone("borrower", in_use=80)
    other = zoo.zone("other", priority=1, in_use=20)
    zoo.upkeep(0.0)
    zoo.zone(younger, reserved=20, quiet=True, max_loan=1.0, grace=grace[younger])
    zoo.upkeep(0.5)
    before = lent(zoo)
    assert before == {(older, "borrower"): 40, (younger, "borrower"): 20}
    zoo.upkeep(3.0)
    zoo.release(other, dropped=5)
    zoo.tenancy.loans.settle(zoo.free)
    assert lent(zoo) == before | {("hasty", "borrower"): before["hasty", "borrower"] - 5}


@pytest.mark.parametrize("since_when", [0.0, 1.0], ids=["the older one", "the younger one"])
def test_what_a_borrower_gives_back_of_all_that_it_borrowed_ends_the_loan_that_is_due(zoo, since_when):
    zoo.zone("busy", reserved=60, in_use=60)
    timed = zoo.zone("timed", reserved=20, quiet=True, max_loan=5.0, grace=99.0)
    untimed = zoo.zone("untimed", reserved=20, quiet=True)
    younger = timed if since_when else untimed
    zoo.take(younger, 20)
    borrower = zoo.zone("borrower", in_use=20)
    zoo.upkeep(0.0)
    zoo.release(younger, dropped=20)
    zoo.take(borrower, 20)
    zoo.upkeep(1.0)
    zoo.now = 7.0
    zoo.release(borrower, dropped=15)
    zoo.tenancy.loans.settle(zoo.free)
    assert lent(zoo) == {("timed", "borrower"): 5, ("untimed", "borrower"): 20}
    assert zoo.events("repaid") == [Repaid("timed", "borrower", 15, after_seconds=7.0 - since_when, overdue=True)]


def test_before_requests_yield_what_others_merely_cache_is_given_back(zoo):
    zoo.zone("lender", reserved=50, quiet=True, max_loan=10.0, grace=5.0)
    borrower = zoo.zone("borrower", in_use=45)
    other = zoo.zone("other", reserved=5, cached=20)
    zoo.upkeep(0.0)
    zoo.upkeep(10.0)
    owed = borrower.overdue
    assert owed > 0
    zoo.now = 15.0
    assert zoo.settle_evictions(zoo.tenancy.cover_loans(borrower)) == [("other", owed)]
    zoo.settle_evictions(zoo.tenancy.collect_due(zoo.free))
    assert zoo.tenancy.past_grace() == []
    assert len(other.cached) == 20 - owed


def past_its_grace(zoo, *, priority=0):
    """A borrower whose loan is past its grace, and who else caches on the reservation of a lender of this priority."""
    zoo.zone("lender", reserved=20, quiet=True, max_loan=5.0, grace=1.0)
    zoo.zone("other", reserved=40, quiet=True, priority=priority)
    zoo.zone("busy", reserved=40, in_use=40)
    borrower = zoo.zone("borrower", in_use=20)
    cache = zoo.zone("cache", priority=5, cached=20, in_use=20)
    zoo.upkeep(0.0)
    zoo.upkeep(5.0)
    zoo.now = 6.0
    assert zoo.tenancy.past_grace() == [borrower]
    return borrower, cache


def test_no_cache_goes_that_stands_on_what_the_borrower_can_not_have(zoo):
    borrower, cache = past_its_grace(zoo, priority=5)
    assert zoo.tenancy.cover_loans(borrower) == []
    assert len(cache.cached) == 20


def test_no_cache_goes_that_stands_on_what_the_same_lender_has_lent(zoo):
    zoo.zone("lender", reserved=60, quiet=True, max_loan=5.0, grace=1.0)
    zoo.zone("busy", reserved=40, in_use=40)
    borrower = zoo.zone("borrower", in_use=20)
    zoo.upkeep(0.0)
    zoo.now = 3.0
    zoo.zone("cache", priority=5, cached=20, in_use=20)
    zoo.upkeep(6.0)
    assert lent(zoo) == {("lender", "borrower"): 20, ("lender", "cache"): 40}
    assert zoo.tenancy.past_grace() == [borrower]
    assert zoo.tenancy.cover_loans(borrower) == []


def test_a_cache_goes_that_stands_on_what_the_borrower_can_have(zoo):
    borrower, _ = past_its_grace(zoo)
    assert lent(zoo) == {("lender", "borrower"): 20, ("other", "cache"): 40}
    assert zoo.settle_evictions(zoo.tenancy.cover_loans(borrower)) == [("cache", 20)]
    zoo.tenancy.collect_due(zoo.free)
    assert lent(zoo) == {("other", "borrower"): 20, ("other", "cache"): 20}
    assert zoo.tenancy.past_grace() == []


def test_a_loan_that_is_due_is_not_taken_over_by_another_that_is_due(zoo):
    lender = zoo.zone("lender", reserved=20, quiet=True, max_loan=5.0, grace=10.0, in_use=10)
    zoo.zone("patient", reserved=10, quiet=True, max_loan=10.0, grace=1000.0, priority=1)
    rest = zoo.zone("rest", reserved=70, in_use=60)
    borrower = zoo.zone("borrower", priority=1, in_use=20)
    zoo.upkeep(0.0)
    zoo.upkeep(9.0)
    assert lent(zoo) == {("lender", "borrower"): 10, ("patient", "borrower"): 10}
    # The lender could lend ten more now; but what it lends the borrower is due already.
    zoo.release(lender, dropped=10)
    zoo.take(rest, 10)
    zoo.upkeep(10.0)
    assert lent(zoo) == {("lender", "borrower"): 10, ("patient", "borrower"): 10}
    assert borrower.overdue == 20


@pytest.mark.parametrize("since_when", [0.0, 10.0], ids=["an older one", "a younger one"])
def test_what_a_preemption_gives_back_ends_the_loan_that_is_past_its_grace(zoo, since_when):
    borrower = zoo.zone("borrower")
    zoo.zone("busy", reserved=80, in_use=80)
    zoo.zone(
        "hasty" if since_when else "patient", reserved=10, quiet=True, max_loan=0.0, grace=10.0 if since_when else 1e6
    )
    zoo.take(borrower, 10)
    zoo.upkeep(0.0)
    zoo.zone(
        "patient" if since_when else "hasty", reserved=10, quiet=True, max_loan=0.0, grace=1e6 if since_when else 10.0
    )
    zoo.take(borrower, 10)
    zoo.upkeep(since_when)
    zoo.upkeep(20.0)
    assert lent(zoo) == {("hasty", "borrower"): 10, ("patient", "borrower"): 10}
    zoo.release(borrower, dropped=4)
    zoo.upkeep(20.0)
    assert lent(zoo) == {("hasty", "borrower"): 6, ("patient", "borrower"): 10}
