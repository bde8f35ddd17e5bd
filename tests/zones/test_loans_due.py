"""How a loan is returned: when it is due, after its grace time, or when the lender needs its blocks."""

import pytest

from tenantzone_runtime.zones.audit.events import Evicted, Repaid
from tests.zones.core import Core


@pytest.fixture
def core():
    return Core()


def test_a_loan_without_a_time_is_never_due(core):
    core.zone("lender", reserved=50, quiet=True)
    core.zone("borrower", in_use=70)
    core.tenancy.loans.settle(core.free)
    core.now = 1e9
    assert core.tenancy.loans.due() == []


def test_at_the_due_time_blocks_that_are_only_cached_come_back_without_a_request(core):
    core.zone("lender", reserved=50, quiet=True, max_loan=60.0)
    borrower = core.zone("borrower", cached=70)
    assert core.upkeep(0.0) == []
    assert core.upkeep(59.9) == []
    assert core.upkeep(60.0) == [("borrower", 20)]
    assert (borrower.held, borrower.overdue) == (50, 0)
    reported = [event for event in core.ledger.trail.collect() if event.kind in ("repaid", "evicted")]
    assert reported == [
        Repaid("lender", "borrower", 20, after_seconds=60.0, overdue=True),
        Evicted("borrower", 20, "due", "lender"),
    ]


def test_what_is_in_use_is_overdue_and_the_borrower_cannot_grow(core):
    core.zone("lender", reserved=50, quiet=True, max_loan=60.0)
    borrower = core.zone("borrower", reserved=10, in_use=75)
    core.upkeep(0.0)
    assert core.takeable(borrower) == 25
    core.upkeep(60.0)
    assert borrower.overdue == 25
    assert core.takeable(borrower) == 0


def test_what_is_overdue_is_the_sum_of_all_loans_past_their_time(core):
    core.zone("first", reserved=20, quiet=True, max_loan=60.0)
    core.zone("second", reserved=20, quiet=True, max_loan=60.0)
    borrower = core.zone("borrower", in_use=90)
    core.upkeep(0.0)
    core.upkeep(60.0)
    assert borrower.overdue == 30


def test_what_the_borrower_is_entitled_to_it_still_gets(core):
    core.zone("lender", reserved=50, quiet=True, max_loan=60.0)
    core.zone("borrower", reserved=10, in_use=75)
    core.upkeep(0.0)
    core.upkeep(60.0)
    borrower = core.ledger.zones["borrower"]
    core.release(borrower, dropped=70)
    assert core.takeable(borrower) == 5
    core.upkeep(60.0)
    assert borrower.overdue == 0
    assert core.takeable(borrower) == 95


def test_after_the_grace_time_the_borrowers_requests_must_yield_until_the_loan_is_over(core):
    core.zone("lender", reserved=50, quiet=True, max_loan=60.0, grace=30.0)
    borrower = core.zone("borrower", in_use=70)
    core.upkeep(0.0)
    core.upkeep(60.0)
    assert core.tenancy.past_grace() == []
    core.upkeep(89.9)
    assert core.tenancy.past_grace() == []
    core.upkeep(90.0)
    assert core.tenancy.past_grace() == [borrower]
    core.release(borrower, kept=25)
    assert core.settle_evictions(core.tenancy.collect_due(core.free)) == [("borrower", 20)]
    assert core.tenancy.past_grace() == []
    assert borrower.held == 50


def test_a_lender_that_needs_its_blocks_does_not_wait_for_the_due_time(core):
    lender = core.zone("lender", reserved=50, quiet=True, max_loan=3600.0)
    core.zone("borrower", cached=100)
    core.tenancy.loans.settle(core.free)
    core.tenancy.request_arrived(lender, 1.0)
    assert core.takeable(lender) == 50


def lent(core):
    return {(loan.lender.spec.tenant, loan.borrower.spec.tenant): loan.blocks for loan in core.tenancy.loans}


def test_another_lender_takes_a_loan_over_that_is_due(core):
    core.zone("first", reserved=30, quiet=True, max_loan=10.0, active=1.0)
    core.zone("second", reserved=30, quiet=True, active=2.0)
    borrower = core.zone("borrower", in_use=60, active=3.0)
    core.upkeep(0.0)
    assert lent(core) == {("first", "borrower"): 20}
    assert core.upkeep(10.0) == []
    assert lent(core) == {("second", "borrower"): 20}
    assert borrower.overdue == 0


