"""Who pays, in which order, when a zone needs blocks; each case as an operator of the pool would tell it."""

import pytest

from tenantzone_runtime.zones.eviction import make_room
from tests.zones.zoo import Zoo


@pytest.fixture
def zoo():
    return Zoo()


def paid(zoo, zone, count):
    """Tenant, how many blocks, and why, in the order of eviction."""
    reasons = {other: dict(other.counters.evicted) for other in zoo.ledger.zones.values()}
    payments = []
    for owner, blocks in make_room(zoo.ledger, zone, count, zoo.free):
        (reason,) = (name for name, total in owner.counters.evicted.items() if total != reasons[owner].get(name, 0))
        reasons[owner] = dict(owner.counters.evicted)
        payments.append((owner.spec.tenant, len(blocks), reason))
    return payments


def test_nobody_pays_while_blocks_are_free(zoo):
    burst = zoo.zone("burst", cached=50)
    zoo.zone("calm", cached=20, quiet=True)
    assert paid(zoo, burst, 30) == []


def test_quiet_zones_pay_first_the_lowest_priority_then_the_least_recently_active(zoo):
    burst = zoo.zone("burst", cached=10)
    zoo.zone("gold", cached=30, quiet=True, priority=1)
    zoo.zone("late", cached=30, quiet=True, active=9.0)
    zoo.zone("early", cached=30, quiet=True, active=5.0)
    assert paid(zoo, burst, 75) == [("early", 30, "quiet"), ("late", 30, "quiet"), ("gold", 15, "quiet")]


def test_a_quiet_zone_pays_down_to_what_it_does_not_lend_and_then_the_zone_itself_does(zoo):
    burst = zoo.zone("burst", cached=60)
    zoo.zone("calm", reserved=30, lendable=10, cached=40, quiet=True)
    assert paid(zoo, burst, 35) == [("calm", 20, "quiet"), ("burst", 15, "own")]


def test_within_its_reservation_a_zone_takes_surplus_back_before_its_own_cache(zoo):
    acme = zoo.zone("acme", reserved=40, cached=5)
    zoo.zone("gold", reserved=20, cached=55, priority=1)
    zoo.zone("lead", reserved=20, cached=40)
    assert paid(zoo, acme, 38) == [("lead", 20, "recall"), ("gold", 18, "recall")]


def test_above_its_reservation_it_takes_nothing_from_an_active_zone(zoo):
    burst = zoo.zone("burst", in_use=20, cached=40)
    zoo.zone("calm", cached=40)
    assert paid(zoo, burst, 10) == [("burst", 10, "own")]


def test_at_its_limit_its_own_cache_pays_even_while_blocks_are_free(zoo):
    burst = zoo.zone("burst", limit=30, in_use=10, cached=20)
    assert paid(zoo, burst, 5) == [("burst", 5, "limit")]


def test_the_least_recently_used_blocks_go_first(zoo):
    burst = zoo.zone("burst", limit=10, cached=10)
    oldest = list(burst.cached)[:3]
    ((_, blocks),) = make_room(zoo.ledger, burst, 3, zoo.free)
    assert blocks == oldest


def test_a_request_from_before_the_first_zone_takes_from_quiet_zones_only(zoo):
    zoo.zone("calm", cached=50, quiet=True)
    zoo.zone("acme", cached=50)
    assert paid(zoo, None, 40) == [("calm", 40, "quiet")]
