"""Work that is cut into parts: what each part does, and that all parts together leave nothing undone."""

import pytest

from tenantzone_contract.zone_config.config import Watermarks
from tenantzone_runtime.zones.blocks.eviction import trim_to_limit
from tests.zones.core import Core, declare
from tests.zones.registered import anybody, arrive, level


@pytest.fixture
def core():
    return Core()


def parts(core, now, at_once):
    """What each part of upkeep evicts: the number of blocks that each tenant lost."""
    for evicted in core.tenancy.upkeep_in_parts(now, lambda: core.free, at_once):
        yield core.settle_evictions(evicted)


def test_a_large_cache_goes_bit_by_bit_and_others_have_their_turn_in_between(core):
    core.apply(declare("large", evict_after=10.0), declare("small", evict_after=11.0))
    for tenant, cached in (("large", 25), ("small", 4)):
        core.hold(core.ledger.zones[tenant], cached=cached)
    evictions = [evicted for evicted in parts(core, 11.0, at_once=10) if evicted]
    assert evictions == [[("large", 10)], [("small", 4)], [("large", 10)], [("large", 5)]]
    assert {zone.state for zone in core.ledger.zones.values()} == {"Evicted"}


def test_a_cache_that_divides_evenly_into_parts_is_looked_at_once_more(core):
    core.apply(**anybody(forget_after=10.0, evict_after=5.0))
    guest = arrive(core, "guest", now=0.0)
    core.hold(guest, cached=20)
    assert [evicted for evicted in parts(core, 10.0, at_once=10) if evicted] == [[("guest", 10)], [("guest", 10)]]
    assert core.ledger.zones == {}


def test_a_request_that_comes_between_two_parts_keeps_what_is_left(core):
    core.apply(declare("large", evict_after=10.0))
    large = core.ledger.zones["large"]
    core.hold(large, cached=25)
    upkeep = parts(core, 10.0, at_once=10)
    assert next(upkeep) == [("large", 10)]
    core.tenancy.request_arrived(large, 10.0)
    assert [evicted for evicted in upkeep if evicted] == []
    assert (large.held, large.state) == (15, "Active")


def test_of_many_that_have_changed_only_a_batch_of_bounded_cost_is_looked_at_without_a_pause(core):
    lender = core.zone("lender", reserved=60, quiet=True)
    for number in range(7):
        core.zone(f"borrower-{number}", cached=10)
    upkeep = parts(core, 0.0, at_once=100)
    seen = []
    for _ in upkeep:
        seen.append((core.ledger.totals.changed, lender.lent))
    # Eight zones have changed, settled two at a time; then the loans are settled.
    assert seen == [(6, 0), (4, 0), (2, 0), (0, 0), (0, 30)]


@pytest.mark.parametrize(("free", "evicted"), [(30, []), (29, [("acme", 1)]), (28, [("acme", 2)])])
def test_below_the_watermark_what_is_missing_is_evicted_to_the_last_block(core, free, evicted):
    core.apply(declare("acme"), watermarks=Watermarks(low=0.3, high=0.3))
    core.hold(core.ledger.zones["acme"], cached=100 - free)
    assert core.upkeep(1.0) == evicted


def test_up_to_the_high_watermark_that_many_blocks_go_at_once(core):
    core.apply(declare("acme"), watermarks=Watermarks(low=0.1, high=0.3))
    core.hold(core.ledger.zones["acme"], cached=95)
    assert [evicted for evicted in parts(core, 1.0, at_once=10) if evicted] == 2 * [[("acme", 10)]] + [[("acme", 5)]]


def test_what_is_beyond_a_lower_limit_goes_in_batches(core):
    acme = core.zone("acme", limit=50, in_use=20, cached=51)
    bits = [len(trim_to_limit(core.ledger, acme, at_once=10)) for _ in range(4)]
    assert bits == [10, 10, 1, 0]


def test_of_zones_that_are_forgotten_together_each_leaves_what_it_reserved(core):
    gold, plenty = level("gold", reserved=20), level("plenty", reserved=90)
    core.apply(**anybody(gold, plenty, after=1.0, forget_after=5.0))
    arrive(core, "gold-1", now=0.0)
    arrive(core, "stranger", now=0.0)
    waits = arrive(core, "plenty-1", now=3.0)
    core.tenancy.request_arrived(waits, 3.0)
    assert waits.spec.quota.reserved == 0
    core.upkeep(5.0)
    assert list(core.ledger.zones) == ["plenty-1"]
    assert waits.spec.quota.reserved == 90
