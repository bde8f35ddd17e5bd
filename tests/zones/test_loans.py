"""Which surplus stands on which reservation, since when, and until when."""

import pytest

from tenantzone_runtime.zones.audit import Lent, LoanUsage, Repaid
from tenantzone_runtime.zones.zone import EARLY_TENANT
from tests.zones.zoo import Zoo

ANY = "AnyPriority"


@pytest.fixture
def zoo():
    return Zoo()


def loans(zoo):
    """Lender, borrower and blocks of each loan that stands after settling, oldest first."""
    zoo.tenancy.loans.settle(zoo.free)
    return [(loan.lender.spec.tenant, loan.borrower.spec.tenant, loan.blocks) for loan in zoo.tenancy.loans]


def test_surplus_stands_on_the_unreserved_part_of_the_pool_first(zoo):
    zoo.zone("lender", reserved=40, quiet=True)
    zoo.zone("borrower", cached=60)
    assert loans(zoo) == []


def test_what_is_more_than_that_is_borrowed(zoo):
    zoo.zone("lender", reserved=40, quiet=True)
    zoo.zone("borrower", cached=75)
    assert loans(zoo) == [("lender", "borrower", 15)]


def test_requests_from_before_zones_borrow_like_others(zoo):
    zoo.zone("lender", reserved=40, quiet=True)
    zoo.zone("borrower", cached=30)
    zoo.early(in_use=50)
    assert loans(zoo) == [("lender", "borrower", 20)]
    zoo.ledger.evict(zoo.ledger.zones["borrower"], 20, "relief")
    zoo.take(zoo.ledger.zones[EARLY_TENANT], 20)
    assert loans(zoo) == [("lender", "borrower", 10), ("lender", EARLY_TENANT, 10)]


def test_the_lowest_priority_lends_first_then_the_least_recently_active(zoo):
    zoo.zone("gold", reserved=30, priority=1, quiet=True)
    zoo.zone("late", reserved=30, quiet=True, active=9.0)
    zoo.zone("early", reserved=30, quiet=True, active=5.0)
    zoo.zone("borrower", cached=90, priority=1)
    assert loans(zoo) == [("early", "borrower", 30), ("late", "borrower", 30), ("gold", "borrower", 20)]


def test_low_borrows_from_equal_before_it_borrows_where_anybody_may(zoo):
    zoo.zone("open", reserved=20, priority=5, borrowers=ANY, quiet=True)
    zoo.zone("equal", reserved=20, quiet=True)
    zoo.zone("borrower", cached=90)
    assert loans(zoo) == [("equal", "borrower", 20), ("open", "borrower", 10)]


def test_high_borrowers_leave_the_lenders_that_only_they_may_use_to_nobody(zoo):
    zoo.zone("open", reserved=20, priority=1, borrowers=ANY, quiet=True)
    zoo.zone("strict", reserved=20, priority=1, quiet=True)
    zoo.zone("low", cached=50)
    zoo.zone("high", cached=50, priority=1)
    assert loans(zoo) == [("strict", "high", 20), ("open", "low", 20)]


def test_a_loan_without_leave_is_still_in_the_book(zoo):
    """A reload can put a reservation under blocks that others hold already: they owe them."""
    zoo.zone("strict", reserved=40, priority=1)
    zoo.zone("squatter", in_use=90)
    assert loans(zoo) == [("strict", "squatter", 30)]


def test_a_single_block_can_be_lent(zoo):
    zoo.zone("lender", reserved=1, quiet=True)
    zoo.zone("borrower", cached=100)
    assert loans(zoo) == [("lender", "borrower", 1)]


def test_what_a_lender_has_lent_to_several_it_does_not_lend_again(zoo):
    zoo.zone("open", reserved=20, quiet=True)
    zoo.zone("strict", reserved=20, priority=1, quiet=True)
    zoo.zone("one", cached=10)
    zoo.zone("other", cached=85)
    assert loans(zoo) == [("open", "one", 10), ("open", "other", 10), ("strict", "other", 15)]


