"""Whose running request yields."""

import pytest

from tenantzone_runtime.zones.preemption import choose_victim, may_yield
from tests.zones.zoo import Zoo


@pytest.fixture
def zoo():
    return Zoo()


def test_for_an_entitled_zone_the_lowest_priority_yields_and_of_that_the_youngest(zoo):
    acme = zoo.zone("acme", reserved=40)
    gold = zoo.zone("gold", in_use=30, priority=1)
    lead = zoo.zone("lead", in_use=30)
    assert choose_victim([lead, gold, lead, gold], acme, 10) == 2


def test_a_zone_within_its_reservation_never_yields(zoo):
    acme = zoo.zone("acme", reserved=40)
    calm = zoo.zone("calm", reserved=60, in_use=60)
    assert choose_victim([calm, calm], acme, 10) is None
    assert not may_yield(calm, acme, 10)


def test_beyond_its_reservation_a_zones_own_youngest_yields(zoo):
    burst = zoo.zone("burst", in_use=50)
    other = zoo.zone("other", in_use=50)
    assert choose_victim([burst, burst, other], burst, 1) == 1
    assert may_yield(burst, burst, 1)
    assert not may_yield(other, burst, 1)


def test_a_borrower_may_yield_for_a_reservation_only(zoo):
    acme = zoo.zone("acme", reserved=40, in_use=35)
    burst = zoo.zone("burst", in_use=65)
    assert may_yield(burst, acme, 5)
    assert not may_yield(burst, acme, 6)
