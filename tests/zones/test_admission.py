"""Which zone with waiting requests is looked at next."""

import pytest

from tenantzone_runtime.zones.admission import Admission
from tests.zones.zoo import Zoo


@pytest.fixture
def zoo():
    return Zoo(100)


@pytest.fixture
def admission(zoo):
    return Admission(zoo.ledger)


@pytest.fixture
def zones(zoo, admission):
    zones = [zoo.zone(tenant) for tenant in ("one", "other")]
    for zone in zones:
        admission.enter(zone)
    return zones


def anybody(zone):
    return True


def nobody(zone):
    return False


def in_turn(admission):
    """Who is served if all are admissible and each leaves then."""
    served = []
    while (zone := admission.next(anybody)) is not None:
        served.append(zone)
        admission.leave(zone)
    return served


def test_zones_have_waiting_requests_from_when_they_enter_to_when_they_leave(zoo, admission, zones):
    one, other = zones
    assert one in admission
    admission.leave(one)
    admission.leave(one)
    assert one not in admission
    assert in_turn(admission) == [other]


def test_the_least_served_is_next(admission, zones):
    one, other = zones
    one.account.charge(100.0)
    assert in_turn(admission) == [other, one]


def test_a_zone_that_is_new_is_to_be_looked_at_once(admission, zones):
    assert admission.take_unseen() == zones
    assert admission.take_unseen() == []
    admission.enter(zones[0])
    assert admission.take_unseen() == [zones[0]]


def test_a_zone_that_is_parked_is_not_next_before_it_is_woken(zoo, admission, zones):
    one, other = zones
    busy = zoo.zone("busy", in_use=95)
    admission.take_unseen()
    admission.park(one, 10, 0, 0)
    admission.end_step()
    admission.wake(zoo.free, is_running=True)
    assert admission.take_unseen() == []
    assert admission.next(anybody) is other
    zoo.release(busy, dropped=5)
    admission.wake(zoo.free, is_running=True)
    assert admission.take_unseen() == [one]
    assert in_turn(admission) == [other, one]


def test_a_zone_that_is_parked_is_woken_by_what_changes_for_itself(zoo, admission, zones):
    one, _ = zones
    zoo.hold(one, in_use=5)
    admission.park(one, 100, 0, 0)
    admission.take_unseen()
    zoo.release(one, dropped=1)
    admission.wake(zoo.free, is_running=True)
    assert admission.take_unseen() == [one]
    assert not one.parked


def test_a_zone_that_stands_aside_is_not_next_before_the_step_ends(admission, zones):
    one, other = zones
    admission.set_aside(one)
    admission.enter(one)
    assert admission.next(anybody) is other
    admission.leave(other)
    assert admission.next(anybody) is None
    admission.end_step()
    assert admission.next(anybody) is one


def test_who_is_not_admissible_stands_aside_until_the_step_ends(admission, zones):
    assert admission.next(nobody) is None
    assert admission.next(anybody) is None
    admission.end_step()
    assert admission.next(anybody) is zones[0]


def test_a_zone_can_be_looked_at_again_without_being_served_before(admission, zones):
    admission.take_unseen()
    admission.look_again(zones[1])
    assert admission.take_unseen() == [zones[1]]
    admission.leave(zones[1])
    admission.look_again(zones[1])
    assert admission.take_unseen() == []


def test_all_that_are_parked_can_be_woken_at_once(zoo, admission, zones):
    zoo.zone("busy", in_use=100)
    assert not admission.wake_all()
    for zone in zones:
        admission.park(zone, 10, 0, 0)
    assert admission.wake_all()
    assert [zone.parked for zone in zones] == [0, 0]
    assert in_turn(admission) == zones


def test_a_zone_that_leaves_while_it_is_parked_is_woken_by_nothing(zoo, admission, zones):
    busy = zoo.zone("busy", in_use=100)
    admission.park(zones[0], 10, 0, 0)
    admission.leave(zones[0])
    admission.take_unseen()
    zoo.release(busy, dropped=100)
    admission.wake(zoo.free, is_running=False)
    assert admission.take_unseen() == []
    assert in_turn(admission) == [zones[1]]