def test_nobody_lends_what_it_locks_while_another_offers(zoo):
    zoo.zone("locked", reserved=30, lendable=0, quiet=True, priority=-1)
    zoo.zone("offers", reserved=30, quiet=True)
    zoo.zone("borrower", cached=60)
    assert loans(zoo) == [("offers", "borrower", 20)]


def test_a_loan_shrinks_when_the_borrower_lets_go_and_ends_with_the_last_block(zoo):
    zoo.now = 6.0
    zoo.zone("lender", reserved=50, quiet=True)
    borrower = zoo.zone("borrower", in_use=80)
    assert loans(zoo) == [("lender", "borrower", 30)]
    zoo.now = 10.0
    zoo.release(borrower, dropped=10)
    assert loans(zoo) == [("lender", "borrower", 20)]
    zoo.release(borrower, dropped=20)
    assert loans(zoo) == []
    assert zoo.events("repaid") == [Repaid("lender", "borrower", 30, after_seconds=4.0, overdue=False)]


def test_a_loan_shrinks_when_the_lender_uses_what_is_its_own(zoo):
    lender = zoo.zone("lender", reserved=50, quiet=True)
    zoo.zone("borrower", cached=70)
    assert loans(zoo) == [("lender", "borrower", 20)]
    zoo.take(lender, 30)
    assert loans(zoo) == [("lender", "borrower", 20)]
    zoo.ledger.evict(zoo.ledger.zones["borrower"], 15, "reclaim", lender)
    zoo.take(lender, 15)
    assert loans(zoo) == [("lender", "borrower", 5)]


def test_a_lender_that_uses_its_own_is_replaced_by_one_that_does_not(zoo):
    first = zoo.zone("first", reserved=30, quiet=True)
    zoo.zone("second", reserved=30, quiet=True)
    zoo.zone("borrower", cached=70)
    assert loans(zoo) == [("first", "borrower", 30)]
    zoo.take(first, 20)
    assert loans(zoo) == [("first", "borrower", 10), ("second", "borrower", 20)]


def test_of_a_lender_that_uses_its_own_the_newer_loan_ends_and_another_lends_instead(zoo):
    first = zoo.zone("first", reserved=40, quiet=True)
    zoo.zone("second", reserved=40, quiet=True)
    zoo.zone("one", cached=30)
    zoo.zone("other", cached=30)
    assert loans(zoo) == [("first", "one", 30), ("first", "other", 10)]
    zoo.take(first, 15)
    assert loans(zoo) == [("first", "one", 25), ("second", "one", 5), ("second", "other", 10)]


def test_of_a_borrower_that_gives_back_the_newer_loan_ends_and_another_borrows_instead(zoo):
    zoo.zone("first", reserved=20, quiet=True)
    zoo.zone("second", reserved=20, quiet=True)
    one, other = zoo.zone("one", cached=95), zoo.zone("other")
    assert loans(zoo) == [("first", "one", 20), ("second", "one", 15)]
    zoo.ledger.evict(one, 80, "own")
    zoo.hold(other, cached=80)
    assert loans(zoo) == [("first", "one", 15), ("first", "other", 5), ("second", "other", 15)]


def test_the_oldest_loan_stands_longest(zoo):
    zoo.zone("first", reserved=20, quiet=True)
    borrower = zoo.zone("borrower", cached=95)
    assert loans(zoo) == [("first", "borrower", 15)]
    zoo.zone("second", reserved=20, quiet=True)
    assert loans(zoo) == [("first", "borrower", 20), ("second", "borrower", 15)]
    zoo.ledger.evict(borrower, 20, "own")
    assert loans(zoo) == [("first", "borrower", 15)]


def test_block_seconds_count_what_stood_in_the_book_and_outlive_the_loan(zoo):
    zoo.zone("lender", reserved=50, quiet=True)
    borrower = zoo.zone("borrower", cached=70)
    loans(zoo)
    zoo.now = 10.0
    loans(zoo)
    zoo.ledger.evict(borrower, 70, "own")
    zoo.now = 13.0
    loans(zoo)
    zoo.now = 99.0
    assert loans(zoo) == []
    assert zoo.events("loan_usage") == [LoanUsage("lender", "borrower", 0.0, 260.0)]


