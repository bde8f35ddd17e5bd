"""The counters of a zone's evictions and loans."""

import itertools
from dataclasses import fields
from typing import get_args

import pytest

from tenantzone_contract.reports.words import EvictionReason
from tenantzone_runtime.zones.audit.events import LoanUsage
from tenantzone_runtime.zones.blocks.eviction import evict_to_watermark, make_room
from tenantzone_runtime.zones.model.counters import EVICTIONS_FOR, TAKEN_FOR, Counters
from tests.zones.core import declare


@pytest.mark.parametrize(
    ("priority", "beneficiary"), [(1, "higher_priority"), (0, "same_priority"), (-1, "lower_priority")]
)
def test_an_eviction_for_another_zone_counts_by_that_zones_priority(core, priority, beneficiary):
    victim = core.zone("victim", cached=90, quiet=True)
    other = core.zone("other", reserved=50, priority=priority)
    make_room(core.ledger, other, 30, core.free)
    assert victim.counters.evictions == {("quiet", beneficiary): 20}


def test_an_eviction_for_the_zone_itself_counts_as_its_own(core):
    acme = core.zone("acme", cached=40, limit=60)
    core.zone("other", in_use=50)
    make_room(core.ledger, acme, 30, core.free)
    assert acme.counters.evictions == {("limit", "self"): 10, ("own", "self"): 10}


def test_an_eviction_without_a_beneficiary_names_none(core):
    acme = core.zone("acme", cached=100)
    evict_to_watermark(core.ledger, 10)
    assert acme.counters.evictions == {("watermark", "none"): 10}


def test_an_eviction_for_a_request_from_before_zones_counts_as_for_priority_0(core):
    acme = core.zone("acme", cached=90, quiet=True, priority=-1)
    make_room(core.ledger, core.early(in_use=10), 10, core.free)
    assert acme.counters.evictions == {("quiet", "higher_priority"): 10}


def test_blocks_lost_for_one_reason_are_added_up_over_whom_they_were_for():
    counters = Counters(evictions={("quiet", "same_priority"): 3, ("quiet", "higher_priority"): 4, ("own", "self"): 5})
    assert counters.evicted == {"quiet": 7, "own": 5}


def test_each_reason_has_its_beneficiaries():
    assert set(EVICTIONS_FOR) == set(get_args(EvictionReason))


def test_blocks_taken_are_those_that_others_caused_to_be_evicted():
    counters = Counters(evictions={(reason, "none"): 10**number for number, reason in enumerate(EVICTIONS_FOR)})
    # own, limit, due, idle, ttl, no_store, purge, removed and reset are not among them.
    assert counters.taken_blocks == sum(10 ** [*EVICTIONS_FOR].index(reason) for reason in TAKEN_FOR)
    assert Counters().taken_blocks == 0


def test_a_zone_starves_while_it_waits_for_blocks_that_others_have():
    counters = Counters(stalled_seconds={"limit": 1.0, "reserved": 2.0, "in_use": 4.0, "seats": 8.0})
    assert counters.starved_seconds == 6.0
    assert Counters().starved_seconds == 0.0


def counted(start):
    """Counters with values that all differ."""
    numbers = [each.name for each in fields(Counters) if isinstance(each.default, int | float)]
    counters = Counters(**dict(zip(numbers, itertools.count(start), strict=False)))
    counters.evictions.update({("quiet", "none"): start, ("own", "self"): start + 1})
    counters.requests["stop"] = start + 2
    counters.stalled_seconds["limit"] = start + 3.5
    counters.queue_time.observe(start / 7)
    counters.time_to_first_token.observe(start / 3)
    return counters


def test_what_is_put_among_other_values_is_taken_as_it_was():
    values = ["before"]
    first, second = counted(20), counted(300)
    for counters in (first, second, Counters()):
        counters.put(values)
    values.append("after")
    was = first.copy()
    first.request_ended("abort")
    first.queue_time.observe(9.0)
    left = iter(values)
    assert next(left) == "before"
    assert [Counters.take(left) for _ in range(3)] == [was, second, Counters()]
    assert next(left) == "after"


def test_a_copy_that_catches_up_is_the_same_and_stays_a_copy():
    older, newer = counted(20), counted(20)
    newer.add_growth(counted(300), counted(20))
    older.catch_up(newer)
    assert older == newer
    newer.evictions["idle", "none"] = 1
    newer.time_to_first_token.observe(1.0)
    older.catch_up(newer)
    assert older == newer
    newer.queue_time.observe(1.0)
    newer.request_ended("abort")
    assert older.queue_time != newer.queue_time
    assert older.requests != newer.requests


def test_block_seconds_of_a_loan_are_counted_with_both_zones(core):
    core.apply(declare("lender", reserved=60, after=0.0), declare("borrower"))
    lender, borrower = core.ledger.zones.values()
    core.upkeep(1.0)
    core.hold(borrower, in_use=100)
    core.upkeep(2.0)
    core.upkeep(5.0)
    core.ledger.accrue(lender)
    core.ledger.accrue(borrower)
    assert (lender.counters.lent_block_seconds, lender.counters.borrowed_block_seconds) == (180.0, 0.0)
    assert (borrower.counters.lent_block_seconds, borrower.counters.borrowed_block_seconds) == (0.0, 180.0)
    assert core.tenancy.usage()[-1] == LoanUsage("lender", "borrower", 2.0, 180.0)
