"""How long zones have waited for blocks and for seats."""

import pytest

from tenantzone_runtime.zones.model.zone import SeatQuota
from tests.zones.core import Core, declare
from tests.zones.small_engine import SmallEngine


@pytest.fixture
def acme(core):
    core.apply(declare("acme", limit=50), declare("other"))
    zone = core.ledger.zones["acme"]
    core.tenancy.request_arrived(zone, 0.0)
    return zone


def step(core, zone, now, *, denied=0, admitted=False):
    """Makes one step that finds the zone's next request denied or admitted, or does not look at it."""
    core.now = now
    if denied:
        core.tenancy.must_wait(zone, denied, core.free)
    if admitted:
        core.tenancy.may_go_on(zone)


def test_time_counts_from_the_step_that_denies_to_the_step_that_admits(core, acme):
    step(core, acme, 10.0, denied=60)
    step(core, acme, 11.0, denied=60)
    step(core, acme, 12.5, admitted=True)
    step(core, acme, 20.0)
    assert acme.counters.stalled_seconds == {"limit": 2.5}


def test_time_counts_under_the_reason_that_it_was_waited_for(core, acme):
    step(core, acme, 10.0, denied=60)
    other = core.ledger.zones["other"]
    core.hold(other, in_use=80)
    step(core, acme, 12.0, denied=40)
    step(core, acme, 15.0, admitted=True)
    assert acme.counters.stalled_seconds == {"limit": 2.0, "in_use": 3.0}


def test_a_zone_is_stalled_until_it_is_looked_at_again(core, acme):
    step(core, acme, 10.0, denied=60)
    step(core, acme, 11.0)
    assert acme.wait_reason == "limit"
    step(core, acme, 50.0, admitted=True)
    assert acme.wait_reason is None
    step(core, acme, 51.0)
    assert acme.counters.stalled_seconds == {"limit": 40.0}


def test_while_the_engine_takes_on_no_request_no_zone_is_stalled(core, acme):
    step(core, acme, 10.0, denied=60)
    core.now = 12.0
    core.tenancy.nobody_waits()
    assert (acme.wait_reason, acme.denied) == (None, 0)
    core.now = 20.0
    core.tenancy.count(acme)
    assert acme.counters.stalled_seconds == {"limit": 2.0}


def test_what_is_read_between_two_steps_counts_up_to_then_and_nothing_twice(core, acme):
    step(core, acme, 10.0, denied=60)
    for now in (11.0, 12.0):
        core.now = now
        core.tenancy.count(acme)
        assert acme.counters.stalled_seconds == {"limit": now - 10.0}
    step(core, acme, 13.0, admitted=True)
    assert acme.counters.stalled_seconds == {"limit": 3.0}


def test_a_zone_whose_last_request_is_aborted_is_stalled_no_more(core, acme):
    step(core, acme, 10.0, denied=60)
    core.tenancy.request_finished(acme, 12.0)
    core.now = 30.0
    core.tenancy.count(acme)
    assert acme.counters.stalled_seconds == {"limit": 2.0}


def test_one_zone_that_waits_does_not_keep_another_waiting(core, acme):
    other = core.ledger.zones["other"]
    core.tenancy.request_arrived(other, 0.0)
    step(core, other, 8.0, denied=200)
    step(core, acme, 10.0, denied=60)
    step(core, other, 12.0, admitted=True)
    assert (acme.wait_reason, other.wait_reason) == ("limit", None)
    assert (acme.counters.stalled_seconds, other.counters.stalled_seconds) == ({}, {"limit": 4.0})
    core.tenancy.count(acme)
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
    core = Core(100)
    core.apply(declare("acme", reserved=60), declare("other"))
    acme = core.ledger.zones["acme"]
    core.take(acme, in_use)
    step(core, acme, 10.0, denied=denied)
    assert acme.wait_reason in ("in_use", "reserved")
    assert acme.short == short
    step(core, acme, 11.0, admitted=True)
    assert acme.short == 0


class TestSeats:
    """Requests of one block each, in an engine with two seats; each step takes a second."""

    @pytest.fixture
    def engine(self, core):
        return SmallEngine(core, seats=2)

    def steps(self, core, engine, count):
        for _ in range(count):
            engine.step()
            core.now += 1.0

    def stalled(self, core, zone):
        core.tenancy.count(zone)
        return zone.counters.stalled_seconds

    def test_who_waits_while_no_seat_is_free_waits_for_one(self, core, engine):
        burst, other = core.zone("burst"), core.zone("other")
        running = [engine.run(burst, 1) for _ in range(2)]
        self.steps(core, engine, 1)
        engine.wait(other, 1)
        self.steps(core, engine, 3)
        assert core.tenancy.is_full
        engine.end(running[0])
        self.steps(core, engine, 2)
        assert self.stalled(core, other) == {"seats": 3.0}
        assert self.stalled(core, burst) == {}, "who runs does not wait"

    def test_while_seats_are_free_no_request_waits_for_one(self, core, engine):
        acme = core.zone("acme")
        engine.wait(acme, 1)
        self.steps(core, engine, 3)
        engine.wait(acme, 1, waits_for_else=True)
        self.steps(core, engine, 3)
        assert self.stalled(core, acme) == {}

    def test_who_was_denied_its_blocks_waits_for_these_and_for_no_seat(self, core, engine):
        burst, other = core.zone("burst"), core.zone("other")
        large = engine.run(burst, 90)
        engine.wait(other, 20)
        self.steps(core, engine, 2)
        small = engine.run(burst, 1)
        self.steps(core, engine, 4)
        assert self.stalled(core, other) == {"in_use": 6.0}
        engine.end(large)
        engine.end(small)
        self.steps(core, engine, 1)
        assert self.stalled(core, other) == {"in_use": 6.0}

    def test_who_runs_as_many_as_it_may_waits_for_its_own_seat(self, core, engine):
        acme = core.zone("acme", seats=SeatQuota(limit=1))
        engine.run(acme, 1)
        waiting = engine.wait(acme, 1)
        self.steps(core, engine, 2)
        assert (acme.wait_reason, acme.short) == ("seat_limit", 0)
        engine.end(engine.running[0])
        assert engine.step() == ([], [waiting])
        assert self.stalled(core, acme) == {"seat_limit": 2.0}

    def test_while_the_engine_takes_on_no_request_none_waits_for_a_seat(self, core, engine):
        burst, other = core.zone("burst"), core.zone("other")
        for _ in range(2):
            engine.run(burst, 1)
        engine.wait(other, 1)
        self.steps(core, engine, 2)
        engine.is_open = False
        engine.arbiter.pause()
        self.steps(core, engine, 5)
        assert not core.tenancy.is_full
        engine.is_open = True
        engine.arbiter.pause()
        self.steps(core, engine, 2)
        assert self.stalled(core, other) == {"seats": 4.0}, "of nine seconds it took on nothing for five"