def test_a_loan_that_stood_for_no_time_has_nothing_to_tell(zoo):
    zoo.zone("lender", reserved=50, quiet=True)
    borrower = zoo.zone("borrower", cached=70)
    loans(zoo)
    zoo.ledger.evict(borrower, 70, "own")
    assert loans(zoo) == []
    assert zoo.events("loan_usage") == []


def stand(zoo, borrower, *, begin, end):
    """The borrower stands on the lender's reservation with 20 blocks, from when to when."""
    zoo.now = begin
    zoo.hold(borrower, cached=70)
    loans(zoo)
    zoo.now = end
    zoo.ledger.evict(borrower, 70, "own")
    assert loans(zoo) == []


def test_the_next_loan_of_two_counts_from_its_own_beginning(zoo):
    zoo.zone("lender", reserved=50, quiet=True)
    borrower = zoo.zone("borrower")
    stand(zoo, borrower, begin=1.0, end=3.0)
    assert zoo.events("loan_usage") == [LoanUsage("lender", "borrower", 1.0, 40.0)]
    stand(zoo, borrower, begin=5.0, end=6.0)
    assert zoo.events("loan_usage") == [LoanUsage("lender", "borrower", 5.0, 20.0)]


def test_loans_of_two_that_come_and_go_before_anybody_is_told_are_told_once(zoo):
    zoo.zone("lender", reserved=50, quiet=True)
    borrower = zoo.zone("borrower")
    stand(zoo, borrower, begin=1.0, end=3.0)
    stand(zoo, borrower, begin=5.0, end=6.0)
    assert zoo.events("loan_usage") == [LoanUsage("lender", "borrower", 1.0, 60.0)]


def test_a_loan_that_goes_on_from_one_that_nobody_was_told_of_is_told_with_it(zoo):
    zoo.zone("lender", reserved=50, quiet=True)
    borrower = zoo.zone("borrower")
    stand(zoo, borrower, begin=1.0, end=3.0)
    zoo.now = 3.0
    zoo.hold(borrower, cached=70)
    loans(zoo)
    assert zoo.events("loan_usage") == []
    assert zoo.tenancy.usage()[-1] == LoanUsage("lender", "borrower", 1.0, 40.0)


def test_a_loan_notes_when_it_is_due_and_what_comes_later_comes_under_the_same_time(zoo):
    zoo.zone("lender", reserved=50, quiet=True, max_loan=60.0, grace=5.0)
    borrower = zoo.zone("borrower", cached=70)
    loans(zoo)
    zoo.now = 20.0
    zoo.hold(borrower, cached=10)
    loans(zoo)
    (loan,) = zoo.tenancy.loans
    assert (loan.blocks, loan.since, loan.due, loan.grace_until) == (30, 0.0, 60.0, 65.0)
    assert zoo.events("lent") == [Lent("lender", "borrower", 30, 40.0)]


def test_the_trail_counts_blocks_taken_above_the_reservation(zoo):
    zone = zoo.zone("acme", reserved=10)
    zoo.events("balance")
    zoo.take(zone, 8)
    assert [note.above_reservation for note in zoo.events("balance")] == [0]
    zoo.take(zone, 5)
    zoo.take(zone, 2)
    assert [(note.zone, note.above_reservation) for note in zoo.events("balance")] == [("acme", 5)]


def test_the_trail_says_what_a_zone_holds_with_what_it_was_granted_and_without_what_it_let_go(zoo):
    zone = zoo.zone("acme", cached=5)
    zoo.events("balance")
    zoo.take(zone, 8)
    (note,) = zoo.events("balance")
    assert (note.granted, note.released, note.held) == (8, 0, 13)
    zoo.release(zone, kept=2, dropped=3)
    (note,) = zoo.events("balance")
    assert (note.granted, note.released, note.held) == (0, 3, 10)
