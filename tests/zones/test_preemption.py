"""Whose running request yields."""

import pytest

from tenantzone_runtime.zones.preemption import choose_victim, is_borrower, is_entitled, may_yield, youngest
from tests.zones.zoo import Zoo


@pytest.fixture
def zoo():
    return Zoo()


def test_a_zone_is_entitled_up_to_its_reservation_by_what_it_uses(zoo):
    acme = zoo.zone("acme", reserved=40, in_use=10, cached=20)
    assert is_entitled(acme, 30)
    assert not is_entitled(acme, 31)


def test_a_borrower_uses_more_than_its_reservation(zoo):
    assert not is_borrower(zoo.zone("exact", reserved=40, in_use=40, cached=10))
    assert is_borrower(zoo.zone("over", reserved=40, in_use=41))
    assert is_borrower(None)


def test_for_an_entitled_zone_the_lowest_priority_yields_and_of_that_the_youngest(zoo):
    acme = zoo.zone("acme", reserved=40)
    gold = zoo.zone("gold", in_use=30, priority=1)
    lead = zoo.zone("lead", in_use=30)
    assert choose_victim([lead, gold, lead, gold], acme, 10) == 2


def test_of_equal_priority_the_youngest_yields_whoever_it_belongs_to(zoo):
    acme = zoo.zone("acme", reserved=40)
    one, other = zoo.zone("one", in_use=30), zoo.zone("other", in_use=30)
    assert choose_victim([one, other, one], acme, 10) == 2
    assert choose_victim([one, one, other], acme, 10) == 2


def test_a_request_from_before_the_first_zone_yields_as_priority_0(zoo):
    acme = zoo.zone("acme", reserved=40)
    low, high = zoo.zone("low", in_use=20, priority=-1), zoo.zone("high", in_use=20, priority=1)
    assert choose_victim([high, None, high], acme, 10) == 1
    assert choose_victim([low, None, high], acme, 10) == 0
    assert may_yield(None, acme, 10)
    assert not may_yield(None, acme, 41)


def test_the_entitled_zones_own_requests_do_not_yield_to_it(zoo):
    acme = zoo.zone("acme", reserved=40, in_use=10)
    burst = zoo.zone("burst", in_use=90)
    assert choose_victim([burst, acme], acme, 30) == 0
    assert choose_victim([acme, burst], acme, 30) == 1
    assert choose_victim([acme], acme, 30) is None


def test_a_zone_within_its_reservation_never_yields(zoo):
    acme = zoo.zone("acme", reserved=40)
    calm = zoo.zone("calm", reserved=60, in_use=60)
    assert choose_victim([calm, calm], acme, 10) is None
    assert not may_yield(calm, acme, 10)


def test_beyond_its_reservation_a_zones_own_youngest_yields(zoo):
    burst = zoo.zone("burst", in_use=50)
    other = zoo.zone("other", in_use=50)
    assert choose_victim([burst, burst, other], burst, 1) == 1
    assert choose_victim([other, other], burst, 1) is None
    assert may_yield(burst, burst, 1)
    assert not may_yield(other, burst, 1)


def test_a_borrower_may_yield_for_a_reservation_only(zoo):
    acme = zoo.zone("acme", reserved=40, in_use=35)
    burst = zoo.zone("burst", in_use=65)
    assert may_yield(burst, acme, 5)
    assert not may_yield(burst, acme, 6)


def test_the_youngest_of_a_zone_is_its_last_in_the_order_of_running(zoo):
    one, other = zoo.zone("one"), zoo.zone("other")
    assert youngest([one, one, other, None], one) == 1
    assert youngest([other, None], one) is None
