"""Which surplus stands on which reservation, and its start and end."""

import pytest

from tenantzone_runtime.zones.audit.events import Lent, LoanUsage, Repaid
from tenantzone_runtime.zones.model.zone import EARLY_TENANT
from tests.zones.core import Core

ANY = "AnyPriority"


@pytest.fixture
def core():
    return Core()


def loans(core):
    """Lender, borrower and blocks of each loan that stands after settling, oldest first."""
    core.tenancy.loans.settle(core.free)
    return [(loan.lender.spec.tenant, loan.borrower.spec.tenant, loan.blocks) for loan in core.tenancy.loans]


def test_surplus_stands_on_the_unreserved_part_of_the_pool_first(core):
    core.zone("lender", reserved=40, quiet=True)
    core.zone("borrower", cached=60)
    assert loans(core) == []


def test_what_is_more_than_that_is_borrowed(core):
    core.zone("lender", reserved=40, quiet=True)
    core.zone("borrower", cached=75)
    assert loans(core) == [("lender", "borrower", 15)]


def test_requests_from_before_zones_borrow_like_others(core):
    core.zone("lender", reserved=40, quiet=True)
    core.zone("borrower", cached=30)
    core.early(in_use=50)
    assert loans(core) == [("lender", "borrower", 20)]
    core.ledger.evict(core.ledger.zones["borrower"], 20, "relief")
    core.take(core.ledger.zones[EARLY_TENANT], 20)
    assert loans(core) == [("lender", "borrower", 10), ("lender", EARLY_TENANT, 10)]


def test_the_lowest_priority_lends_first_then_the_least_recently_active(core):
    core.zone("gold", reserved=30, priority=1, quiet=True)
    core.zone("late", reserved=30, quiet=True, active=9.0)
    core.zone("early", reserved=30, quiet=True, active=5.0)
    core.zone("borrower", cached=90, priority=1)
    assert loans(core) == [("early", "borrower", 30), ("late", "borrower", 30), ("gold", "borrower", 20)]


def test_low_borrows_from_equal_before_it_borrows_where_anybody_may(core):
    core.zone("open", reserved=20, priority=5, borrowers=ANY, quiet=True)
    core.zone("equal", reserved=20, quiet=True)
    core.zone("borrower", cached=90)
    assert loans(core) == [("equal", "borrower", 20), ("open", "borrower", 10)]


def test_high_borrowers_borrow_first_from_lenders_that_only_they_may_use(core):
    core.zone("open", reserved=20, priority=1, borrowers=ANY, quiet=True)
    core.zone("strict", reserved=20, priority=1, quiet=True)
    core.zone("low", cached=50)
    core.zone("high", cached=50, priority=1)
    assert loans(core) == [("strict", "high", 20), ("open", "low", 20)]


def test_a_loan_without_leave_is_still_in_the_book(core):
    """A reload can put a reservation under blocks that others already hold: they owe them."""
    core.zone("strict", reserved=40, priority=1)
    core.zone("squatter", in_use=90)
    assert loans(core) == [("strict", "squatter", 30)]


def test_a_single_block_can_be_lent(core):
    core.zone("lender", reserved=1, quiet=True)
    core.zone("borrower", cached=100)
    assert loans(core) == [("lender", "borrower", 1)]


def test_what_a_lender_has_lent_to_several_it_does_not_lend_again(core):
    core.zone("open", reserved=20, quiet=True)
    core.zone("strict", reserved=20, priority=1, quiet=True)
    core.zone("one", cached=10)
    core.zone("other", cached=85)
    assert loans(core) == [("open", "one", 10), ("open", "other", 10), ("strict", "other", 15)]


def test_no_zone_lends_what_it_locks_while_another_offers(core):
    core.zone("locked", reserved=30, lendable=0, quiet=True, priority=-1)
    core.zone("offers", reserved=30, quiet=True)
    core.zone("borrower", cached=60)
    assert loans(core) == [("offers", "borrower", 20)]


def test_a_loan_shrinks_when_the_borrower_lets_go_and_ends_with_the_last_block(core):
    core.now = 6.0
    core.zone("lender", reserved=50, quiet=True)
    borrower = core.zone("borrower", in_use=80)
    assert loans(core) == [("lender", "borrower", 30)]
    core.now = 10.0
    core.release(borrower, dropped=10)
    assert loans(core) == [("lender", "borrower", 20)]
    core.release(borrower, dropped=20)
    assert loans(core) == []
    assert core.events("repaid") == [Repaid("lender", "borrower", 30, after_seconds=4.0, overdue=False)]


def test_a_loan_shrinks_when_the_lender_uses_what_is_its_own(core):
    lender = core.zone("lender", reserved=50, quiet=True)
    core.zone("borrower", cached=70)
    assert loans(core) == [("lender", "borrower", 20)]
    core.take(lender, 30)
    assert loans(core) == [("lender", "borrower", 20)]
    core.ledger.evict(core.ledger.zones["borrower"], 15, "reclaim", lender)
    core.take(lender, 15)
    assert loans(core) == [("lender", "borrower", 5)]


def test_a_lender_that_uses_its_own_is_replaced_by_one_that_does_not(core):
    first = core.zone("first", reserved=30, quiet=True)
    core.zone("second", reserved=30, quiet=True)
    core.zone("borrower", cached=70)
    assert loans(core) == [("first", "borrower", 30)]
    core.take(first, 20)
    assert loans(core) == [("first", "borrower", 10), ("second", "borrower", 20)]