def test_it_takes_over_what_it_offers_and_to_whom(core):
    core.zone("first", reserved=30, quiet=True, max_loan=10.0, active=1.0)
    core.zone("second", reserved=12, quiet=True, active=2.0)
    core.zone("above", reserved=20, quiet=True, priority=1, active=2.0)
    borrower = core.zone("borrower", in_use=60, active=3.0)
    core.upkeep(0.0)
    core.upkeep(10.0)
    assert lent(core) == {("first", "borrower"): 10, ("second", "borrower"): 12}
    assert borrower.overdue == 10


def test_no_zone_takes_a_loan_over_for_no_time_at_all(core):
    core.zone("first", reserved=30, quiet=True, max_loan=10.0, active=1.0)
    core.zone("second", reserved=30, quiet=True, max_loan=0.0, active=2.0)
    core.zone("borrower", in_use=60, active=3.0)
    core.upkeep(0.0)
    core.upkeep(10.0)
    assert lent(core) == {("first", "borrower"): 20}


def test_however_short_the_time_is_for_which_a_lender_lends_it_takes_a_loan_over(core):
    core.zone("first", reserved=30, quiet=True, max_loan=10.0, active=1.0)
    core.zone("second", reserved=30, quiet=True, max_loan=0.5, active=2.0)
    borrower = core.zone("borrower", in_use=60, active=3.0)
    core.upkeep(0.0)
    core.upkeep(10.0)
    assert lent(core) == {("second", "borrower"): 20}
    assert borrower.overdue == 0


def test_what_is_given_back_ends_the_loan_that_is_due_first(core):
    core.zone("first", reserved=30, quiet=True, max_loan=10.0, active=1.0)
    core.zone("second", reserved=30, quiet=True, active=2.0)
    borrower = core.zone("borrower", in_use=100, active=3.0)
    core.upkeep(0.0)
    assert lent(core) == {("first", "borrower"): 30, ("second", "borrower"): 30}
    core.upkeep(10.0)
    core.release(borrower, dropped=25)
    core.tenancy.loans.settle(core.free)
    assert lent(core) == {("first", "borrower"): 5, ("second", "borrower"): 30}


@pytest.mark.parametrize(("older", "younger"), [("hasty", "patient"), ("patient", "hasty")])
def test_what_anybody_gives_back_to_the_free_blocks_ends_the_loan_that_is_past_its_grace(core, older, younger):
    grace = {"hasty": 1.0, "patient": 99.0}
    core.zone(older, reserved=40, quiet=True, max_loan=1.0, grace=grace[older])
    core.zone("borrower", in_use=80)
    other = core.zone("other", priority=1, in_use=20)
    core.upkeep(0.0)
    core.zone(younger, reserved=20, quiet=True, max_loan=1.0, grace=grace[younger])
    core.upkeep(0.5)
    before = lent(core)
    assert before == {(older, "borrower"): 40, (younger, "borrower"): 20}
    core.upkeep(3.0)
    core.release(other, dropped=5)
    core.tenancy.loans.settle(core.free)
    assert lent(core) == before | {("hasty", "borrower"): before["hasty", "borrower"] - 5}


@pytest.mark.parametrize("since_when", [0.0, 1.0], ids=["the older one", "the younger one"])
def test_what_a_borrower_gives_back_of_all_that_it_borrowed_ends_the_loan_that_is_due(core, since_when):
    core.zone("busy", reserved=60, in_use=60)
    timed = core.zone("timed", reserved=20, quiet=True, max_loan=5.0, grace=99.0)
    untimed = core.zone("untimed", reserved=20, quiet=True)
    younger = timed if since_when else untimed
    core.take(younger, 20)
    borrower = core.zone("borrower", in_use=20)
    core.upkeep(0.0)
    core.release(younger, dropped=20)
    core.take(borrower, 20)
    core.upkeep(1.0)
    core.now = 7.0
    core.release(borrower, dropped=15)
    core.tenancy.loans.settle(core.free)
    assert lent(core) == {("timed", "borrower"): 5, ("untimed", "borrower"): 20}
    assert core.events("repaid") == [Repaid("timed", "borrower", 15, after_seconds=7.0 - since_when, overdue=True)]


