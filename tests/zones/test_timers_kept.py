"""The timers themselves: how many there are, and when they go off."""

import pytest

from tenantzone_runtime.zones.blocks.timers import Timers
from tests.zones.core import Core, declare


@pytest.fixture
def core():
    return Core()


def test_a_zone_is_looked_at_once_however_often_its_timer_was_set(core):
    timers = Timers()
    acme = core.zone("acme")
    for moment in (30.0, 20.0, 10.0, 20.0):
        timers.set_at(acme, moment)
    assert list(timers.pop_due(9.9)) == []
    assert list(timers.pop_due(50.0)) == [acme]
    assert list(timers.pop_due(50.0)) == []


def moments(zones, timers, step):
    """When each zone's timer goes off, if the timers are checked every `step`."""
    left, now, gone_off = set(zones), 0.0, {}
    while left:
        now += step
        for zone in timers.pop_due(now):
            gone_off[zone] = now
            left.discard(zone)
    return gone_off


def test_timers_that_are_set_again_and_again_do_not_pile_up_and_go_off_as_they_would(core):
    timers = Timers()
    zones = [core.zone(f"tenant-{number}") for number in range(100)]
    for turn in range(300):
        for number, zone in enumerate(zones):
            timers.set_at(zone, float(turn))
            assert set(timers.pop_due(turn)) == {zone}
            timers.set_at(zone, 1000.0 + number)
            assert len(timers) <= 2 * len(zones) + 1
    assert moments(zones, timers, 1.0) == {zone: 1000.0 + number for number, zone in enumerate(zones)}


def test_timers_are_tidied_up_only_when_there_are_twice_as_many_as_there_were(core):
    timers = Timers()
    zones = [core.zone(f"tenant-{number}") for number in range(100)]
    entries = []
    for turn in range(6):
        for zone in zones:
            timers.set_at(zone, 100.0 - turn)
        entries.append(len(timers))
    # Tidied up at the 65th entry (all are kept), at the 131st (100 are kept), and then at each 201st.
    assert entries == [100, 169, 168, 167, 166, 165]


def test_timers_of_zones_that_are_gone_do_not_pile_up(core):
    for turn in range(500):
        now = float(turn)
        core.apply(declare("removed", evict_after=1e6), declare("ends-later", after=1e6), now=now)
        core.upkeep(now)
        ends_later = core.ledger.zones["ends-later"]
        core.tenancy.request_arrived(ends_later, now)
        core.apply(now=now)
        core.tenancy.request_finished(ends_later, now)
        assert core.ledger.zones == {}
        assert len(core.tenancy._timers) <= 65


def test_reloads_do_not_pile_up_timers(core):
    """Each reload sets the timer of each zone anew, without changing when it goes off."""
    for turn in range(200):
        core.apply(declare("acme", weight=1 + turn % 2, after=0.0, evict_after=1e6), now=float(turn))
        core.upkeep(float(turn))
    assert len(core.tenancy._timers) <= 65
    core.upkeep(1e6 - 1.0)
    assert core.ledger.zones["acme"].state == "Idle"
    core.upkeep(1e6)
    assert core.ledger.zones["acme"].state == "Evicted"
