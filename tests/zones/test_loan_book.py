"""The loan book, which looks at changes only, against one that looks at everything."""

import random
from dataclasses import replace
from typing import get_args

import pytest

from tenantzone_contract.zone_config.zone_terms import Borrowers
from tenantzone_runtime.zones.config import configure
from tenantzone_runtime.zones.model.quota import Quota
from tests.zones.core import Core
from tests.zones.reference_book import ReferenceBook

BORROWERS = get_args(Borrowers)
ZONES = 6
DEEDS = ["take", "take", "keep", "drop", "evict", "active", "quiet", "change", "leave", "due", "settle", "settle"]
LIVES = 30
ACTS = 300


def declare(core, number):
    return core.zone(f"tenant-{number}", reserved=5 * number, priority=number % 3 - 1, borrowers=BORROWERS[number % 2])


def act(core, deed, number, amount):
    ledger = core.ledger
    zone = ledger.zones[f"tenant-{number}"]
    match deed:
        case "take":
            core.take(zone, min(amount, core.free))
        case "keep":
            core.release(zone, kept=amount)
        case "drop":
            core.release(zone, dropped=amount)
        case "evict":
            ledger.evict(zone, min(amount, len(zone.cached)), "own")
        case "active":
            zone.last_active = core.now
            zone.quiet = False
            ledger.totals.was_active(zone)
        case "quiet":
            core.set_quiet(zone, True)
        case "change":
            room = core.capacity - ledger.totals.promised + zone.spec.quota.reserved
            reserved = min(amount, room)
            terms = zone.spec.lending.model_copy(update={"borrowers": BORROWERS[amount % 2]})
            quota = Quota(reserved, core.capacity, reserved // 2)
            configure.change_spec(ledger, zone, replace(zone.spec, priority=amount % 5 - 2, quota=quota, lending=terms))
        case "leave" if zone.held == 0:
            ledger.discard(zone)
            declare(core, number)


@pytest.mark.parametrize("seed", range(LIVES))
def test_loans_are_those_of_looking_at_all_zones_and_all_loans_each_time(seed):
    rng = random.Random(seed)
    core = Core()
    book, reference = core.tenancy.loans, ReferenceBook(core.ledger)
    for number in range(ZONES):
        declare(core, number)
    for _ in range(ACTS):
        deed, number, amount = rng.choice(DEEDS), rng.randrange(ZONES), rng.randrange(60)
        core.now += 1.0
        act(core, deed, number, amount)
        if deed in ("settle", "due"):
            book.settle(core.free)
            reference.settle(core.free)
        if deed == "due" and (loans := list(book)):
            loan = loans[number % len(loans)]
            blocks = min(amount, loan.blocks, len(loan.borrower.cached))
            core.ledger.evict(loan.borrower, blocks, "due", loan.lender)
            if blocks:
                book.repay(loan, blocks)
                reference.loans[loan.lender, loan.borrower] -= blocks
                if not loan.blocks:
                    del reference.loans[loan.lender, loan.borrower]
        assert [((loan.lender, loan.borrower), loan.blocks) for loan in book] == list(reference.loans.items())
        for zone in core.ledger.zones.values():
            assert zone.lent == sum(loan.blocks for loan in book if loan.lender is zone)
            assert zone.borrowed == sum(loan.blocks for loan in book if loan.borrower is zone)


def test_a_book_that_is_settled_looks_at_no_zone_again_that_has_not_changed():
    core = Core(1000)
    for number in range(50):
        core.zone(f"lender-{number}", reserved=10, quiet=True)
    borrowers = [core.zone(f"borrower-{number}", cached=20) for number in range(50)]
    core.tenancy.loans.settle(core.free)
    assert sum(loan.blocks for loan in core.tenancy.loans) == 500
    assert core.ledger.totals.take_changed() == []
    core.ledger.evict(borrowers[7], 1, "own")
    assert core.ledger.totals.take_changed() == [borrowers[7]]


@pytest.mark.parametrize("seed", range(10))
def test_the_book_is_right_when_a_step_settles_it_while_changes_are_looked_at(seed):
    rng = random.Random(seed)
    core = Core(300)
    for number in range(ZONES):
        declare(core, number)
    for _ in range(100):
        for _ in range(5):
            act(core, rng.choice(DEEDS[:8]), rng.randrange(ZONES), rng.randrange(60))
        core.now += 1.0
        for _ in core.tenancy.upkeep_in_parts(core.now, lambda: core.free, at_once=1):
            act(core, rng.choice(DEEDS[:8]), rng.randrange(ZONES), rng.randrange(60))
            core.settle_evictions(core.tenancy.collect_due(core.free))
            for zone in core.ledger.zones.values():
                assert zone.borrowed <= zone.surplus
                assert zone.lent <= max(0, zone.spec.quota.reserved - zone.held)
