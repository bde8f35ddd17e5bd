"""Which zone's running request is preempted."""

import pytest

from tenantzone_runtime.zones.schedule.preemption import choose_victim, youngest
from tests.zones.core import Core, Request


@pytest.fixture
def core():
    return Core()


def victim(zones, beneficiary, count):
    """The index of the running request that is preempted, counted from the most senior one; None: no request."""
    running = [Request(zone) for zone in zones]
    chosen = choose_victim(running, beneficiary, entitled=beneficiary.is_entitled_to(count))
    return None if chosen is None else running.index(chosen)


def test_a_zone_is_entitled_up_to_its_reservation_by_what_it_uses(core):
    acme = core.zone("acme", reserved=40, in_use=10, cached=20)
    assert acme.is_entitled_to(30)
    assert not acme.is_entitled_to(31)


def test_a_borrower_uses_more_than_its_reservation(core):
    assert not core.zone("exact", reserved=40, in_use=40, cached=10).borrows
    assert core.zone("over", reserved=40, in_use=41).borrows
    assert core.early(in_use=1).borrows


def test_for_an_entitled_zone_the_lowest_priority_yields_and_of_that_the_youngest(core):
    acme = core.zone("acme", reserved=40)
    gold = core.zone("gold", in_use=30, priority=1)
    lead = core.zone("lead", in_use=30)
    assert victim([lead, gold, lead, gold], acme, 10) == 2


def test_of_equal_priority_the_youngest_yields_whatever_its_zone(core):
    acme = core.zone("acme", reserved=40)
    one, other = core.zone("one", in_use=30), core.zone("other", in_use=30)
    assert victim([one, other, one], acme, 10) == 2
    assert victim([one, one, other], acme, 10) == 2


def test_a_request_from_before_zones_yields_as_priority_0(core):
    acme = core.zone("acme", reserved=40)
    low, high = core.zone("low", in_use=20, priority=-1), core.zone("high", in_use=20, priority=1)
    early = core.early(in_use=20)
    assert victim([high, early, high], acme, 10) == 1
    assert victim([low, early, high], acme, 10) == 0
    assert victim([early], acme, 41) is None


def test_the_entitled_zones_own_requests_do_not_yield_to_it(core):
    acme = core.zone("acme", reserved=40, in_use=10)
    burst = core.zone("burst", in_use=90)
    assert victim([burst, acme], acme, 30) == 0
    assert victim([acme, burst], acme, 30) == 1
    assert victim([acme], acme, 30) is None


def test_a_zone_within_its_reservation_never_yields(core):
    acme = core.zone("acme", reserved=40)
    calm = core.zone("calm", reserved=60, in_use=60)
    assert victim([calm, calm], acme, 10) is None


def test_beyond_its_reservation_a_zones_own_youngest_yields(core):
    burst = core.zone("burst", in_use=50)
    other = core.zone("other", in_use=50)
    assert victim([burst, burst, other], burst, 1) == 1
    assert victim([other, other], burst, 1) is None


def test_a_borrower_yields_for_a_reservation_only(core):
    acme = core.zone("acme", reserved=40, in_use=35)
    burst = core.zone("burst", in_use=65)
    assert victim([burst], acme, 5) == 0
    assert victim([burst], acme, 6) is None


def test_the_youngest_of_a_zone_is_its_last_by_seniority(core):
    one, other = core.zone("one"), core.zone("other")
    running = [Request(one), Request(one), Request(other)]
    assert youngest(running, one) is running[1]
    assert youngest(running[2:], one) is None
