"""The loan book, which looks at changes only, against one that looks at everything."""

import random
from dataclasses import replace
from typing import get_args

import pytest

from tenantzone_contract.zone_config.zone_terms import Borrowers
from tenantzone_runtime.zones.config import configure
from tenantzone_runtime.zones.model.quota import Quota
from tests.zones.core import Core
from tests.zones.reference import Cache, Pool, Zone

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


class NaiveBook:
    """The loans of a core's zones, by the naive model."""

    def __init__(self, core):
        self._core = core
        self._twins = {}
        """By zone of the core, its zone in the model."""
        self._loans = {}

    def settle(self):
        core = self._core
        pool = Pool(core.capacity)
        pool.free = set(range(core.free))
        zones = core.ledger.zones.values()
        for zone in zones:
            self._twins.setdefault(zone, Zone(zone.spec.tenant, zone.number))
        for zone, twin in self._twins.items():
            is_present = core.ledger.zones.get(zone.spec.tenant) is zone
            twin.reserved = zone.spec.quota.reserved if is_present else 0
            twin.limit, twin.lendable = zone.spec.quota.limit, zone.spec.quota.lendable
            twin.priority, twin.any_priority = zone.spec.priority, zone.spec.lending.borrowers == "AnyPriority"
            twin.quiet, twin.last_active = zone.quiet, zone.last_active
            twin.in_use, twin.cached = set(range(zone.in_use)), Cache(blocks=zone.cached)
        pool.zones = {zone.spec.tenant: self._twins[zone] for zone in zones}
        self._loans = pool.settle(self._loans)

    def repay(self, loan, blocks):
        self._loans[self._pair_of(loan)] -= blocks
        if not self._loans[self._pair_of(loan)]:
            del self._loans[self._pair_of(loan)]

    def check(self, book):
        assert [(self._pair_of(loan), loan.blocks) for loan in book] == list(self._loans.items())

    def _pair_of(self, loan):
        return self._twins[loan.lender], self._twins[loan.borrower]


@pytest.mark.parametrize("seed", range(LIVES))
def test_loans_are_those_of_looking_at_all_zones_and_all_loans_each_time(seed):
    rng = random.Random(seed)
    core = Core()
    book, naive = core.tenancy.loans, NaiveBook(core)
    for number in range(ZONES):
        declare(core, number)
    for _ in range(ACTS):
        deed, number, amount = rng.choice(DEEDS), rng.randrange(ZONES), rng.randrange(60)
        core.now += 1.0
        act(core, deed, number, amount)
        if deed in ("settle", "due"):
            book.settle(core.free)
            naive.settle()
        if deed == "due" and (loans := list(book)):
            loan = loans[number % len(loans)]
            blocks = min(amount, loan.blocks, len(loan.borrower.cached))
            core.ledger.evict(loan.borrower, blocks, "due", loan.lender)
            if blocks:
                book.repay(loan, blocks)
                naive.repay(loan, blocks)
        naive.check(book)
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
