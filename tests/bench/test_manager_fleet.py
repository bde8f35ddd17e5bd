"""A fleet of engines in virtual time: its results follow from the costs of calls."""

import statistics

import pytest

from bench.kvcache_manager.costs import Cost, Costs
from bench.kvcache_manager.fleet import Fleet, simulate

NOTHING = Cost(0.0, 0.0)


def costs(*, query=0.001, write=0.0, write_redis=0.0, heard=0.0):
    found = Cost(query, 0.0)
    return Costs(found, found, NOTHING, Cost(write, 0.0), Cost(write_redis, 0.0), Cost(heard, 0.0))


def fleet(managers, *, engines=100, round_trip=0.0, shards=256):
    return Fleet(engines, turns=1.0, managers=managers, shards=shards, round_trip=round_trip, seconds=10.0)


def test_calls_take_what_they_cost_where_nothing_is_busy():
    seen, busy, redis = simulate(fleet(4, engines=4, round_trip=0.01), costs(query=0.005, write=0.02), 1)
    # A query reads once; a write asks for accounts, and reads and commits twice.
    assert statistics.median(seen.queries) == pytest.approx(0.015)
    assert statistics.median(seen.writes) == pytest.approx(0.07)
    assert seen.under_way <= 1
    assert sum(busy) == pytest.approx(len(seen.writes) * 0.025 / 10, rel=0.05)
    assert redis == 0


def test_who_is_asked_for_more_than_a_core_gives_is_always_busy():
    seen, busy, _ = simulate(fleet(1), costs(write=0.02), 1)
    assert busy[0] > 0.99
    assert seen.under_way > 250
    assert statistics.median(seen.writes) > 1


def test_more_managers_are_of_no_use_where_redis_is_busy():
    for managers in (4, 8):
        seen, busy, redis = simulate(fleet(managers), costs(write_redis=0.02), 1)
        assert redis > 0.99
        assert len(seen.writes) <= 10 / 0.02
        assert max(busy) < 0.1


def test_each_manager_hears_of_what_the_others_write():
    _, busy, _ = simulate(fleet(8), costs(query=0.0, heard=0.004), 1)
    assert statistics.mean(busy) == pytest.approx(100 * 0.004 * 7 / 8, rel=0.1)


def test_those_that_write_at_once_wait_for_each_other_where_there_are_few_locks():
    slow, fast = (
        statistics.mean(simulate(fleet(1, round_trip=0.01, shards=shards), costs(), 1)[0].writes)
        for shards in (1, 4096)
    )
    assert fast == pytest.approx(0.05, rel=0.1)
    assert slow > 2 * fast