def test_of_a_lender_that_uses_its_own_the_newer_loan_ends_and_another_lends_instead(core):
    first = core.zone("first", reserved=40, quiet=True)
    core.zone("second", reserved=40, quiet=True)
    core.zone("one", cached=30)
    core.zone("other", cached=30)
    assert loans(core) == [("first", "one", 30), ("first", "other", 10)]
    core.take(first, 15)
    assert loans(core) == [("first", "one", 25), ("second", "one", 5), ("second", "other", 10)]


def test_of_a_borrower_that_gives_back_the_newer_loan_ends_and_another_borrows_instead(core):
    core.zone("first", reserved=20, quiet=True)
    core.zone("second", reserved=20, quiet=True)
    one, other = core.zone("one", cached=95), core.zone("other")
    assert loans(core) == [("first", "one", 20), ("second", "one", 15)]
    core.ledger.evict(one, 80, "own")
    core.hold(other, cached=80)
    assert loans(core) == [("first", "one", 15), ("first", "other", 5), ("second", "other", 15)]


def test_the_oldest_loan_stands_longest(core):
    core.zone("first", reserved=20, quiet=True)
    borrower = core.zone("borrower", cached=95)
    assert loans(core) == [("first", "borrower", 15)]
    core.zone("second", reserved=20, quiet=True)
    assert loans(core) == [("first", "borrower", 20), ("second", "borrower", 15)]
    core.ledger.evict(borrower, 20, "own")
    assert loans(core) == [("first", "borrower", 15)]


def test_block_seconds_count_what_stood_in_the_book_and_outlive_the_loan(core):
    core.zone("lender", reserved=50, quiet=True)
    borrower = core.zone("borrower", cached=70)
    loans(core)
    core.now = 10.0
    loans(core)
    core.ledger.evict(borrower, 70, "own")
    core.now = 13.0
    loans(core)
    core.now = 99.0
    assert loans(core) == []
    assert core.events("loan_usage") == [LoanUsage("lender", "borrower", 0.0, 260.0)]


def test_a_loan_that_stood_for_no_time_has_nothing_to_report(core):
    core.zone("lender", reserved=50, quiet=True)
    borrower = core.zone("borrower", cached=70)
    loans(core)
    core.ledger.evict(borrower, 70, "own")
    assert loans(core) == []
    assert core.events("loan_usage") == []


def stand(core, borrower, *, begin, end):
    """Lets the borrower use 20 blocks of the lender's reservation from `begin` to `end`."""
    core.now = begin
    core.hold(borrower, cached=70)
    loans(core)
    core.now = end
    core.ledger.evict(borrower, 70, "own")
    assert loans(core) == []


def test_the_next_loan_of_two_counts_from_its_own_beginning(core):
    core.zone("lender", reserved=50, quiet=True)
    borrower = core.zone("borrower")
    stand(core, borrower, begin=1.0, end=3.0)
    assert core.events("loan_usage") == [LoanUsage("lender", "borrower", 1.0, 40.0)]
    stand(core, borrower, begin=5.0, end=6.0)
    assert core.events("loan_usage") == [LoanUsage("lender", "borrower", 5.0, 20.0)]


def test_two_loans_that_come_and_go_between_reports_are_reported_once(core):
    core.zone("lender", reserved=50, quiet=True)
    borrower = core.zone("borrower")
    stand(core, borrower, begin=1.0, end=3.0)
    stand(core, borrower, begin=5.0, end=6.0)
    assert core.events("loan_usage") == [LoanUsage("lender", "borrower", 1.0, 60.0)]


def test_a_loan_that_continues_an_unreported_one_is_reported_with_it(core):
    core.zone("lender", reserved=50, quiet=True)
    borrower = core.zone("borrower")
    stand(core, borrower, begin=1.0, end=3.0)
    core.now = 3.0
    core.hold(borrower, cached=70)
    loans(core)
    assert core.events("loan_usage") == []
    assert core.tenancy.usage()[-1] == LoanUsage("lender", "borrower", 1.0, 40.0)


def test_a_loan_notes_when_it_is_due_and_what_comes_later_comes_under_the_same_time(core):
    core.zone("lender", reserved=50, quiet=True, max_loan=60.0, grace=5.0)
    borrower = core.zone("borrower", cached=70)
    loans(core)
    core.now = 20.0
    core.hold(borrower, cached=10)
    loans(core)
    (loan,) = core.tenancy.loans
    assert (loan.blocks, loan.since, loan.due, loan.grace_until) == (30, 0.0, 60.0, 65.0)
    assert core.events("lent") == [Lent("lender", "borrower", 30, 40.0)]


def test_the_trail_counts_blocks_taken_above_the_reservation(core):
    zone = core.zone("acme", reserved=10)
    core.events("balance")
    core.take(zone, 8)
    assert [note.above_reservation for note in core.events("balance")] == [0]
    core.take(zone, 5)
    core.take(zone, 2)
    assert [(note.zone, note.above_reservation) for note in core.events("balance")] == [("acme", 5)]


def test_the_trail_says_what_a_zone_holds_with_what_it_was_granted_and_without_what_it_let_go(core):
    zone = core.zone("acme", cached=5)
    core.events("balance")
    core.take(zone, 8)
    (note,) = core.events("balance")
    assert (note.granted, note.released, note.held) == (8, 0, 13)
    core.release(zone, kept=2, dropped=3)
    (note,) = core.events("balance")
    assert (note.granted, note.released, note.held) == (0, 3, 10)