def test_before_requests_yield_what_others_merely_cache_is_given_back(core):
    core.zone("lender", reserved=50, quiet=True, max_loan=10.0, grace=5.0)
    borrower = core.zone("borrower", in_use=45)
    other = core.zone("other", reserved=5, cached=20)
    core.upkeep(0.0)
    core.upkeep(10.0)
    owed = borrower.overdue
    assert owed > 0
    core.now = 15.0
    assert core.settle_evictions(core.tenancy.cover_loans(borrower)) == [("other", owed)]
    core.settle_evictions(core.tenancy.collect_due(core.free))
    assert core.tenancy.past_grace() == []
    assert len(other.cached) == 20 - owed


def past_its_grace(core, *, priority=0):
    """A borrower whose loan is past its grace, and another zone that caches on the lender's reservation."""
    core.zone("lender", reserved=20, quiet=True, max_loan=5.0, grace=1.0)
    core.zone("other", reserved=40, quiet=True, priority=priority)
    core.zone("busy", reserved=40, in_use=40)
    borrower = core.zone("borrower", in_use=20)
    cache = core.zone("cache", priority=5, cached=20, in_use=20)
    core.upkeep(0.0)
    core.upkeep(5.0)
    core.now = 6.0
    assert core.tenancy.past_grace() == [borrower]
    return borrower, cache


def test_no_cache_goes_that_stands_on_what_the_borrower_can_not_have(core):
    borrower, cache = past_its_grace(core, priority=5)
    assert core.tenancy.cover_loans(borrower) == []
    assert len(cache.cached) == 20


def test_no_cache_goes_that_stands_on_what_the_same_lender_has_lent(core):
    core.zone("lender", reserved=60, quiet=True, max_loan=5.0, grace=1.0)
    core.zone("busy", reserved=40, in_use=40)
    borrower = core.zone("borrower", in_use=20)
    core.upkeep(0.0)
    core.now = 3.0
    core.zone("cache", priority=5, cached=20, in_use=20)
    core.upkeep(6.0)
    assert lent(core) == {("lender", "borrower"): 20, ("lender", "cache"): 40}
    assert core.tenancy.past_grace() == [borrower]
    assert core.tenancy.cover_loans(borrower) == []


def test_a_cache_goes_that_stands_on_what_the_borrower_can_have(core):
    borrower, _ = past_its_grace(core)
    assert lent(core) == {("lender", "borrower"): 20, ("other", "cache"): 40}
    assert core.settle_evictions(core.tenancy.cover_loans(borrower)) == [("cache", 20)]
    core.tenancy.collect_due(core.free)
    assert lent(core) == {("other", "borrower"): 20, ("other", "cache"): 20}
    assert core.tenancy.past_grace() == []


def test_a_loan_that_is_due_is_not_taken_over_by_another_that_is_due(core):
    lender = core.zone("lender", reserved=20, quiet=True, max_loan=5.0, grace=10.0, in_use=10)
    core.zone("patient", reserved=10, quiet=True, max_loan=10.0, grace=1000.0, priority=1)
    rest = core.zone("rest", reserved=70, in_use=60)
    borrower = core.zone("borrower", priority=1, in_use=20)
    core.upkeep(0.0)
    core.upkeep(9.0)
    assert lent(core) == {("lender", "borrower"): 10, ("patient", "borrower"): 10}
    # The lender could lend ten more now, but what it lends to the borrower is already due.
    core.release(lender, dropped=10)
    core.take(rest, 10)
    core.upkeep(10.0)
    assert lent(core) == {("lender", "borrower"): 10, ("patient", "borrower"): 10}
    assert borrower.overdue == 20


@pytest.mark.parametrize("since_when", [0.0, 10.0], ids=["an older one", "a younger one"])
def test_what_a_preemption_gives_back_ends_the_loan_that_is_past_its_grace(core, since_when):
    borrower = core.zone("borrower")
    core.zone("busy", reserved=80, in_use=80)
    core.zone(
        "hasty" if since_when else "patient", reserved=10, quiet=True, max_loan=0.0, grace=10.0 if since_when else 1e6
    )
    core.take(borrower, 10)
    core.upkeep(0.0)
    core.zone(
        "patient" if since_when else "hasty", reserved=10, quiet=True, max_loan=0.0, grace=1e6 if since_when else 10.0
    )
    core.take(borrower, 10)
    core.upkeep(since_when)
    core.upkeep(20.0)
    assert lent(core) == {("hasty", "borrower"): 10, ("patient", "borrower"): 10}
    core.release(borrower, dropped=4)
    core.upkeep(20.0)
    assert lent(core) == {("hasty", "borrower"): 6, ("patient", "borrower"): 10}
