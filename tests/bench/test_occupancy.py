"""What a borrower learns about a lender, the short form of `python -m bench.attacks.lending`."""

from itertools import pairwise

import pytest

from bench.attacks.lending.__main__ import costs, leaks
from bench.attacks.lending.cost import cost
from bench.attacks.lending.occupancy import BLOCKS_PER_LEVEL, LEVELS, attack, leak
from bench.attacks.lending.scene import Terms
from tenantzone_contract.zone_config.zone_terms import Lending

LENDS = Terms("lends")
LENDS_NOTHING = Terms("lends nothing", lending=Lending(lendable=0))
ROUNDS = 100
WHETHER, HOW_MUCH = (0, LEVELS // 2), tuple(range(LEVELS))


def test_a_borrower_loses_more_blocks_the_more_the_lender_reclaims():
    # As the security page says: lending leaks. Of the blocks cached above reservations, the oldest is evicted for any
    # zone that needs blocks, so a borrower can count its losses by its own requests.
    seen = sorted(attack(LENDS, HOW_MUCH, 20, seed=1), key=lambda each: each.secret)
    assert all(before.evicted <= after.evicted for before, after in pairwise(seen))
    assert seen[-1].evicted > seen[0].evicted + 2 * BLOCKS_PER_LEVEL


def test_all_of_the_secret_leaks_while_blocks_are_lent():
    found = leak(LENDS, WHETHER, ROUNDS)
    assert found.by_evictions.bits == pytest.approx(found.entropy, abs=0.05)
    assert found.by_evictions.p_value < 0.01


def test_waits_leak_nothing_of_a_reservation_that_is_not_lent_but_evictions_do():
    # Others can't use blocks that are reserved and not lent; they may still cache there what the lender can take at any
    # time.
    seen = attack(LENDS_NOTHING, HOW_MUCH, ROUNDS, seed=2)
    assert {each.waited for each in seen} == {0.0}
    assert len({each.evicted for each in seen}) > 1


def test_who_can_have_no_more_than_it_reserves_learns_nothing():
    seen = attack(Terms("confined", is_borrower_confined=True), HOW_MUCH, ROUNDS, seed=3)
    assert len({each.secret for each in seen}) > 10
    assert {(each.evicted, each.waited) for each in seen} == {(0, 0.0)}


def test_a_longer_time_before_it_lends_makes_rounds_longer_and_leaks_as_much_in_each():
    late = Terms("late", idle_after_seconds=20.0)
    soon, later = leak(LENDS, WHETHER, 40), leak(late, WHETHER, 40)
    assert later.by_evictions.bits == pytest.approx(soon.by_evictions.bits, abs=0.05)
    assert later.bits_per_second < soon.bits_per_second / 2


def test_whether_a_zone_lends_costs_neither_its_cache():
    # What it caches within its reservation is not lent to another zone's cache.
    lends, not_at_all = cost(LENDS, 400.0), cost(LENDS_NOTHING, 400.0)
    assert lends == not_at_all
    assert lends.lender > 0.99


def test_the_tables_have_a_line_for_each_terms():
    found = leak(LENDS_NOTHING, WHETHER, 20)
    assert [line.split()[0] for line in leaks("whether", {"a": found, "b": found}, 20).splitlines()[2:]] == ["a", "b"]
    assert costs({"a": cost(LENDS, 150.0)}).splitlines()[1].split()[0] == "a"
