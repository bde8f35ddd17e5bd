"""Which zone with waiting requests is looked at next."""

from functools import partial

import pytest

from tenantzone_runtime.zones.schedule.admission import Admission


@pytest.fixture
def admission(core):
    return Admission(core.ledger)


@pytest.fixture
def zones(core, admission):
    zones = [core.zone(tenant) for tenant in ("one", "other")]
    for zone in zones:
        admission.enter(zone)
    return zones


def every_zone(zone):
    return True


def no_zone(zone):
    return False


def next_of(core, admission, is_admissible=every_zone, *, may_call=True, is_running=True):
    """The zone that is served next; those that are considered before it are set aside."""
    passed_over, served = [], None
    admission.wake()
    for zone in admission.candidates(lambda: may_call, core.free, is_running=is_running):
        if is_admissible(zone):
            served = zone
            break
        passed_over.append(zone)
    for zone in passed_over:
        admission.pass_over(zone, lambda: None)
    if served is not None:
        admission.serve(served)
    return served


def in_turn(core, admission):
    """The order in which zones are served if all are admissible and each leaves once it is served."""
    served = []
    while (zone := next_of(core, admission)) is not None:
        served.append(zone)
        admission.leave(zone)
    return served


def test_zones_have_waiting_requests_from_when_they_enter_to_when_they_leave(core, admission, zones):
    one, other = zones
    assert one in admission
    admission.leave(one)
    admission.leave(one)
    assert one not in admission
    assert in_turn(core, admission) == [other]


def test_the_least_served_is_next(core, admission, zones):
    one, other = zones
    one.account.charge(100.0)
    assert in_turn(core, admission) == [other, one]


def test_a_zone_that_is_new_is_to_be_looked_at_once(admission, zones):
    assert admission.take_unseen() == zones
    assert admission.take_unseen() == []
    admission.enter(zones[0])
    assert admission.take_unseen() == [zones[0]]


def test_a_zone_that_backs_off_is_not_next_before_its_threshold_is_reached(core, admission, zones):
    one, other = zones
    busy = core.zone("busy", in_use=95)
    admission.back_off(one, 10, 0, 0)
    admission.end_step()
    assert next_of(core, admission) is other
    core.release(busy, dropped=4)
    assert next_of(core, admission) is other
    core.release(busy, dropped=1)
    assert in_turn(core, admission) == [other, one]


def test_a_zone_that_backs_off_is_not_called_where_that_is_of_no_use(core, admission, zones):
    one, other = zones
    admission.back_off(one, 10, 0, 0)
    admission.end_step()
    admission.leave(other)
    assert next_of(core, admission, may_call=False) is None
    assert one.backoff_ticket
    assert next_of(core, admission) is one


def test_of_many_whose_thresholds_are_reached_the_least_served_is_next_and_the_others_go_on_backing_off(
    core, admission
):
    busy = core.zone("busy", in_use=95)
    waiting = [core.zone(f"waits-{service}") for service in (3, 1, 2, 4)]
    for zone, service, count in zip(waiting, (3, 1, 2, 4), (10, 20, 10, 20), strict=True):
        admission.enter(zone)
        zone.account.charge(service)
        admission.back_off(zone, count, 0, 0)
    admission.end_step()
    core.release(busy, dropped=15)
    assert next_of(core, admission) is waiting[1]
    assert [bool(zone.backoff_ticket) for zone in waiting] == [True, False, True, True]
    assert in_turn(core, admission) == [waiting[1], waiting[2], waiting[0], waiting[3]]


def test_what_a_backed_off_zone_is_charged_for_meanwhile_counts(core, admission, zones):
    core.zone("busy", in_use=90)
    for zone in zones:
        admission.back_off(zone, 10, 0, 0)
    admission.end_step()
    zones[0].account.charge(5.0)
    assert in_turn(core, admission) == [zones[1], zones[0]]


def test_a_zone_that_is_denied_again_in_the_same_step_is_not_looked_at_again_in_it(core, admission, zones):
    core.zone("busy", in_use=90)
    for zone in zones:
        admission.back_off(zone, 10, 0, 0)
    admission.end_step()
    looked_at = []

    def deny_all():
        for zone in list(admission.candidates(lambda: True, core.free, is_running=True)):
            looked_at.append(zone)
            admission.pass_over(zone, partial(admission.back_off, zone, 10, 0, 0))

    deny_all()
    assert looked_at == zones
    deny_all()
    assert looked_at == zones
    admission.end_step()
    deny_all()
    assert looked_at == 2 * zones


def test_who_waits_for_its_share_is_looked_at_when_it_has_grown_and_not_before(core, admission):
    """A third of 100 blocks each; the first one asks for a half, and has three blocks."""
    one, *others = (core.zone(tenant) for tenant in ("one", "two", "three"))
    core.hold(others[0], cached=97)
    core.hold(one, in_use=3)
    admission.enter(one)
    admission.back_off(one, 47, 0, 0)
    admission.end_step()
    assert next_of(core, admission) is None
    core.set_quiet(others[1])
    assert next_of(core, admission) is one


def test_a_zone_that_backs_off_is_woken_by_what_changes_for_itself(core, admission, zones):
    one, _ = zones
    core.hold(one, in_use=5)
    admission.back_off(one, 100, 0, 0)
    admission.take_unseen()
    core.release(one, dropped=1)
    admission.wake()
    assert admission.take_unseen() == [one]
    assert not one.backoff_ticket


def test_a_zone_that_stands_aside_is_not_next_before_the_step_ends(core, admission, zones):
    one, other = zones
    admission.set_aside(one)
    admission.enter(one)
    assert next_of(core, admission) is other
    admission.leave(other)
    assert next_of(core, admission) is None
    admission.end_step()
    assert next_of(core, admission) is one


def test_who_is_not_admissible_stands_aside_until_the_step_ends(core, admission, zones):
    assert next_of(core, admission, no_zone) is None
    assert next_of(core, admission) is None
    admission.end_step()
    assert next_of(core, admission) is zones[0]


def test_a_zone_can_be_looked_at_again_without_being_served_before(admission, zones):
    admission.take_unseen()
    admission.look_again(zones[1])
    assert admission.take_unseen() == [zones[1]]
    admission.leave(zones[1])
    admission.look_again(zones[1])
    assert admission.take_unseen() == []


def test_all_that_back_off_can_be_woken_at_once(core, admission, zones):
    core.zone("busy", in_use=100)
    assert not admission.wake_all()
    for zone in zones:
        admission.back_off(zone, 10, 0, 0)
    assert admission.wake_all()
    assert [zone.backoff_ticket for zone in zones] == [0, 0]
    assert in_turn(core, admission) == zones


def test_a_zone_that_leaves_while_it_backs_off_is_woken_by_nothing(core, admission, zones):
    busy = core.zone("busy", in_use=100)
    admission.back_off(zones[0], 10, 0, 0)
    admission.leave(zones[0])
    admission.take_unseen()
    core.release(busy, dropped=100)
    admission.end_step()
    assert in_turn(core, admission) == [zones[1]]
