"""For how long zones have waited for blocks."""

import pytest

from tests.zones.zoo import Zoo, declare


@pytest.fixture
def acme(zoo):
    zoo.apply(declare("acme", limit=50), declare("other"))
    zone = zoo.ledger.zones["acme"]
    zoo.tenancy.request_arrived(zone, 0.0)
    return zone


def step(zoo, zone, now, *, denied=0, admitted=False):
    """One step that finds the zone's next request so, or does not look at it."""
    zoo.now = now
    if denied:
        zoo.tenancy.must_wait(zone, denied, zoo.free)
    if admitted:
        zoo.tenancy.may_go_on(zone)


def test_time_counts_from_the_step_that_denies_to_the_step_that_admits(zoo, acme):
    step(zoo, acme, 10.0, denied=60)
    step(zoo, acme, 11.0, denied=60)
    step(zoo, acme, 12.5, admitted=True)
    step(zoo, acme, 20.0)
    assert acme.counters.stalled_seconds == {"limit": 2.5}


def test_time_counts_under_the_reason_that_it_was_waited_for(zoo, acme):
    step(zoo, acme, 10.0, denied=60)
    other = zoo.ledger.zones["other"]
    zoo.hold(other, in_use=80)
    step(zoo, acme, 12.0, denied=40)
    step(zoo, acme, 15.0, admitted=True)
    assert acme.counters.stalled_seconds == {"limit": 2.0, "in_use": 3.0}


def test_a_zone_is_stalled_until_it_is_looked_at_again(zoo, acme):
    step(zoo, acme, 10.0, denied=60)
    step(zoo, acme, 11.0)
    assert acme.wait_reason == "limit"
    step(zoo, acme, 50.0, admitted=True)
    assert acme.wait_reason is None
    step(zoo, acme, 51.0)
    assert acme.counters.stalled_seconds == {"limit": 40.0}


def test_while_the_engine_takes_on_no_request_no_zone_is_stalled(zoo, acme):
    step(zoo, acme, 10.0, denied=60)
    zoo.now = 12.0
    zoo.tenancy.nobody_waits()
    assert (acme.wait_reason, acme.denied) == (None, 0)
    zoo.now = 20.0
    zoo.tenancy.count(acme)
    assert acme.counters.stalled_seconds == {"limit": 2.0}


def test_what_is_read_between_two_steps_counts_up_to_then_and_nothing_twice(zoo, acme):
    step(zoo, acme, 10.0, denied=60)
    for now in (11.0, 12.0):
        zoo.now = now
        zoo.tenancy.count(acme)
        assert acme.counters.stalled_seconds == {"limit": now - 10.0}
    step(zoo, acme, 13.0, admitted=True)
    assert acme.counters.stalled_seconds == {"limit": 3.0}


def test_a_zone_whose_last_request_is_aborted_is_stalled_no_more(zoo, acme):
    step(zoo, acme, 10.0, denied=60)
    zoo.tenancy.request_finished(acme, 12.0)
    zoo.now = 30.0
    zoo.tenancy.count(acme)
    assert acme.counters.stalled_seconds == {"limit": 2.0}


def test_one_zone_that_waits_does_not_keep_another_waiting(zoo, acme):
    other = zoo.ledger.zones["other"]
    zoo.tenancy.request_arrived(other, 0.0)
    step(zoo, other, 8.0, denied=200)
    step(zoo, acme, 10.0, denied=60)
    step(zoo, other, 12.0, admitted=True)
    assert (acme.wait_reason, other.wait_reason) == ("limit", None)
    assert (acme.counters.stalled_seconds, other.counters.stalled_seconds) == ({}, {"limit": 4.0})
    zoo.tenancy.count(acme)
    assert acme.counters.stalled_seconds == {"limit": 2.0}


@pytest.mark.parametrize(
    ("in_use", "denied", "short"),
    [
        pytest.param(0, 60, 60, id="all that it was promised"),
        pytest.param(20, 40, 40, id="the rest of what it was promised"),
        pytest.param(0, 61, 0, id="more than it was promised"),
        pytest.param(20, 41, 0, id="more than the rest"),
    ],
)
def test_a_waiting_zone_is_short_of_what_it_was_promised_and_of_no_more(in_use, denied, short):
    zoo = Zoo(100)
    zoo.apply(declare("acme", reserved=60), declare("other"))
    acme = zoo.ledger.zones["acme"]
    zoo.take(acme, in_use)
    step(zoo, acme, 10.0, denied=denied)
    assert acme.wait_reason in ("in_use", "reserved")
    assert acme.short == short
    step(zoo, acme, 11.0, admitted=True)
    assert acme.short == 0
